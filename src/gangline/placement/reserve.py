"""Keep room for the first gang that waits, so that later ones cannot starve it.

When the running gangs have known limits, the moment is computed at which it will fit, and others may run
before that if they end in time, or beside it on what it leaves. When nobody knows, room is kept only once the
gang is overdue: the nodes that are nearest to being free take no more work until it fits.
Source of the idea: backfill around a reservation for the first job (EASY, Lifka 1995).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from gangline.clock import parse_time
from gangline.placement.allocations import Allocations
from gangline.placement.capacity import Spot, capacity, take
from gangline.placement.fit import fewest
from gangline.placement.free_resources import EVERYBODY, FreeResources
from gangline.placement.gangs import Gang
from gangline.placement.groups.domains import domains_of
from gangline.placement.node_table import Bools, NodeTable
from gangline.placement.place import place
from gangline.placement.snapshot import PodView
from gangline.workloads.requests import GPU


@dataclass(slots=True)
class Reservation:
    """Room that is kept for a gang.

    Attributes:
        gang: its key.
        at: when it will fit; None when nobody knows.
        spare: what others may use meanwhile, however long they run.
        nodes: names of the nodes on which it is kept.
    """

    gang: str
    at: datetime | None
    spare: FreeResources
    nodes: tuple[str, ...]

    def ends_before(self, gang: Gang, now: datetime) -> bool:
        """Return whether a gang that starts now is over when the room is needed."""
        limits = [gang.group.limit_s, *(pod.limit_s for pod in gang.pods if gang.group.limit_s is None)]
        known = [limit for limit in limits if limit is not None]
        if self.at is None or not known:
            return False
        return now + timedelta(seconds=max(known)) <= self.at


def reserve(
    table: NodeTable, allocations: Allocations, gang: Gang, now: datetime, *, victims: set[str], is_due: bool
) -> Reservation | None:
    """Return room kept for a gang that does not fit now, or None when it never will or nobody knows when.

    Args:
        table: the nodes and what is left on them.
        allocations: the pods that hold room.
        gang: the first that waits.
        now: the time.
        victims: pods that are on their way out; their room is as good as free.
        is_due: keep room even when no moment is known.
    """
    ending = [(now, pod) for uid in victims if (pod := allocations.get(uid)) is not None]
    ending += [
        (moment, pod)
        for uid, pod in allocations.limited.items()
        if uid not in victims and (moment := end_of(pod, allocations)) is not None
    ]
    ending.sort(key=lambda entry: (entry[0], entry[1].key))
    found = _first_fit(table, gang, _Ends(table, [pod for _, pod in ending])) if ending else None
    if found is not None:
        count, later, spots = found
        return _keep(table, gang, later, spots, ending[count - 1][0] if count else now)
    if not is_due:
        return None
    later = table.idle().copy()
    within = _nearest(table, gang, later)
    if within is None:
        return None
    nearest = place(table, later, gang, within=within) or place(table, later, gang)
    return _keep(table, gang, later, nearest, None) if nearest is not None else None


class _Ends:
    """Pods that end one after another, as arrays: what each gives back. Cost: 5 µs a pod."""

    def __init__(self, table: NodeTable, pods: list[PodView]) -> None:
        self._table = table
        self._pods = pods
        amounts: dict[bytes | str, tuple[tuple[int, int], ...]] = {}  # by shape: equal ones ask for the same
        for pod in pods:
            if (pod.shape or pod.key) not in amounts:
                amounts[pod.shape or pod.key] = table.amounts(pod)
        vectors = np.zeros((len(amounts), len(table.columns)), np.int64)
        number = {shape: index for index, shape in enumerate(amounts)}
        for shape, entries in amounts.items():
            for column, amount in entries:
                vectors[number[shape], column] = amount
        self._rows = np.array([table.index(pod.node_name) for pod in pods], np.int64)
        self._amounts = vectors[[number[pod.shape or pod.key] for pod in pods]]
        self._with_more = [
            index
            for index, pod in enumerate(pods)
            if (pod.host_ports or pod.devices) and self._rows[index] >= 0
        ]
        self._gpus = np.array(
            [self._gpus_of(*entry) for entry in zip(pods, self._rows.tolist(), strict=True)], np.int64
        )

    def __len__(self) -> int:
        return len(self._pods)

    def _gpus_of(self, pod: PodView, row: int) -> int:
        gpus = self._table.views[row].gpus if row >= 0 else None
        return self._table.gpus_of(pod, row) & gpus.healthy if gpus is not None else 0

    def room_after(self, count: int, *, is_counted: bool = False) -> FreeResources:
        """Return the room once so many have ended; to count pods in, it need not say which ones are gone."""
        room = self._table.room.copy()
        room.widen(len(self._table.columns))
        if not is_counted and room.gone is not EVERYBODY:
            room.gone |= {pod.uid for pod in self._pods[:count]}
        known = self._rows[:count] >= 0  # nodes that are there
        rows = self._rows[:count][known]
        np.add.at(room.free, rows, self._amounts[:count][known])
        np.bitwise_or.at(room.gpus, rows, self._gpus[:count][known])
        for index in self._with_more[: bisect_left(self._with_more, count)]:
            row, pod = int(self._rows[index]), self._pods[index]
            room.ports[row] = room.ports.get(row, frozenset()) - pod.host_ports
            room.give_back(row, pod.devices)
        return room


def _first_fit(table: NodeTable, gang: Gang, ends: _Ends) -> tuple[int, FreeResources, list[Spot]] | None:
    """Return after how many ends a gang fits first, the room then, and its spots there; None for never.

    Counting where its largest pods would fit is cheap, and it fits nowhere before the count suffices: so that
    moment is looked for first, and mostly it is the answer.
    """
    pod = max(gang.pods, key=lambda pod: (pod.request.get(GPU, 0), pod.key))
    wanted = sum(1 for other in gang.pods if other.shape == pod.shape) if pod.shape else 1

    def counts_suffice(count: int) -> bool:
        return int(capacity(table, ends.room_after(count, is_counted=True), pod).sum()) >= wanted

    def spots_after(count: int) -> tuple[int, FreeResources, list[Spot]] | None:
        room = ends.room_after(count)
        spots = place(table, room, gang)
        return (count, room, spots) if spots is not None else None

    if not counts_suffice(len(ends)):
        return None
    first = bisect_left(range(len(ends)), True, key=counts_suffice)
    found = spots_after(first)
    if found is not None or first == len(ends):
        return found
    best = spots_after(len(ends))
    low, high = first + 1, len(ends)
    while best is not None and low < high:
        middle = (low + high) // 2
        found = spots_after(middle)
        if found is not None:
            best, high = found, middle
        else:
            low = middle + 1
    return best


def release(table: NodeTable, room: FreeResources, pods: Sequence[PodView]) -> None:
    """Give back, in a room of trial, what these pods hold."""
    if room.gone is not EVERYBODY:
        room.gone |= {pod.uid for pod in pods}
    amounts: dict[bytes | str, tuple[tuple[int, int], ...]] = {}  # by shape: equal ones ask for the same
    for pod in pods:
        row = table.index(pod.node_name)
        if row < 0:
            continue
        shape = pod.shape or pod.key
        if shape not in amounts:
            amounts[shape] = table.amounts(pod)
        for column, amount in amounts[shape]:
            room.free[row, column] += amount
        gpus = table.views[row].gpus
        if gpus is not None:
            room.gpus[row] |= table.gpus_of(pod, row) & gpus.healthy
        if pod.host_ports:
            room.ports[row] = room.ports.get(row, frozenset()) - pod.host_ports
        if pod.devices:
            room.give_back(row, pod.devices)


def retake(table: NodeTable, room: FreeResources, pods: Sequence[PodView]) -> None:
    """Take again, in a room of trial, what :func:`release` gave back of these pods."""
    room.gone -= {pod.uid for pod in pods}
    for pod in pods:
        row = table.index(pod.node_name)
        if row < 0:
            continue
        for column, amount in table.amounts(pod):
            room.free[row, column] -= amount
        room.gpus[row] &= ~table.gpus_of(pod, row)
        if pod.host_ports:
            room.ports[row] = room.ports.get(row, frozenset()) | pod.host_ports
        if pod.devices:
            room.take_again(row, pod.devices)


def end_of(pod: PodView, allocations: Allocations) -> datetime | None:
    """Return when a running pod is ended at the latest, or None when nobody knows."""
    limit = allocations.limit_of(pod)
    if limit is None or not pod.started:
        return None
    return parse_time(pod.started) + timedelta(seconds=limit)


def _nearest(table: NodeTable, gang: Gang, later: FreeResources) -> Bools | None:
    """Return the nodes that are nearest to holding the gang: those with most free now, of one domain."""
    pod = max(gang.pods, key=lambda pod: pod.request.get(GPU, 0))
    alike = [other for other in gang.pods if other.shape == pod.shape]
    counts = capacity(table, later, pod)
    label = gang.group.required_level
    domains = domains_of(table, label)[0] if label else np.zeros(len(table), np.int64)
    column = table.column(GPU if pod.request.get(GPU) else "cpu")
    best: tuple[int, Bools] | None = None
    for domain in np.unique(domains[domains >= 0]):
        rows = np.flatnonzero((domains == domain) & (counts > 0))
        if int(counts[rows].sum()) < len(alike):
            continue
        rows = rows[np.lexsort((rows, -table.room.free[rows, column]))]
        shares = fewest(counts[rows], len(alike)) if int(counts[rows[0]]) < len(alike) else {0: len(alike)}
        chosen = np.zeros(len(table), np.bool_)
        chosen[rows[list(shares)]] = True
        free = int(table.room.free[chosen, column].sum())
        if best is None or free > best[0]:
            best = (free, chosen)
    return best[1] if best else None


def _keep(
    table: NodeTable, gang: Gang, later: FreeResources, spots: list[Spot], at: datetime | None
) -> Reservation:
    """Return what others may use: no more than is free now, nor than the gang leaves then."""
    take(table, later, spots)
    spare = FreeResources(np.minimum(table.room.free, later.free), table.room.gpus & later.gpus)
    spare.ports = {
        row: table.room.ports.get(row, frozenset()) | later.ports.get(row, frozenset())
        for row in table.room.ports.keys() | later.ports.keys()
    }
    spare.taken = {
        row: table.room.taken.get(row, frozenset()) | later.taken.get(row, frozenset())
        for row in table.room.taken.keys() | later.taken.keys()
    }
    nodes = {table.views[spot.node].name for spot in spots}
    return Reservation(gang.key, at, spare, tuple(sorted(nodes)))
