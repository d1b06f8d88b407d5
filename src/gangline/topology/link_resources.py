"""Which wires the hops of a ring share, and what they carry: the resources of one machine.

A hop between two GPUs with NVLinks uses these alone. Any other hop uses the PCIe slot of both GPUs, the way
to the CPU of both PCIe switches where they differ, and the link between two NUMA nodes where they differ. All
are full duplex. A ring is used in both directions at once, so that the load of a resource is the number of
the ring's hops over it, and the ring moves twice what the scarcest resource has for one hop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise

from gangline.topology.machine import Machine
from gangline.topology.rates import PCIE_GB_S

TOLERANCE = 1e-9
MACHINES_MAX = 256

Hop = tuple[tuple[int, float], ...]
"""What one hop loads: (resource, load) pairs; the load is above 1 where the way costs more than its bytes."""


def members(mask: int) -> tuple[int, ...]:
    """Return the indices of the GPUs in a mask, ascending."""
    return tuple(index for index in range(mask.bit_length()) if mask >> index & 1)


def mask_of(indices: Iterable[int]) -> int:
    """Return the mask of some indices."""
    return sum(1 << index for index in indices)


@dataclass(frozen=True, slots=True)
class LinkResources:
    """The resources of a machine, numbered.

    Attributes:
        names: what each is, for people.
        rates: GB/s, one way.
        hops: for each ordered pair of GPUs what a hop between them loads.
    """

    names: tuple[str, ...]
    rates: tuple[float, ...]
    hops: tuple[tuple[Hop, ...], ...]

    def load(self, ring: Sequence[int], *, closed: bool) -> dict[int, float]:
        """Return the load of every resource under a ring, or under an open chain."""
        loads: dict[int, float] = {}
        for first, second in hops_of(ring, closed=closed):
            for resource, load in self.hops[first][second]:
                loads[resource] = loads.get(resource, 0.0) + load
        return loads

    def scarcest(self, ring: Sequence[int], *, closed: bool) -> tuple[float, int]:
        """Return what the scarcest resource has for one hop, in GB/s one way, and which it is."""
        loads = self.load(ring, closed=closed)
        return min((self.rates[resource] / load, resource) for resource, load in loads.items())


def hops_of(ring: Sequence[int], *, closed: bool) -> Iterator[tuple[int, int]]:
    """Return the pairs that follow each other; a closed ring also goes back to its start."""
    yield from pairwise(ring)
    if closed:
        yield ring[-1], ring[0]


@lru_cache(maxsize=MACHINES_MAX)
def link_resources(machine: Machine) -> LinkResources:
    """Return the resources of a machine."""
    names: list[str] = []
    rates: list[float] = []
    numbers: dict[str, int] = {}

    def resource(name: str, rate: float) -> int:
        if name not in numbers:
            numbers[name] = len(names)
            names.append(name)
            rates.append(rate)
        return numbers[name]

    slot_rate = PCIE_GB_S[machine.gpu.pcie]
    hops: dict[tuple[int, int], Hop] = {}
    for first, second in combinations(range(machine.count), 2):
        if width := machine.widths[first][second]:
            rate = width * machine.gpu.nvlink_gb_s
            hops[first, second] = ((resource(f"{width} x {machine.gpu.link} {first}-{second}", rate), 1.0),)
            continue
        ends = [resource(f"PCIe slot of GPU {index}", slot_rate) for index in (first, second)]
        load = 1.0
        if machine.switches[first] != machine.switches[second]:
            load = machine.host.p2p_overhead
            ends += [
                resource(f"PCIe switch {machine.switches[index]} to the CPU", slot_rate)
                for index in (first, second)
            ]
        if machine.numa[first] != machine.numa[second]:
            low, high = sorted((machine.numa[first], machine.numa[second]))
            ends.append(resource(f"CPU link between NUMA {low} and {high}", machine.host.socket_gb_s))
        hops[first, second] = tuple((end, load) for end in ends)
    return LinkResources(
        names=tuple(names),
        rates=tuple(rates),
        hops=tuple(
            tuple(hops.get((min(a, b), max(a, b)), ()) for b in range(machine.count))
            for a in range(machine.count)
        ),
    )
