"""Indices of a data set for this rank, of those that were not processed yet."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from torch.utils.data import Sampler

from horovod.torch.lifecycle import rank, size


class ElasticSampler(Sampler):
    """Shares a data set out over the ranks, and the rest of it anew when the ranks change.

    Give it to a `TorchState`, call `record_batch` after each batch, and `set_epoch` at the END of an epoch.

    Args:
        dataset: of constant length.
        shuffle: in an order that seed and epoch decide.
        seed: the same on all ranks.
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, of which nothing was processed."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Note that every rank has processed a batch."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, int]:
        """Return epoch and progress."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on from there, with the ranks that are there now."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Share the rest out over the ranks that are there now."""
        self.num_replicas, self.rank = size(), rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        indices = list(self.remaining_indices)
        while (
            indices and len(indices) < self.total_size
        ):  # the first ones again, so that all ranks have as many
            indices += indices[: self.total_size - len(indices)]
        self.indices = indices[self.rank : self.total_size : self.num_replicas]
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
