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
from gangline.placement.fit import fewest, place
from gangline.placement.fleet import EVERYBODY, Bools, Fleet, Room
from gangline.placement.gangs import Gang
from gangline.placement.snapshot import PodView
from gangline.workloads.requests import GPU


@dataclass(slots=True)
class Reservation:
    """Room that is kept for a gang.

    Attributes:
        gang: its key.
        at: when it will fit; None when nobody knows.
        spare: what others may use meanwhile, however long they run.
    """

    gang: str
    at: datetime | None
    spare: Room

    def ends_before(self, gang: Gang, now: datetime) -> bool:
        """Return whether a gang that starts now is over when the room is needed."""
        limits = [gang.group.limit_s, *(pod.limit_s for pod in gang.pods if gang.group.limit_s is None)]
        known = [limit for limit in limits if limit is not None]
        if self.at is None or not known:
            return False
        return now + timedelta(seconds=max(known)) <= self.at


def reserve(
    fleet: Fleet, allocations: Allocations, gang: Gang, now: datetime, *, victims: set[str], is_due: bool
) -> Reservation | None:
    """Return room kept for a gang that does not fit now, or None when it never will or nobody knows when.

    Args:
        fleet: the nodes and what is left on them.
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
    found = _first_fit(fleet, gang, _Ends(fleet, [pod for _, pod in ending])) if ending else None
    if found is not None:
        count, later, spots = found
        return _keep(fleet, gang, later, spots, ending[count - 1][0] if count else now)
    if not is_due:
        return None
    later = fleet.idle().copy()
    within = _nearest(fleet, gang, later)
    if within is None:
        return None
    nearest = place(fleet, later, gang, within=within) or place(fleet, later, gang)
    return _keep(fleet, gang, later, nearest, None) if nearest is not None else None


class _Ends:
    """Pods that end one after another, as arrays: what each gives back. Cost: 5 µs a pod."""

    def __init__(self, fleet: Fleet, pods: list[PodView]) -> None:
        self._fleet = fleet
        self._pods = pods
        amounts: dict[bytes | str, tuple[tuple[int, int], ...]] = {}  # by shape: equal ones ask for the same
        for pod in pods:
            if (pod.shape or pod.key) not in amounts:
                amounts[pod.shape or pod.key] = fleet.amounts(pod)
        vectors = np.zeros((len(amounts), len(fleet.columns)), np.int64)
        number = {shape: index for index, shape in enumerate(amounts)}
        for shape, entries in amounts.items():
            for column, amount in entries:
                vectors[number[shape], column] = amount
        self._rows = np.array([fleet.index(pod.node_name) for pod in pods], np.int64)
        self._amounts = vectors[[number[pod.shape or pod.key] for pod in pods]]
        self._with_ports = [
            index for index, pod in enumerate(pods) if pod.host_ports and self._rows[index] >= 0
        ]
        self._gpus = np.array(
            [self._gpus_of(*entry) for entry in zip(pods, self._rows.tolist(), strict=True)], np.int64
        )

    def __len__(self) -> int:
        return len(self._pods)

    def _gpus_of(self, pod: PodView, row: int) -> int:
        gpus = self._fleet.views[row].gpus if row >= 0 else None
        return self._fleet.gpus_of(pod, row) & gpus.healthy if gpus is not None else 0

    def room_after(self, count: int, *, is_counted: bool = False) -> Room:
        """Return the room once so many have ended; to count pods in, it need not say which ones are gone."""
        room = self._fleet.room.copy()
        room.widen(len(self._fleet.columns))
        if not is_counted and room.gone is not EVERYBODY:
            room.gone |= {pod.uid for pod in self._pods[:count]}
        known = self._rows[:count] >= 0  # nodes that are there
        rows = self._rows[:count][known]
        np.add.at(room.free, rows, self._amounts[:count][known])
        np.bitwise_or.at(room.gpus, rows, self._gpus[:count][known])
        for index in self._with_ports[: bisect_left(self._with_ports, count)]:
            row, ports = int(self._rows[index]), self._pods[index].host_ports
            room.ports[row] = room.ports.get(row, frozenset()) - ports
        return room


def _first_fit(fleet: Fleet, gang: Gang, ends: _Ends) -> tuple[int, Room, list[Spot]] | None:
    """Return after how many ends a gang fits first, the room then, and its spots there; None for never.

    Counting where its largest pods would fit is cheap, and it fits nowhere before the count suffices: so that
    moment is looked for first, and mostly it is the answer.
    """
    pod = max(gang.pods, key=lambda pod: (pod.request.get(GPU, 0), pod.key))
    wanted = sum(1 for other in gang.pods if other.shape == pod.shape) if pod.shape else 1

    def counts_suffice(count: int) -> bool:
        return int(capacity(fleet, ends.room_after(count, is_counted=True), pod).sum()) >= wanted

    def spots_after(count: int) -> tuple[int, Room, list[Spot]] | None:
        room = ends.room_after(count)
        spots = place(fleet, room, gang)
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


def release(fleet: Fleet, room: Room, pods: Sequence[PodView]) -> None:
    """Give back, in a room of trial, what these pods hold."""
    if room.gone is not EVERYBODY:
        room.gone |= {pod.uid for pod in pods}
    amounts: dict[bytes | str, tuple[tuple[int, int], ...]] = {}  # by shape: equal ones ask for the same
    for pod in pods:
        row = fleet.index(pod.node_name)
        if row < 0:
            continue
        shape = pod.shape or pod.key
        if shape not in amounts:
            amounts[shape] = fleet.amounts(pod)
        for column, amount in amounts[shape]:
            room.free[row, column] += amount
        gpus = fleet.views[row].gpus
        if gpus is not None:
            room.gpus[row] |= fleet.gpus_of(pod, row) & gpus.healthy
        if pod.host_ports:
            room.ports[row] = room.ports.get(row, frozenset()) - pod.host_ports


def retake(fleet: Fleet, room: Room, pods: Sequence[PodView]) -> None:
    """Take again, in a room of trial, what :func:`release` gave back of these pods."""
    room.gone -= {pod.uid for pod in pods}
    for pod in pods:
        row = fleet.index(pod.node_name)
        if row < 0:
            continue
        for column, amount in fleet.amounts(pod):
            room.free[row, column] -= amount
        room.gpus[row] &= ~fleet.gpus_of(pod, row)
        if pod.host_ports:
            room.ports[row] = room.ports.get(row, frozenset()) | pod.host_ports


def end_of(pod: PodView, allocations: Allocations) -> datetime | None:
    """Return when a running pod is ended at the latest, or None when nobody knows."""
    limit = allocations.limit_of(pod)
    if limit is None or not pod.started:
        return None
    return parse_time(pod.started) + timedelta(seconds=limit)


def _nearest(fleet: Fleet, gang: Gang, later: Room) -> Bools | None:
    """Return the nodes that are nearest to holding the gang: those with most free now, of one domain."""
    pod = max(gang.pods, key=lambda pod: pod.request.get(GPU, 0))
    alike = [other for other in gang.pods if other.shape == pod.shape]
    counts = capacity(fleet, later, pod)
    level = fleet.level(gang.group.required_level)
    domains = fleet.domains[level] if level >= 0 else np.zeros(len(fleet), np.int32)
    column = fleet.column(GPU if pod.request.get(GPU) else "cpu")
    best: tuple[int, Bools] | None = None
    for domain in np.unique(domains[domains >= 0]):
        rows = np.flatnonzero((domains == domain) & (counts > 0))
        if int(counts[rows].sum()) < len(alike):
            continue
        rows = rows[np.lexsort((rows, -fleet.room.free[rows, column]))]
        shares = fewest(counts[rows], len(alike)) if int(counts[rows[0]]) < len(alike) else {0: len(alike)}
        chosen = np.zeros(len(fleet), np.bool_)
        chosen[rows[list(shares)]] = True
        free = int(fleet.room.free[chosen, column].sum())
        if best is None or free > best[0]:
            best = (free, chosen)
    return best[1] if best else None


def _keep(fleet: Fleet, gang: Gang, later: Room, spots: list[Spot], at: datetime | None) -> Reservation:
    """Return what others may use: no more than is free now, nor than the gang leaves then."""
    take(fleet, later, spots)
    spare = Room(np.minimum(fleet.room.free, later.free), fleet.room.gpus & later.gpus)
    spare.ports = {
        row: fleet.room.ports.get(row, frozenset()) | later.ports.get(row, frozenset())
        for row in fleet.room.ports.keys() | later.ports.keys()
    }
    return Reservation(gang.key, at, spare)
