"""Search for the order of GPUs whose scarcest wire carries most, by branch and bound."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from gangline.topology.link_resources import TOLERANCE, LinkResources
from gangline.topology.machine import Machine

STEPS_MAX = 50_000
"""Places tried for one set of GPUs, after which the best order so far is the answer; for all known machines
50 give the same answers."""


def best_order(
    machine: Machine, found: LinkResources, gpus: tuple[int, ...], *, closed: bool, first: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the order in which a ring (closed) or a chain (open) through three or more GPUs is fastest.

    Args:
        machine: whose GPUs these are.
        found: its wires.
        gpus: at most eight of them.
        closed: a ring comes back to its start.
        first: an order to start from; it is the answer where none is better.
    """
    bound = _bound(machine, found, gpus, needed=2 if closed else 1)
    best, best_rate = first, found.scarcest(first, closed=closed)[0]
    loads = [0.0] * len(found.rates)
    path: list[int] = []
    steps = 0

    def place(gpu: int, rest: frozenset[int], rate: float) -> None:
        nonlocal best, best_rate, steps
        steps += 1
        path.append(gpu)
        if rest:
            for following in sorted(rest):
                new_rate = _add(found, loads, gpu, following, rate)
                promising = new_rate > best_rate + TOLERANCE and best_rate < bound - TOLERANCE
                if promising and steps < STEPS_MAX:
                    place(following, rest - {following}, new_rate)
                _take(found, loads, gpu, following)
        else:
            last_rate = _add(found, loads, gpu, path[0], rate) if closed else rate
            if last_rate > best_rate + TOLERANCE:
                best, best_rate = tuple(path), last_rate
            if closed:
                _take(found, loads, gpu, path[0])
        path.pop()

    everyone = frozenset(gpus)
    for start in gpus[:1] if closed else gpus:
        place(start, everyone - {start}, float("inf"))
    return best


def _add(found: LinkResources, loads: list[float], first: int, second: int, rate: float) -> float:
    """Load one more hop and return what the scarcest wire has now."""
    for resource, load in found.hops[first][second]:
        loads[resource] += load
        rate = min(rate, found.rates[resource] / loads[resource])
    return rate


def _take(found: LinkResources, loads: list[float], first: int, second: int) -> None:
    for resource, load in found.hops[first][second]:
        loads[resource] -= load


def _bound(machine: Machine, found: LinkResources, gpus: tuple[int, ...], *, needed: int) -> float:
    """Return a rate that no order can exceed.

    A ring leaves and enters every part of the set: each GPU, the GPUs of a switch, of a NUMA node. Its two
    cheapest ways out load some wire at least so much; a chain needs only one way.
    """
    parts = [{gpu} for gpu in gpus]
    parts += _groups(gpus, machine.switches) + _groups(gpus, machine.numa)
    bound = float("inf")
    for part in parts:
        outside = [gpu for gpu in gpus if gpu not in part]
        ways = [found.hops[a][b] for a, b in product(part, outside)]
        loads: dict[int, list[float]] = {}
        for way in ways:
            for resource, load in way:
                loads.setdefault(resource, []).append(load)
        for resource, some in loads.items():
            free = len(ways) - len(some)  # ways out that do not use this wire
            if free < needed:
                bound = min(bound, found.rates[resource] / sum(sorted(some)[: needed - free]))
    return bound


def _groups(gpus: tuple[int, ...], numbers: Iterable[int]) -> list[set[int]]:
    """Return the parts of the set that share a number, unless that is all of it."""
    by_gpu = dict(enumerate(numbers))
    groups = [{gpu for gpu in gpus if by_gpu[gpu] == number} for number in {by_gpu[gpu] for gpu in gpus}]
    return groups if len(groups) > 1 else []
