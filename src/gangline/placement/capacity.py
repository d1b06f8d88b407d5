"""What nodes can take: pods of one shape by node, how good a node is for some GPUs, and taking room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gangline.placement.claims.allocate import GivenDevice, Unusable, allocate
from gangline.placement.claims.devices import Device, DeviceId
from gangline.placement.free_resources import FreeResources, Ints
from gangline.placement.node_table import Floats, NodeTable
from gangline.placement.snapshot import PodView
from gangline.workloads.requests import GPU

UNBOUNDED = np.int64(1 << 40)


@dataclass(frozen=True, slots=True)
class Spot:
    """Where one pod goes.

    Attributes:
        pod: the pod.
        node: row of its node.
        gpus: its GPUs in the order of the ring, as indices on the node; empty where others choose.
        given: devices of its claims, in the order of its demands.
    """

    pod: PodView
    node: int
    gpus: tuple[int, ...] = ()
    given: tuple[tuple[GivenDevice, ...], ...] = ()

    @property
    def devices(self) -> frozenset[DeviceId]:
        """Devices that are taken from others."""
        found = (one for some in self.given for one in some if not one.choice.is_admin)
        return frozenset(one.device.id for one in found)


def capacity(table: NodeTable, room: FreeResources, pod: PodView) -> Ints:
    """Return how many pods of this shape each node can take: int64 (N,), kept up to date by the room."""

    def count(rows: Ints) -> Ints:
        amounts, eligible = table.amounts(pod), table.eligible(pod)
        room.widen(len(table.columns))
        at: Ints | slice = slice(None) if len(rows) == len(table) else rows
        if amounts:  # of few rows one step for all columns costs a third of one for each
            columns, each = zip(*amounts, strict=True)
            counts = (room.free[at][:, columns] // each).min(axis=1)
        else:
            counts = np.full(len(rows), UNBOUNDED)
        if gpus := pod.request.get(GPU, 0):
            ids = np.bitwise_count(room.gpus[at].astype(np.uint64)).astype(np.int64) // gpus
            counts = np.where(table.kind_of[at] >= 0, np.minimum(counts, ids), counts)
        if pod.host_ports:
            is_free = [room.ports.get(int(row), frozenset()).isdisjoint(pod.host_ports) for row in rows]
            counts = np.where(is_free, np.minimum(counts, 1), 0)
        counts = np.where(eligible[at], np.maximum(counts, 0), 0)
        if pod.demands:
            most = [
                served(table, room, pod, int(row), int(count))
                for row, count in zip(rows, counts, strict=True)
            ]
            counts = np.array(most, np.int64)
        return counts

    if not pod.shape:
        return count(np.arange(len(table)))
    return room.derived(("pods", pod.shape), count)  # type: ignore[return-value]


def served(table: NodeTable, room: FreeResources, pod: PodView, row: int, most: int) -> int:
    """Return how many pods like this one, at most so many, a node has devices for, one after another."""
    given: set[DeviceId] = set()

    def is_taken(device: Device) -> bool:
        return device.id in given or table.is_taken(room, row, device)

    count = 0
    while count < most and (found := serve(table, pod, row, is_taken)) is not None:
        devices = Spot(pod, row, given=found).devices
        if not devices:
            return most  # they take none from others
        given |= devices
        count += 1
    return count


def serve(
    table: NodeTable, pod: PodView, row: int, is_taken: Callable[[Device], bool]
) -> tuple[tuple[GivenDevice, ...], ...] | None:
    """Return what the claims of a pod get on a node, in the order of its demands, or None."""
    try:
        return allocate([demand for _, demand in pod.demands], table.views[row].pools, is_taken)
    except Unusable:
        return None


def node_scores(
    table: NodeTable, room: FreeResources, pod: PodView, count: int, preferred: Ints | None
) -> Floats:
    """Return how good each node is for so many pods like this one, the lowest best: float64 (N,).

    How fast its GPUs are comes first, then how much it is preferred, then how little is left over.
    """
    gpus = count * pod.request.get(GPU, 0)
    if not gpus:
        counts = capacity(table, room, pod)
        if preferred is None:
            return counts.astype(np.float64)
        return _places(len(table), counts, -preferred)
    return (
        _gpu_scores(table, room, gpus) if preferred is None else _by_preferences(table, room, gpus, preferred)
    )


def _places(count: int, *keys: Ints | Floats) -> Floats:
    """Return the places of nodes in a row, by the last of the keys first: float64 (N,), the best 0."""
    places = np.zeros(count)
    places[np.lexsort(keys)] = np.arange(count)
    return places


def _gpu_scores(table: NodeTable, room: FreeResources, gpus: int) -> Floats:
    """Return how good each node is for a gang of this many GPUs, the lowest best: float64 (N,)."""

    def score(rows: Ints) -> Floats:
        kinds, free = table.kind_of[rows], room.gpus[rows]
        scores = room.free[rows, table.column(GPU)].astype(np.float64)
        for kind, tables in enumerate(table.kinds):
            chosen = kinds == kind
            if chosen.any():
                scores[chosen] = tables.scores(gpus)[free[chosen]] if gpus <= tables.count else np.inf
        return np.asarray(scores, np.float64)

    return room.derived(("scores", gpus), score)  # type: ignore[return-value]


def _by_preferences(table: NodeTable, room: FreeResources, gpus: int, preferred: Ints) -> Floats:
    """Return the places of the nodes in a row, by how fast they are for a gang of this many GPUs, then by how
    much they are preferred, then by their scores.
    """
    speeds = np.zeros(len(table))
    for kind, tables in enumerate(table.kinds):
        chosen = table.kind_of == kind
        if gpus <= tables.count:
            speeds[chosen] = tables.speeds(gpus)[room.gpus[chosen]]
    return _places(len(table), _gpu_scores(table, room, gpus), -preferred, speeds)


def take(table: NodeTable, room: FreeResources, spots: Sequence[Spot]) -> None:
    """Take the room of these spots."""
    by_node: dict[int, list[Spot]] = {}
    for spot in spots:
        by_node.setdefault(spot.node, []).append(spot)
    wanted: dict[bytes | str, tuple[tuple[int, int], ...]] = {}  # by shape: equal ones ask for the same
    for node, found in by_node.items():
        amounts: dict[int, int] = {}
        gpus, ports, devices = 0, frozenset[tuple[str, int]](), frozenset[DeviceId]()
        for spot in found:
            pod = spot.pod
            for index in spot.gpus:
                gpus |= 1 << index
            if pod.host_ports:
                ports |= pod.host_ports
            if spot.given:
                devices |= spot.devices
            shape = pod.shape or pod.key
            if shape not in wanted:
                wanted[shape] = table.amounts(pod)
                room.widen(len(table.columns))
            for column, amount in wanted[shape]:
                amounts[column] = amounts.get(column, 0) + amount
        gpus |= table.gpus_among(node, devices)
        room.take(node, amounts.items(), gpus, ports, devices)
    if any(not one.device.place.node for spot in spots for some in spot.given for one in some):
        room.forget_derived()  # other nodes have less now, too
    room.renew(*by_node)
