"""Which GPUs of a node to take: the fastest set of a size, and among equals the one that leaves most.

The order of preference is:

1. the highest bandwidth of the set's rings, then of its chain (:func:`gangline.topology.rings.worth_gb_s`);
2. the fewest NUMA nodes;
3. what is left: the best that the remaining GPUs can be cut into sets of 8, then 4, then 2 GPUs;
4. the fewest PCIe switches, then the lowest indices.

It is exact for machines of at most :data:`TABLE_MAX` GPUs. Larger ones behind an NVSwitch, where all sets of
one size are equally fast, get whole switches and NUMA nodes first.

A gang on several nodes is bounded by the network cards next to its GPUs: there what the cards and the chain
through the set carry between nodes comes first, so that its GPUs sit on cards of their own.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

from gangline.topology.link_resources import MACHINES_MAX, mask_of, members
from gangline.topology.machine import Machine
from gangline.topology.rates import BITS_PER_BYTE
from gangline.topology.rings import best_chain, bus_gb_s, worth_gb_s

TABLE_MAX = 8
"""GPUs of a machine for which every subset is looked at."""

GROUP_SIZES = (8, 4, 2)
"""Sizes of sets that are kept whole, the most precious first."""

NUMA_PENALTY = 1e-3
SWITCH_PENALTY = 1e-4
"""How much less a set is worth for each further NUMA node or switch: enough to break ties, no more."""

DIGITS = 6
"""Decimals of GB/s that count; sums of the same numbers in another order differ in later ones."""

Left = tuple[float, ...]
Rank = tuple[float, float, int]
"""What carries between nodes, bandwidth (both negated), NUMA nodes: the least is the best."""


class Choices:
    """The answers for one machine; made by :func:`choices`, shared by all nodes of that kind.

    A mask has bit i for GPU i. All methods are remembered or looked up.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._best: dict[int, int] = {}
        self._left: dict[int, Left] = {}
        self._cuts: dict[tuple[int, int], float] = {}
        self._ordered: dict[tuple[int, bool], list[tuple[Rank, int]]] = {}

    def bus_gb_s(self, mask: int) -> float:
        """Return the bus bandwidth of a set; endless for one GPU."""
        return bus_gb_s(self.machine, mask)

    def worth_gb_s(self, mask: int) -> float:
        """Return what a set is chosen by; endless for one GPU."""
        return worth_gb_s(self.machine, mask)

    def best(self, free: int, count: int) -> int:
        """Return the mask of the best ``count`` GPUs of ``free``, or 0 where there are not so many.

        Cost: 0.2 µs once asked before. The first question of a size looks at all sets of it: up to 80 ms for
        eight GPUs, once for each kind of machine.
        """
        key = free << 8 | count
        found = self._best.get(key)
        if found is None:
            found = self._best[key] = self._choose(free, count)
        return found

    def best_cut(self, free: int, count: int, common: int) -> int:
        """Return the mask of the best ``count`` GPUs of ``free`` for a gang that is on other nodes too, or 0.

        Args:
            free: the GPUs to choose from.
            count: how many.
            common: those that are free on the other nodes as well. Where they carry as much, the GPUs are
                taken from them, so that each node uses the same cards and each card sends to its like.
        """
        if self.machine.cards < 2:
            return self.best(free, count)
        key = free << 8 | count | 1 << 80
        if key not in self._best:
            self._best[key] = self._choose(free, count, cut=True)
        chosen = self._best[key]
        if free & ~common and (free & common).bit_count() >= count:
            alike = self.best_cut(free & common, count, common)
            return alike if self._between(alike) <= self._between(chosen) else chosen
        return chosen

    def lowest(self, free: int, count: int) -> int:
        """Return the ``count`` lowest GPUs of ``free``, as a stock plugin hands them out, or 0."""
        gpus = members(free)[:count]
        return mask_of(gpus) if len(gpus) == count else 0

    def best_of_all(self, count: int) -> list[int]:
        """Return :meth:`best` for every free mask, to be indexed by it: 2^n entries, n at most eight.

        Raises:
            ValueError: the machine has more than :data:`TABLE_MAX` GPUs.
        """
        if self.machine.count > TABLE_MAX:
            raise ValueError(
                f"`{self.machine.model}` has {self.machine.count} GPUs, a table takes {TABLE_MAX}"
            )
        return [self.best(free, count) for free in range(1 << self.machine.count)]

    def left(self, mask: int) -> Left:
        """Return what a free set is worth to later jobs; greater is better.

        One number for each size of :data:`GROUP_SIZES` that the machine has room for: the bus bandwidths
        of the disjoint sets of that size into which the free GPUs can be cut best, added up. Compare
        them for one machine and one number of free GPUs.
        """
        found = self._left.get(mask)
        if found is None:
            found = self._left[mask] = tuple(
                round(self._cut(mask, size), DIGITS) for size in GROUP_SIZES if size <= self.machine.count
            )
        return found

    def _choose(self, free: int, count: int, *, cut: bool = False) -> int:
        available = free.bit_count()
        if count <= 0 or count > available:
            return 0
        if count == available:
            return free
        if self.machine.count > TABLE_MAX:
            return self._choose_many(free, count, cut=cut)
        equals: list[int] = []
        first: Rank | None = None
        for rank, mask in self._in_order(count, cut):
            if mask & ~free:
                continue
            if first is not None and rank > first:
                break
            first = rank
            equals.append(mask)
        most = max(self.left(free & ~mask) for mask in equals)
        kept = [mask for mask in equals if self.left(free & ~mask) == most]
        return min(kept, key=lambda mask: (self._spread(mask)[1], members(mask)))

    def _in_order(self, count: int, cut: bool) -> list[tuple[Rank, int]]:
        """Return all sets of a size with what they are ranked by, the best first."""
        found = self._ordered.get((count, cut))
        if found is None:
            masks = (mask_of(indices) for indices in combinations(range(self.machine.count), count))
            found = self._ordered[count, cut] = sorted((self._rank(mask, cut), mask) for mask in masks)
        return found

    def _rank(self, mask: int, cut: bool) -> Rank:
        between = self._between(mask) if cut else 0.0
        return between, -round(self.worth_gb_s(mask), DIGITS), self._spread(mask)[0]

    def _between(self, mask: int) -> float:
        """Return what a set carries between nodes, GB/s, negated: rings use its chain both ways."""
        network = self.machine.network_of(members(mask)) / BITS_PER_BYTE
        return -round(min(network, 2 * best_chain(self.machine, mask).gb_s), DIGITS)

    def _spread(self, mask: int) -> tuple[int, int]:
        """Return how many NUMA nodes and how many switches a set touches."""
        gpus = members(mask)
        machine = self.machine
        return len({machine.numa[gpu] for gpu in gpus}), len({machine.switches[gpu] for gpu in gpus})

    def _worth(self, mask: int) -> float:
        numa, switches = self._spread(mask)
        return self.worth_gb_s(mask) * (1 - NUMA_PENALTY * (numa - 1) - SWITCH_PENALTY * (switches - 1))

    def _cut(self, mask: int, size: int) -> float:
        """Return the greatest total worth of disjoint sets of a size within a mask."""
        if mask.bit_count() < size:
            return 0.0
        found = self._cuts.get((mask, size))
        if found is None:
            if self.machine.count > TABLE_MAX:
                return self._cut_many(mask, size)
            lowest = mask & -mask
            rest = members(mask ^ lowest)
            found = self._cut(mask ^ lowest, size)
            for others in combinations(rest, size - 1):
                group = lowest | mask_of(others)
                found = max(found, self._worth(group) + self._cut(mask ^ group, size))
            self._cuts[mask, size] = found
        return found

    def _choose_many(self, free: int, count: int, *, cut: bool = False) -> int:
        """Return a good set of a machine with many GPUs: few NUMA nodes, few switches, those used already.

        A gang that is cut gets one of each card first.
        """
        if cut:
            turns: dict[int, int] = {}
            order = []
            for gpu in members(free):
                card = gpu * self.machine.cards // self.machine.count
                order.append((turns.setdefault(card, 0), gpu))
                turns[card] += 1
            return mask_of(gpu for _, gpu in sorted(order)[:count])
        return mask_of(_pick(members(free), count, (self.machine.numa, self.machine.switches)))

    def _cut_many(self, mask: int, size: int) -> float:
        """Return the number of whole sets within a mask, those inside a NUMA node counting fully."""
        gpus = members(mask)
        numa = [sum(self.machine.numa[gpu] == number for gpu in gpus) for number in set(self.machine.numa)]
        inside = sum(count // size for count in numa)
        return inside + (len(gpus) // size - inside) * (1 - NUMA_PENALTY)


def _pick(gpus: tuple[int, ...], count: int, levels: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Return ``count`` of the GPUs: of the smallest group that holds them, else the largest groups first."""
    if not levels:
        return gpus[:count]
    numbers = sorted({levels[0][gpu] for gpu in gpus})
    parts = [tuple(gpu for gpu in gpus if levels[0][gpu] == number) for number in numbers]
    fitting = [part for part in parts if len(part) >= count]
    if fitting:
        return _pick(min(fitting, key=len), count, levels[1:])
    largest = max(parts, key=len)
    rest = tuple(gpu for gpu in gpus if gpu not in largest)
    return largest + _pick(rest, count - len(largest), levels)


@lru_cache(maxsize=MACHINES_MAX)
def choices(machine: Machine) -> Choices:
    """Return the choices of a machine, the same object for equal machines."""
    return Choices(machine)
