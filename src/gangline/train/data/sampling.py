"""Which sample a rank reads when: shuffled anew in each epoch, nothing lost, nothing twice. Pure.

All epochs stand behind one another in one endless sequence, which all ranks know, and rank r of R takes the
places r, r + R, r + 2R, … of it. So each sample is read once in each epoch by one rank, whatever the number
of samples, shards and ranks, and all ranks always have equally many batches: none waits for a peer that is
done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Shuffle:
    """An order of ``count`` numbers, computed and not stored: ImageNet's would be 10 MB for each rank.

    A Feistel network on the bits of the number, walked until it falls below ``count``.

    Attributes:
        count: of the numbers, from 0.
        key: another key is another order.
    """

    count: int
    key: bytes

    def __getitem__(self, place: int) -> int:
        """Return the number at a place."""
        if not 0 <= place < self.count:
            raise IndexError(place)
        half = max(1, ((self.count - 1).bit_length() + 1) // 2)
        mask = (1 << half) - 1
        number = place
        while True:
            left, right = number >> half, number & mask
            for turn in range(_ROUNDS):
                left, right = right, left ^ (_mix(self.key, turn, right) & mask)
            number = left << half | right
            if number < self.count:
                return number


def _mix(key: bytes, turn: int, value: int) -> int:
    """Return 64 bits that depend on everything (splitmix64's last steps)."""
    text = int.from_bytes(key[8 * (turn % 2) : 8 * (turn % 2) + 8], "little")
    mixed = (text + 0x9E3779B97F4A7C15 * (value + 1 + turn)) & 0xFFFFFFFFFFFFFFFF
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return mixed ^ (mixed >> 31)


def epoch_order(count: int, seed: int, epoch: int) -> Shuffle:
    """Return the order of an epoch."""
    return Shuffle(count, blake2b(f"{seed}/{epoch}/{count}".encode(), digest_size=16).digest())


def rank_samples(count: int, *, rank: int, ranks: int, seed: int) -> Iterator[tuple[int, int]]:
    """Yield epoch and sample of everything that a rank reads, without end.

    Args:
        count: of the samples, at least 1.
        rank: 0 to ``ranks - 1``.
        ranks: number of ranks.
        seed: the same on all ranks.
    """
    place, known = rank, -1
    while True:
        epoch, position = divmod(place, count)
        if epoch != known:
            order, known = epoch_order(count, seed, epoch), epoch
        yield epoch, order[position]
        place += ranks


def locate(sample: int, ends: Sequence[int]) -> tuple[int, int]:
    """Return shard and record of a sample; ``ends``: for each shard the samples up to its end."""
    shard = bisect_right(ends, sample)
    return shard, sample - (ends[shard - 1] if shard else 0)


def mount_of(shard: int, holders: Sequence[int]) -> int:
    """Return the mount through which a shard is read: in turn among those that show it."""
    return holders[shard % len(holders)]
