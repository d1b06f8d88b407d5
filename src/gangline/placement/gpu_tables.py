"""Which GPUs of a node a gang gets: tables over every set of free GPUs, made once for each machine.

Sets of GPUs are bit masks, bit i for the GPU of index i. A table answers in nanoseconds what the scheduler asks
for thousands of nodes at once: the best ``k`` of the free ones, how fast they are together, and how much
poorer the rest becomes. *Usefulness* of a free set is the sum over all request sizes from two GPUs on of the
bandwidth that the set could give them, as a share of what the whole machine gives that size. It is what a
single-GPU request is judged by as well, so that single GPUs come from sets that are broken already.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

from gangline.topology.machine import Machine
from gangline.topology.rings import best_rings, bus_gb_s

Masks = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]

EXHAUSTIVE_MAX = 8
"""All subsets are compared up to this many GPUs; larger machines must be symmetric (NVSwitch)."""

IMPOSSIBLE = np.inf
_BANDWIDTH_STEP = 1e9
_LOSS_STEP = 1e3


def mask_of(indices: tuple[int, ...] | list[int]) -> int:
    """Return the mask of some GPU indices."""
    return sum(1 << index for index in indices)


def indices_of(mask: int) -> tuple[int, ...]:
    """Return the GPU indices of a mask, ascending."""
    return tuple(index for index in range(mask.bit_length()) if mask >> index & 1)


def lowest(mask: int, count: int) -> int:
    """Return the ``count`` lowest GPUs of a mask, as the stock device plugin hands them out."""
    chosen = 0
    for _ in range(count):
        bit = mask & -mask
        chosen |= bit
        mask ^= bit
    return chosen


class GpuTables:
    """Answers for one machine, and one way of choosing.

    Args:
        machine: the link graph.
        by_wires: choose the GPUs that are fastest together; otherwise the lowest indices.

    Cost: the first question about a size of an 8-GPU machine takes some 10 ms, each later one nothing.
    """

    def __init__(self, machine: Machine, *, by_wires: bool) -> None:
        self.machine = machine
        self.by_wires = by_wires
        self.size = machine.count
        self._choices: dict[int, Callable[[int], int]] = {}
        self._scores: dict[int, Scores] = {}

    def choose(self, free: int, count: int) -> int:
        """Return the mask of the GPUs that a gang of ``count`` gets from the free ones; 0 when too few."""
        if free.bit_count() < count or count == 0:
            return 0
        if not self.by_wires:
            return lowest(free, count)
        return _best(self.machine, free, count)

    def bandwidth(self, mask: int) -> float:
        """Return the all-reduce bandwidth of a set in GB/s; 0 for less than two GPUs."""
        return _bandwidth(self.machine, mask)

    def ring(self, mask: int) -> tuple[int, ...]:
        """Return the indices of a set in the order of its ring, so that ranks next to one another are close."""
        if not self.by_wires or mask.bit_count() < 3:
            return indices_of(mask)
        return best_rings(self.machine, mask).orders[0]

    def scores(self, count: int) -> Scores:
        """Return, by mask of free GPUs, how good a node is for ``count`` of them: the lowest is best.

        Bandwidth first, then the loss of usefulness, then the fewest free GPUs. Shape: (2**size,).
        """
        if count not in self._scores:
            self._scores[count] = self._make_scores(count)
        return self._scores[count]

    def _make_scores(self, count: int) -> Scores:
        masks = range(1 << self.size)
        if self.size > EXHAUSTIVE_MAX:
            return self._symmetric_scores(count)
        scores = np.full(1 << self.size, IMPOSSIBLE)
        for free in masks:
            chosen = self.choose(free, count)
            if chosen:
                speed = round(self.bandwidth(chosen) * 10)
                loss = usefulness(self.machine, free) - usefulness(self.machine, free & ~chosen)
                scores[free] = -speed * _BANDWIDTH_STEP + round(loss * _LOSS_STEP) * 1e2 + free.bit_count()
        return scores

    def _symmetric_scores(self, count: int) -> Scores:
        free = np.bitwise_count(np.arange(1 << self.size, dtype=np.uint32)).astype(np.float64)
        speed = round(self.bandwidth((1 << count) - 1) * 10) if count <= self.size else 0
        return np.where(free >= count, -speed * _BANDWIDTH_STEP + free, IMPOSSIBLE)


@lru_cache(maxsize=256)
def tables_of(machine: Machine, by_wires: bool) -> GpuTables:
    """Return the tables of a machine; one set of tables for all nodes of that kind."""
    return GpuTables(machine, by_wires=by_wires)


@lru_cache(maxsize=1 << 17)
def _bandwidth(machine: Machine, mask: int) -> float:
    return bus_gb_s(machine, mask) if mask.bit_count() > 1 else 0.0


@lru_cache(maxsize=1 << 17)
def usefulness(machine: Machine, free: int) -> float:
    """Return what a set of free GPUs is good for: 0 for a single one, size - 1 for a whole machine."""
    if machine.count > EXHAUSTIVE_MAX:
        return float(max(free.bit_count() - 1, 0))
    whole = (1 << machine.count) - 1
    return sum(
        _fastest(machine, free, count) / (_fastest(machine, whole, count) or 1.0)
        for count in range(2, free.bit_count() + 1)
    )


@lru_cache(maxsize=1 << 17)
def _fastest(machine: Machine, free: int, count: int) -> float:
    return max(_bandwidth(machine, mask_of(chosen)) for chosen in combinations(indices_of(free), count))


@lru_cache(maxsize=1 << 17)
def _best(machine: Machine, free: int, count: int) -> int:
    """Return the fastest ``count`` of the free GPUs; of equally fast ones those that leave most behind."""
    if machine.count > EXHAUSTIVE_MAX:
        return lowest(free, count)

    def order(mask: int) -> tuple[float, float, tuple[int, ...]]:
        speed = round(_bandwidth(machine, mask) * 10)
        return -speed, -round(usefulness(machine, free & ~mask), 6), indices_of(mask)

    return min((mask_of(chosen) for chosen in combinations(indices_of(free), count)), key=order)
