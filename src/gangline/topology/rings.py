"""The best rings and the best chain through a set of GPUs of one machine.

Up to :data:`EXACT_MAX` GPUs the answer is exact: of all rings made of NVLink alone the largest number that
fit together is used, as NCCL does; where there is none, the one ring whose scarcest wire carries most. (The
search is bounded, far above what known machines need.) Behind an NVSwitch all sets of one size are equal.
Beyond, a ring in the order of NUMA nodes, switches and indices is taken: the best one without NVLinks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from math import inf
from statistics import fmean

from gangline.topology.link_resources import (
    MACHINES_MAX,
    LinkResources,
    hops_of,
    link_resources,
    members,
)
from gangline.topology.machine import Machine
from gangline.topology.order_search import best_order
from gangline.topology.rates import TREE_EFFICIENCY

EXACT_MAX = 8
PACK_STEPS_MAX = 20_000
"""Trials for one set of GPUs; for all known machines 50 give the same answers."""

CHAIN_WORTH = 1e-3
"""What a GB/s counts that a chain carries beyond the rings of its set; no two rates of rings lie so close."""

SETS_MAX = 1 << 16
"""Answers that are remembered, over all machines."""


@dataclass(frozen=True, slots=True)
class Rings:
    """How an all-reduce runs through a set of GPUs.

    Attributes:
        gb_s: what all rings move together, one way at every GPU: the *bus bandwidth* of a large all-reduce.
        orders: the GPUs in the order of each ring; each is used in both directions.
        bottleneck: the scarcest wire, for people.
        nvlink: the rings are made of NVLink alone.
    """

    gb_s: float
    orders: tuple[tuple[int, ...], ...]
    bottleneck: str
    nvlink: bool


@dataclass(frozen=True, slots=True)
class DeviceChain:
    """An open chain through a set of GPUs: a tree all-reduce inside a node, or one node's part of a ring.

    Attributes:
        gb_s: what passes through it, up and down at once, each.
        order: the GPUs in the order of the chain.
        bottleneck: the scarcest wire, for people.
    """

    gb_s: float
    order: tuple[int, ...]
    bottleneck: str


@lru_cache(maxsize=SETS_MAX)
def best_rings(machine: Machine, mask: int) -> Rings:
    """Return the best rings through a set of GPUs; a single GPU has an endless one.

    Cost: at most 5 ms for eight GPUs, remembered afterwards.
    """
    gpus = members(mask)
    if len(gpus) < 2:
        return Rings(inf, (gpus,), "none", True)
    if machine.measured:
        found = best_rings(machine.unmeasured, mask)
        return replace(found, gb_s=found.gb_s * measured_share(machine, mask))
    if machine.nvswitch_links or len(gpus) == 2:
        return _alike(machine, gpus)
    nvlink = _nvlink_rings(machine, gpus) if len(gpus) <= EXACT_MAX else None
    return nvlink or _one_ring(machine, link_resources(machine), _order(machine, gpus, closed=True))


@lru_cache(maxsize=SETS_MAX)
def best_chain(machine: Machine, mask: int) -> DeviceChain:
    """Return the best chain through a set of GPUs; that of a single GPU is endless."""
    gpus = members(mask)
    if len(gpus) < 2:
        return DeviceChain(inf, gpus, "none")
    if machine.measured:
        chain = best_chain(machine.unmeasured, mask)
        return replace(chain, gb_s=chain.gb_s * measured_share(machine, mask))
    if machine.nvswitch_links or len(gpus) == 2:
        rings = _alike(machine, gpus)
        flows = 2 if len(gpus) > 2 else 1  # a GPU inside the chain sends both ways at once
        return DeviceChain(rings.gb_s / flows, gpus, rings.bottleneck)
    found = link_resources(machine)
    order = _order(machine, gpus, closed=False)
    rate, resource = found.scarcest(order, closed=False)
    return DeviceChain(rate, order, found.names[resource])


def bus_gb_s(machine: Machine, mask: int) -> float:
    """Return the bus bandwidth of a large all-reduce by rings or by a chain, whichever is faster.

    A chain moves every byte once up and once down, a ring 2(n-1)/n times its bytes past each GPU; in these
    terms a chain of c GB/s is worth 2(n-1)/n x c. Source: nccl-tests, PERFORMANCE.md.
    """
    count = mask.bit_count()
    if count < 2:
        return inf
    return max(best_rings(machine, mask).gb_s, _chain_bus_gb_s(machine, mask))


def in_switch_gb_s(machine: Machine, mask: int) -> float:
    """Return the bytes of a tensor that the NVSwitch adds up in a second, GB/s; 0 where it cannot.

    Every GPU sends (1 + 1/n) of them.
    """
    count = mask.bit_count()
    if count < 2:
        return 0.0
    rate = machine.nvswitch_links * machine.gpu.nvlink_gb_s * machine.gpu.in_switch
    return rate / (1 + 1 / count) * measured_share(machine, mask)


def kind_of_set(machine: Machine, mask: int) -> tuple[float, ...]:
    """Return what the model tells sets of GPUs apart by: size, bandwidth, NUMA nodes and PCIe switches."""
    gpus = members(mask)
    places = len({machine.numa[gpu] for gpu in gpus}), len({machine.switches[gpu] for gpu in gpus})
    return len(gpus), round(worth_gb_s(machine, mask), 3), *places


@lru_cache(maxsize=SETS_MAX)
def measured_share(machine: Machine, mask: int) -> float:
    """Return what part of its predicted bandwidth a set was measured to have; 1 without measures.

    A set that was not measured is taken as those of its kind, else as those of its size, else as all are
    on average.
    """
    if not machine.measured or mask.bit_count() < 2:
        return 1.0
    own, kinds, sizes, mean = _measured_shares(machine)
    plain = machine.unmeasured
    return own.get(mask) or kinds.get(kind_of_set(plain, mask)) or sizes.get(mask.bit_count()) or mean


@lru_cache(maxsize=MACHINES_MAX)
def _measured_shares(
    machine: Machine,
) -> tuple[dict[int, float], dict[tuple[float, ...], float], dict[int, float], float]:
    """Return the shares by set, by kind, by size, and their mean."""
    plain = machine.unmeasured
    own = {mask: rate / _large_bus_gb_s(plain, mask) for mask, rate in machine.measured}
    kinds: dict[tuple[float, ...], list[float]] = {}
    sizes: dict[int, list[float]] = {}
    for mask, share in own.items():
        kinds.setdefault(kind_of_set(plain, mask), []).append(share)
        sizes.setdefault(mask.bit_count(), []).append(share)
    return (
        own,
        {kind: fmean(shares) for kind, shares in kinds.items()},
        {size: fmean(shares) for size, shares in sizes.items()},
        fmean(own.values()),
    )


def _large_bus_gb_s(machine: Machine, mask: int) -> float:
    count = mask.bit_count()
    return max(bus_gb_s(machine, mask), 2 * (count - 1) / count * in_switch_gb_s(machine, mask))


def worth_gb_s(machine: Machine, mask: int) -> float:
    """Return what a set of GPUs is chosen by: the bandwidth of its rings, then of its chain.

    Rings come first because reduce-scatter and all-gather (FSDP, ZeRO) have no tree.
    """
    rings = best_rings(machine, mask).gb_s
    return rings if rings == inf else rings + CHAIN_WORTH * max(_chain_bus_gb_s(machine, mask) - rings, 0)


def pair_matrix(machine: Machine) -> list[list[float]]:
    """Return what each two GPUs move to one another, GB/s one way; 0 on the diagonal."""
    every = range(machine.count)
    return [[0.0 if a == b else best_rings(machine, 1 << a | 1 << b).gb_s for b in every] for a in every]


def rank_order(machine: Machine, mask: int) -> tuple[int, ...]:
    """Return the GPUs of a set in the order of its rings or its chain, whichever is faster.

    Ranks that follow this order have their neighbours at the other end of the fastest links.
    """
    rings = best_rings(machine, mask)
    if mask.bit_count() > 2 and _chain_bus_gb_s(machine, mask) > rings.gb_s:
        return best_chain(machine, mask).order
    return rings.orders[0]


def _chain_bus_gb_s(machine: Machine, mask: int) -> float:
    count = mask.bit_count()
    return 2 * (count - 1) / count * TREE_EFFICIENCY * best_chain(machine, mask).gb_s


def _alike(machine: Machine, gpus: tuple[int, ...]) -> Rings:
    """Return the rings where nothing is to be chosen: two GPUs, or any set behind an NVSwitch."""
    if machine.nvswitch_links:
        rate = machine.nvswitch_links * machine.gpu.nvlink_gb_s
        return Rings(rate, (gpus,), f"{machine.nvswitch_links} x {machine.gpu.link} into the NVSwitch", True)
    found = link_resources(machine)
    rate, resource = found.scarcest(gpus, closed=False)
    return Rings(rate, (gpus,), found.names[resource], bool(machine.widths[gpus[0]][gpus[1]]))


def _one_ring(machine: Machine, found: LinkResources, order: tuple[int, ...]) -> Rings:
    rate, resource = found.scarcest(order, closed=True)
    nvlink = all(machine.widths[a][b] for a, b in hops_of(order, closed=True))
    return Rings(2 * rate, (order,), found.names[resource], nvlink)


def _order(machine: Machine, gpus: tuple[int, ...], *, closed: bool) -> tuple[int, ...]:
    first = tuple(sorted(gpus, key=lambda gpu: (machine.numa[gpu], machine.switches[gpu], gpu)))
    if len(gpus) > EXACT_MAX:
        return first
    return best_order(machine, link_resources(machine), gpus, closed=closed, first=first)


def _nvlink_rings(machine: Machine, gpus: tuple[int, ...]) -> Rings | None:
    """Return the largest number of rings of NVLink alone that fit together, or ``None`` if there is none.

    A ring takes one NVLink of every pair that it passes.
    """
    widths = machine.widths
    cycles = list(_cycles(gpus, lambda a, b: widths[a][b] > 0))
    if not cycles:
        return None
    left = {(a, b): widths[a][b] for a, b in combinations(gpus, 2)}
    bound = min(sum(widths[gpu][other] for other in gpus) // 2 for gpu in gpus)
    chosen = _pack([_pairs(cycle) for cycle in cycles], left, bound)
    total = 2 * len(chosen) * machine.gpu.nvlink_gb_s
    orders = tuple(cycles[index] for index in chosen)
    narrow = min(hops_of(orders[0], closed=True), key=lambda hop: (widths[hop[0]][hop[1]], hop))
    low, high = sorted(narrow)
    return Rings(total, orders, f"{widths[low][high]} x {machine.gpu.link} {low}-{high}", True)


def _pairs(cycle: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple((min(hop), max(hop)) for hop in hops_of(cycle, closed=True))


def _pack(
    cycles: list[tuple[tuple[int, int], ...]], left: dict[tuple[int, int], int], bound: int
) -> list[int]:
    """Return indices of a largest multiset of cycles within the links that are left. Branch and bound.

    After :data:`PACK_STEPS_MAX` trials the largest found so far is the answer: a mesh that no machine has
    must not hold up a scheduler.
    """
    best: list[int] = []
    chosen: list[int] = []
    steps = 0

    def extend(start: int) -> None:
        nonlocal best, steps
        if len(chosen) > len(best):
            best = list(chosen)
        for index in range(start, len(cycles)):
            if len(best) == bound or steps > PACK_STEPS_MAX:
                return
            steps += 1
            if all(left[pair] for pair in cycles[index]):
                for pair in cycles[index]:
                    left[pair] -= 1
                chosen.append(index)
                extend(index)
                chosen.pop()
                for pair in cycles[index]:
                    left[pair] += 1

    extend(0)
    return best


def _cycles(gpus: tuple[int, ...], linked: Callable[[int, int], bool]) -> Iterator[tuple[int, ...]]:
    """Return every ring through all of the GPUs over linked pairs, once (not also backwards)."""

    def extend(path: list[int], rest: frozenset[int]) -> Iterator[tuple[int, ...]]:
        if not rest:
            if linked(path[-1], path[0]) and path[1] < path[-1]:
                yield tuple(path)
            return
        for gpu in sorted(rest):
            if linked(path[-1], gpu):
                yield from extend([*path, gpu], rest - {gpu})

    return extend([gpus[0]], frozenset(gpus[1:]))
