"""Which running gangs to take room from: only a set whose room, checked with topology, admits another gang.

Of the sets that are found the one wins with the fewest pods beyond PodDisruptionBudgets, then the one whose
highest priority is lowest, then the one that loses least work: device-seconds since the last checkpoint that
was told, else since the start. No gang of a set can be spared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from gangline.clock import parse_time
from gangline.placement.allocations import Allocations
from gangline.placement.amounts import CPU
from gangline.placement.capacity import capacity
from gangline.placement.free_resources import FreeResources
from gangline.placement.gangs import Gang
from gangline.placement.node_table import Bools, NodeTable
from gangline.placement.preemption.disruption import Guarded, violations
from gangline.placement.reserve import release, retake
from gangline.placement.snapshot import PodView
from gangline.workloads.requests import device_count

DOMAINS_TRIED_MAX = 16
"""Nodes, and domains of each level, in which victims are looked for, those with most free first."""

ALONE_TRIED_MAX = 4
"""Gangs of one domain of which it is tried whether one alone is enough, where several would do."""


_Cost = tuple[int, int, float, int]

Fits = Callable[[FreeResources, Bools | None], bool]
"""(room, only on these nodes) -> whether the gang would be placed there now."""


class RunningGang(msgspec.Struct, frozen=True):
    """A gang that holds room.

    Attributes:
        key, queue, priority: of the gang.
        ran_s: since when it runs, in seconds.
        devices: that it holds; 1 where it holds none.
        lost: device-seconds that its end would lose.
        pods: all of them.
        guarded: the budgets that their end would use.
    """

    key: str
    queue: str
    priority: int
    ran_s: float
    devices: int
    lost: float
    pods: tuple[PodView, ...]
    guarded: Guarded = ()

    @property
    def order(self) -> tuple[int, float, str]:
        """The least important first, then those that lose least."""
        return self.priority, self.lost, self.key


def running_gang(key: str, pods: Sequence[PodView], allocations: Allocations, now: datetime) -> RunningGang:
    """Return what is known of a gang that holds room."""
    started = min((parse_time(pod.started) for pod in pods if pod.started), default=now)
    saved = max((parse_time(pod.saved) for pod in pods if pod.saved), default=started)
    devices = sum(max(device_count(pod.request), 1) for pod in pods)
    return RunningGang(
        key,
        queue=allocations.queue_of(pods[0]),
        priority=max(allocations.priority_of(pod) for pod in pods),
        ran_s=max((now - started).total_seconds(), 0.0),
        devices=devices,
        lost=max((now - max(saved, started)).total_seconds(), 0.0) * devices,
        pods=tuple(pods),
        guarded=allocations.guarded(pods),
    )


def search(
    table: NodeTable, room: FreeResources, gang: Gang, candidates: Sequence[RunningGang], fits: Fits
) -> list[RunningGang]:
    """Return the candidates that should go so that a gang fits; none when all would not be enough.

    Args:
        table: the nodes.
        room: what is free before any goes.
        gang: that waits.
        candidates: who may be taken room from.
        fits: whether the gang would take a place.

    Cost: some 20 trials for each domain that is looked at.
    """
    best: tuple[_Cost, list[RunningGang]] | None = None
    on_node: dict[str, list[RunningGang]] = {}
    for running in candidates:
        for name in {pod.node_name for pod in running.pods}:
            on_node.setdefault(name, []).append(running)
    for within in _domains(table, room, gang, candidates):
        there = (on_node.get(table.names[row], ()) for row in np.flatnonzero(within))
        local = {running.key: running for some in there for running in some}.values()
        ordered = _in_turn(local, key=lambda running: running.order)
        chosen = _smallest(table, room, gang, ordered, within, fits)
        if chosen:
            cost = _cost(chosen)
            if best is None or cost < best[0]:
                best = cost, chosen
    return best[1] if best else []


def _in_turn(candidates: Iterable[RunningGang], key: Callable[[RunningGang], Any]) -> list[RunningGang]:
    """Return candidates in an order, those last whose end would break a budget after those before."""
    ordered = sorted(candidates, key=key)
    beyond = violations(running.guarded for running in ordered)
    return [ordered[index] for index in sorted(range(len(ordered)), key=lambda index: (beyond[index], index))]


def _cost(chosen: list[RunningGang]) -> _Cost:
    """Return what a set costs: pods beyond their budgets, how important its gangs are, the work that is lost,
    how many they are.
    """
    beyond = sum(violations(running.guarded for running in chosen))
    highest, lost = max(running.priority for running in chosen), sum(running.lost for running in chosen)
    return beyond, highest, lost, len(chosen)


def _domains(
    table: NodeTable, room: FreeResources, gang: Gang, weaker: Sequence[RunningGang]
) -> Iterator[Bools]:
    """Yield sets of nodes that could hold the gang if all weaker gangs ended: single nodes, levels, all."""
    empty = room.copy()
    release(table, empty, [pod for running in weaker for pod in running.pods])
    pod = max(gang.pods, key=lambda pod: device_count(pod.request))
    wanted = sum(1 for other in gang.pods if other.shape == pod.shape)
    counts = capacity(table, empty, pod)
    missing = -room.free[:, table.column(_scarcest(pod.request))]
    rows = np.flatnonzero(counts >= wanted)
    for row in rows[np.lexsort((rows, missing[rows]))][:DOMAINS_TRIED_MAX]:
        yield _only(table, np.array([row]))
    widest = max(table.level(gang.group.required_level), 0)
    for level in range(len(table.levels) - 1, widest - 1, -1):
        domains = table.domains[level]
        inside = domains >= 0
        totals = np.bincount(domains[inside], weights=counts[inside])
        needs = np.bincount(domains[inside], weights=missing[inside])
        fitting = np.flatnonzero(totals >= wanted)
        for domain in fitting[np.lexsort((fitting, needs[fitting]))][:DOMAINS_TRIED_MAX]:
            yield domains == domain
    if table.level(gang.group.required_level) < 0:
        yield np.ones(len(table), np.bool_)


def _scarcest(request: Mapping[str, int]) -> str:
    """Return the resource that is counted: the device of which most are asked for, else cpu."""
    devices = {name: amount for name, amount in request.items() if device_count({name: amount})}
    return max(devices, key=lambda name: (devices[name], name), default=CPU)


def _only(table: NodeTable, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Bools:
    mask = np.zeros(len(table), np.bool_)
    mask[rows] = True
    return mask


def _smallest(
    table: NodeTable,
    room: FreeResources,
    gang: Gang,
    candidates: list[RunningGang],
    within: Bools,
    fits: Fits,
) -> list[RunningGang]:
    """Return candidates that suffice, less those that can be spared; empty if all do not.

    The first that suffice tell how low the highest priority can be. One gang alone, or the largest ones, take
    the place of several where that loses less.
    """
    chosen = _needed(table, room, candidates, within, fits)
    if len(chosen) <= 1:
        return chosen
    highest = max(running.priority for running in chosen)
    allowed = [running for running in candidates if running.priority <= highest]
    resource = _scarcest(gang.request)
    held = {running.key: _held(table, running, resource, within) for running in allowed}
    missing = gang.request.get(resource, 0) - int(room.free[within, table.column(resource)].sum())
    enough = [running for running in allowed if held[running.key] >= max(missing, 1)]
    for running in sorted(enough, key=lambda running: (running.lost, running.key))[:ALONE_TRIED_MAX]:
        if _cost([running]) >= _cost(chosen):
            break
        if fits(_freed(table, room, [running]), within):
            return [running]
    largest = _in_turn(allowed, key=lambda running: (-held[running.key], running.lost, running.key))
    fewer = _needed(table, room, largest, within, fits)
    return min((found for found in (chosen, fewer) if found), key=_cost)


def _needed(
    table: NodeTable, room: FreeResources, candidates: list[RunningGang], within: Bools, fits: Fits
) -> list[RunningGang]:
    """Return the first candidates that suffice, less those that can be spared; empty if all do not.

    The step doubles until they do: as a rule few of very many are needed.
    """

    def is_enough(count: int) -> bool:
        return fits(_freed(table, room, candidates[:count]), within)

    low, high = 0, min(1, len(candidates))
    while not is_enough(high):
        if high >= len(candidates):
            return []
        low, high = high + 1, min(2 * high, len(candidates))
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    chosen = []
    freed = _freed(table, room, candidates[:low])
    for running in reversed(candidates[:low]):
        without = freed.copy()
        retake(table, without, running.pods)
        if not fits(without, None):  # wherever that may be: it will not be placed here alone
            chosen.append(running)
        else:
            freed = without
    return chosen[::-1]


def _freed(table: NodeTable, room: FreeResources, chosen: list[RunningGang]) -> FreeResources:
    """Return the room that there is when these gangs have ended."""
    freed = room.copy()
    release(table, freed, [pod for running in chosen for pod in running.pods])
    return freed


def _held(table: NodeTable, running: RunningGang, resource: str, within: Bools) -> int:
    """Return how much a gang holds on these nodes."""
    rows = ((table.index(pod.node_name), pod) for pod in running.pods)
    return sum(pod.request.get(resource, 0) for row, pod in rows if row >= 0 and within[row])
