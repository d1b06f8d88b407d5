"""Which gangs give way to one of higher priority: only a set whose room, checked with topology, admits it.

Victims are whole gangs of lower priority. A gang of a queue within what it deserves may also take back what
another queue has borrowed; one that borrows takes nothing from those that do not.

Of the sets that are found the one wins whose highest priority is lowest, then the one that loses least work:
device-seconds since the last checkpoint that was told, else since the start. No victim of a set can be
spared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from gangline.clock import parse_time
from gangline.placement.allocations import Allocations
from gangline.placement.amounts import CPU
from gangline.placement.capacity import Spot, capacity
from gangline.placement.fit import place
from gangline.placement.gangs import Gang
from gangline.placement.node_table import Bools, FreeResources, NodeTable
from gangline.placement.policy import Policy
from gangline.placement.quota import borrows, is_over, queue_of
from gangline.placement.reserve import release, retake
from gangline.placement.snapshot import PodView
from gangline.workloads.requests import device_count

DOMAINS_TRIED_MAX = 16
"""Nodes, and domains of each level, in which victims are looked for, those with most free first."""

ALONE_TRIED_MAX = 4
"""Gangs of one domain of which it is tried whether one alone is enough, where several would do."""


_Fits = Callable[[FreeResources, Bools | None], bool]


@dataclass(frozen=True, slots=True)
class _Running:
    key: str
    queue: str
    priority: int
    ran_s: float
    lost: float
    pods: tuple[PodView, ...]

    @property
    def order(self) -> tuple[int, float, str]:
        return self.priority, self.lost, self.key


def find_victims(
    table: NodeTable,
    allocations: Allocations,
    gang: Gang,
    policy: Policy,
    now: datetime,
    is_cut: Callable[[Sequence[Spot]], bool] = lambda spots: False,
) -> list[str]:
    """Return the keys of the gangs that have to end so that this one fits; empty when none would help.

    Nobody ends for a place that the gang would not take now, since ``is_cut`` says that it is cut there.

    Cost: some 20 trials for each domain that is looked at; nothing when no running gang has less priority.
    """
    is_entitled = bool(policy.queues) and not _borrows(queue_of(gang), gang.request, allocations, policy)
    if any(pod.refusal for pod in gang.pods) or not (allocations.has_weaker(gang.priority) or is_entitled):
        return []
    may_take = _permission(gang, allocations, policy)
    weaker = [running for running in _running(allocations, now) if may_take(running)]
    if not weaker:
        return []
    best: tuple[tuple[int, float, int], list[str]] | None = None
    on_node: dict[str, list[_Running]] = {}

    def fits(room: FreeResources, within: Bools | None) -> bool:
        spots = place(table, room, gang, within=within)
        return spots is not None and not is_cut(spots)

    for running in weaker:
        for name in {pod.node_name for pod in running.pods}:
            on_node.setdefault(name, []).append(running)
    for within in _domains(table, gang, weaker):
        there = (on_node.get(table.names[row], ()) for row in np.flatnonzero(within))
        local = {running.key: running for some in there for running in some}.values()
        chosen = _smallest(table, gang, sorted(local, key=lambda running: running.order), within, fits)
        if chosen:
            cost = _cost(chosen)
            if best is None or cost < best[0]:
                best = cost, [running.key for running in chosen]
    return best[1] if best else []


def _cost(chosen: list[_Running]) -> tuple[int, float, int]:
    """Return what a set costs: how important its gangs are, the work that is lost, how many they are."""
    return max(running.priority for running in chosen), sum(running.lost for running in chosen), len(chosen)


def _borrows(name: str, request: Mapping[str, int], allocations: Allocations, policy: Policy) -> bool:
    queue = policy.queues.get(name)
    return queue is not None and borrows(queue, allocations.used_by(name), request)


def _permission(gang: Gang, allocations: Allocations, policy: Policy) -> Callable[[_Running], bool]:
    """Return which running gangs this one may take room from."""
    own = queue_of(gang)
    is_borrowing = _borrows(own, gang.request, allocations, policy)
    borrowers = {name for name, queue in policy.queues.items() if is_over(queue, allocations.used_by(name))}

    def may_take(running: _Running) -> bool:
        is_new = running.ran_s <= 0 < len(running.pods[0].started)
        if running.key == gang.key or is_new:
            return False
        is_lower = running.priority < gang.priority
        if running.queue == own:
            return is_lower
        if running.queue in borrowers:
            return is_lower or (not is_borrowing and policy.queues[running.queue].is_reclaimable)
        return is_lower and not is_borrowing

    return may_take


def _running(allocations: Allocations, now: datetime) -> Iterator[_Running]:
    for key, pods in allocations.by_gang.items():
        members = tuple(pods.values())
        started = min((parse_time(pod.started) for pod in members if pod.started), default=now)
        ran_s = max((now - started).total_seconds(), 0.0)
        saved = max((parse_time(pod.saved) for pod in members if pod.saved), default=started)
        since_s = max((now - max(saved, started)).total_seconds(), 0.0)
        yield _Running(
            key,
            queue=allocations.queue_of(members[0]),
            priority=max(allocations.priority_of(pod) for pod in members),
            ran_s=ran_s,
            lost=since_s * sum(max(device_count(pod.request), 1) for pod in members),
            pods=members,
        )


def _domains(table: NodeTable, gang: Gang, weaker: list[_Running]) -> Iterator[Bools]:
    """Yield sets of nodes that could hold the gang if all weaker gangs ended: single nodes, levels, all."""
    empty = table.room.copy()
    release(table, empty, [pod for running in weaker for pod in running.pods])
    pod = max(gang.pods, key=lambda pod: device_count(pod.request))
    wanted = sum(1 for other in gang.pods if other.shape == pod.shape)
    counts = capacity(table, empty, pod)
    missing = -table.room.free[:, table.column(_scarcest(pod.request))]
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
    if not gang.group.required_level:
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
    table: NodeTable, gang: Gang, candidates: list[_Running], within: Bools, fits: _Fits
) -> list[_Running]:
    """Return candidates that suffice, less those that can be spared; empty if all do not.

    The first that suffice tell how low the highest priority can be. One gang alone, or the largest ones, take
    the place of several where that loses less.
    """
    chosen = _needed(table, candidates, within, fits)
    if len(chosen) <= 1:
        return chosen
    highest = max(running.priority for running in chosen)
    allowed = [running for running in candidates if running.priority <= highest]
    resource = _scarcest(gang.request)
    held = {running.key: _held(table, running, resource, within) for running in allowed}
    missing = gang.request.get(resource, 0) - int(table.room.free[within, table.column(resource)].sum())
    enough = [running for running in allowed if held[running.key] >= max(missing, 1)]
    for running in sorted(enough, key=lambda running: (running.lost, running.key))[:ALONE_TRIED_MAX]:
        if _cost([running]) >= _cost(chosen):
            break
        if fits(_freed(table, [running]), within):
            return [running]
    largest = sorted(allowed, key=lambda running: (-held[running.key], running.lost, running.key))
    fewer = _needed(table, largest, within, fits)
    return min((found for found in (chosen, fewer) if found), key=_cost)


def _needed(table: NodeTable, candidates: list[_Running], within: Bools, fits: _Fits) -> list[_Running]:
    """Return the first candidates that suffice, less those that can be spared; empty if all do not.

    The step doubles until they do: as a rule few of very many are needed.
    """

    def is_enough(count: int) -> bool:
        return fits(_freed(table, candidates[:count]), within)

    low, high = 0, min(1, len(candidates))
    while not is_enough(high):
        if high >= len(candidates):
            return []
        low, high = high + 1, min(2 * high, len(candidates))
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    chosen = []
    room = _freed(table, candidates[:low])
    for running in reversed(candidates[:low]):
        without = room.copy()
        retake(table, without, running.pods)
        if not fits(without, None):  # wherever that may be: it will not be placed here alone
            chosen.append(running)
        else:
            room = without
    return chosen[::-1]


def _freed(table: NodeTable, chosen: list[_Running]) -> FreeResources:
    """Return the room that there is when these gangs have ended."""
    room = table.room.copy()
    release(table, room, [pod for running in chosen for pod in running.pods])
    return room


def _held(table: NodeTable, running: _Running, resource: str, within: Bools) -> int:
    """Return how much a gang holds on these nodes."""
    rows = ((table.index(pod.node_name), pod) for pod in running.pods)
    return sum(pod.request.get(resource, 0) for row, pod in rows if row >= 0 and within[row])
