"""How good a node is for a gang, by the set of its free GPUs: tables made once for each machine.

Sets of GPUs are bit masks. :mod:`gangline.topology.gpu_choices` says which GPUs of one node to take; to
choose among thousands of nodes their answers are laid out as arrays over all masks, so that one look-up for
each node decides.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gangline.topology import Choices, Machine, choices, members, rank_order
from gangline.topology.gpu_choices import TABLE_MAX

Scores = npt.NDArray[np.float64]

IMPOSSIBLE = np.inf

_SPEED_STEP = 1e9
_LOSS_STEP = 1e2
_LOSS_PARTS = 1e4
_SPEED_PARTS = 1000
"""Bandwidths closer than 1 MB/s are equal here, and losses closer than 1/10,000 of a whole set."""


class GpuTables:
    """Answers for one machine, and one way of choosing.

    Args:
        machine: the link graph.
        by_wires: take the GPUs that are fastest together; otherwise the lowest indices, as the stock device
            plugin does.
    """

    def __init__(self, machine: Machine, *, by_wires: bool) -> None:
        self.machine = machine
        self.by_wires = by_wires
        self.count = machine.count
        self._choices: Choices = choices(machine)
        self._scores: dict[int, Scores] = {}
        self._speeds: dict[int, Scores] = {}
        self._whole = self._choices.left(machine.everything)

    def choose(self, free: int, count: int) -> int:
        """Return the mask of the GPUs that a gang of ``count`` gets from the free ones; 0 when too few."""
        return self._choices.best(free, count) if self.by_wires else self._choices.lowest(free, count)

    def choose_cut(self, free: int, count: int, common: int) -> int:
        """Return those of a gang that is on other nodes too, where ``common`` are free as well."""
        if not self.by_wires:
            return self._choices.lowest(free, count)
        return self._choices.best_cut(free, count, common)

    def ring(self, mask: int) -> tuple[int, ...]:
        """Return the GPUs of a set in the order of its ring, so that neighbouring ranks are close."""
        if not self.by_wires or mask.bit_count() < 3:
            return members(mask)
        return rank_order(self.machine, mask)

    def scores(self, count: int) -> Scores:
        """Return how good a node is for ``count`` GPUs, by mask of its free ones: (2^n,), least is best.

        The bandwidth of the set that the gang would get comes first, then how little the other GPUs lose,
        then how few are free. Cost: some 10 ms the first time, then nothing.
        """
        if count not in self._scores:
            small = self.count <= TABLE_MAX
            self._scores[count] = self._exact_scores(count) if small else self._equal_scores(count)
        return self._scores[count]

    def speeds(self, count: int) -> Scores:
        """Return the bandwidth part of :meth:`scores` alone, by mask of the free GPUs: (2^n,)."""
        if count not in self._speeds:
            speeds = np.zeros(1 << self.count)
            for free in range(1 << self.count) if self.count <= TABLE_MAX else ():
                speeds[free] = self._speed(self.choose(free, count))
            self._speeds[count] = speeds
        return self._speeds[count]

    def _exact_scores(self, count: int) -> Scores:
        scores = np.full(1 << self.count, IMPOSSIBLE)
        for free in range(1, 1 << self.count):
            chosen = self.choose(free, count)
            if chosen:
                rest = self._loss(free, chosen) * _LOSS_PARTS
                scores[free] = self._speed(chosen) + round(rest) * _LOSS_STEP + free.bit_count()
        return scores

    def _equal_scores(self, count: int) -> Scores:
        """Return scores of a machine too large for a table, behind an NVSwitch: all sets are equally fast."""
        free = np.bitwise_count(np.arange(1 << self.count, dtype=np.uint32)).astype(np.float64)
        return np.where(free >= count, free, IMPOSSIBLE)

    def _speed(self, chosen: int) -> float:
        if chosen.bit_count() < 2:
            return 0.0
        return -round(self._choices.worth_gb_s(chosen) * _SPEED_PARTS) * _SPEED_STEP

    def _loss(self, free: int, chosen: int) -> float:
        """Return what taking a set costs later jobs: eights count more than fours, and these than pairs."""
        before, after = self._choices.left(free), self._choices.left(free & ~chosen)
        loss = 0.0
        for most, first, then in zip(self._whole, before, after, strict=True):
            loss = 10 * loss + (first - then) / (most or 1.0)
        return loss


@lru_cache(maxsize=256)
def tables_of(machine: Machine, by_wires: bool) -> GpuTables:
    """Return the tables of a machine; one for all nodes of that kind."""
    return GpuTables(machine, by_wires=by_wires)
