"""A rank's share of a data set, in an order that follows from how many samples are done.

The order is one endless sequence of shuffled epochs (`gangline.train.data.sampling`), of which rank r of R
takes every R-th place from r. So a training that goes on where it was needs one number, and as many ranks as
there are now read what is left of the same sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized

from torch.utils.data import Sampler

from gangline.errors import UserError
from gangline.train.data.sampling import epoch_order


class Shard(Sampler[int]):
    """A sampler for torch's DataLoader. Each pass over it is about an epoch, equally long on all ranks.

    What does not fill a batch on every rank at the end of an epoch comes first in the next pass: nothing is
    dropped and nothing is read twice.

    Args:
        dataset: of which the length is asked.
        rank: this rank.
        size: number of ranks.
        batch_size: of the DataLoader, on each rank.
        shuffle: each epoch anew; without it samples come in their order.
        seed: another one is another order; the same on all ranks.
        done: samples that all ranks together have done before, for example ``step * batch_size * size``.

    Raises:
        UserError: the data set is empty, or has no batch for every rank.
    """

    def __init__(
        self,
        dataset: Sized,
        rank: int,
        size: int,
        *,
        batch_size: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        done: int = 0,
    ) -> None:
        self._count, self._rank, self._size = len(dataset), rank, size
        self._batch, self._shuffle, self._seed, self._done = batch_size, shuffle, seed, done
        if batch_size < 1 or done < 0:
            raise UserError(f"shard(batch_size={batch_size}, done={done}): at least 1, and at least 0")
        if self._count < batch_size * size:
            raise UserError(
                f"shard() of {self._count} samples: {size} ranks with batches of {batch_size} take "
                f"{batch_size * size} in a step",
                hint="make batch_size smaller, or take fewer ranks",
            )

    @property
    def epoch(self) -> int:
        """The epoch of the next sample, from 0."""
        return self._done // self._count

    def __len__(self) -> int:
        """Return how many samples this rank reads in the next pass: whole batches."""
        step = self._batch * self._size
        end = (self._done // self._count + 1) * self._count
        return ((end - self._done) // step or (end + self._count - self._done) // step) * self._batch

    def __iter__(self) -> Iterator[int]:
        """Yield this rank's samples of one pass; one that was read to its end is done."""
        first, count = self._done, len(self)
        known, order = -1, epoch_order(self._count, self._seed, 0)
        for place in range(first + self._rank, first + count * self._size, self._size):
            epoch, position = divmod(place, self._count)
            if epoch != known:
                known, order = epoch, epoch_order(self._count, self._seed, epoch)
            yield order[position] if self._shuffle else position
        self._done = first + count * self._size
