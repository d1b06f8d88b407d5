"""What a placement is worth: ring, scarcest wire, bandwidth and step time, beside the best and the naive one.

The prediction is that of :mod:`gangline.topology`; here it is asked about gangs on nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from gangline.placement.allocations import Allocations
from gangline.placement.capacity import Spot, capacity, take
from gangline.placement.free_resources import FreeResources
from gangline.placement.gangs import Gang
from gangline.placement.node_table import NodeTable
from gangline.placement.place import place
from gangline.placement.reserve import release
from gangline.placement.snapshot import NodeView, PodView
from gangline.topology import (
    Level,
    Machine,
    NetworkDomains,
    Part,
    Prediction,
    Training,
    members,
    predict,
    rank_order,
    with_rates,
)
from gangline.topology.network import CLIQUE_LABEL, on_network
from gangline.topology.step_time import BYTES_FP32, PARAMETERS
from gangline.workloads.requests import GPU

STEP_S: Final = {"resnet50": 64 / (1321.9 / 4), "vgg16": 64 / (820.5 / 4)}
"""Seconds of a step of batch 64 on one V100, fp32: published by ACK for four GPUs on NVLink."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The training that predictions are made for; by default the known one that asks most of the wires.

    Attributes:
        name: for people.
        training: its step.
        levels: of the network, the widest first, with their oversubscription.
    """

    name: str = "vgg16"
    training: Training = field(
        default_factory=lambda: Training(BYTES_FP32 * PARAMETERS["vgg16"], STEP_S["vgg16"])
    )
    levels: tuple[Level, ...] = ()


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is predicted for one placement.

    Attributes:
        nodes: (node, indices of its GPUs in the order of the ring), in the order of the ranks.
        prediction: see :class:`Prediction`.
    """

    nodes: tuple[tuple[str, tuple[int, ...]], ...]
    prediction: Prediction

    @property
    def step_s(self) -> float:
        """Predicted time of a step, in seconds."""
        return self.prediction.step_s


@dataclass(frozen=True, slots=True)
class Comparison:
    """A gang's placement beside others; None where it has no GPUs whose links are known, or no room.

    Attributes:
        chosen: the one that it has.
        best: on the same nodes with nothing else running, chosen by the wires.
        naive: first fit in the room of now: nodes by name, lowest ids.
    """

    chosen: Outlook | None
    best: Outlook | None
    naive: Outlook | None


def machine_on(node: NodeView) -> Machine | None:
    """Return the machine of a node, as measured, else as its labels tell; None without known GPUs."""
    if node.gpus is None:
        return None
    found = on_network(node.gpus.machine, node.labels)
    return with_rates(found, node.gpus.rates, node.gpus.indices) if node.gpus.rates else found


def outlook(table: NodeTable, masks: Mapping[int, int], workload: Workload) -> Outlook | None:
    """Return what is predicted for GPUs of a table, by row of the node; None where links are not known.

    Cost: 20 µs for GPUs of one node once its rings are known, 5 ms the first time.
    """
    rows = sorted(row for row, mask in masks.items() if mask)
    machines = [machine_on(table.views[row]) for row in rows]
    if not rows or any(machine is None for machine in machines):
        return None
    parts = [
        Part(machine, masks[row], table.views[row].labels.get(CLIQUE_LABEL, ""))
        for row, machine in zip(rows, machines, strict=True)
        if machine
    ]
    network = NetworkDomains.from_labels(
        [(table.names[row], table.views[row].labels) for row in rows], workload.levels
    )
    narrow = network.oversubscription(range(len(rows)))
    named = []
    for row, part in zip(rows, parts, strict=True):
        gpus = table.views[row].gpus
        assert gpus is not None
        order = rank_order(part.machine, part.mask) if part.count > 2 else members(part.mask)
        named.append((table.names[row], tuple(gpus.indices[bit] for bit in order)))
    return Outlook(tuple(named), predict(workload.training, parts, oversubscription=narrow))


def masks_of(spots: Iterable[Spot]) -> dict[int, int]:
    """Return the GPUs of spots as masks by row."""
    masks: dict[int, int] = {}
    for spot in spots:
        masks[spot.node] = masks.get(spot.node, 0) | sum(1 << index for index in spot.gpus)
    return masks


def best_outlook(
    table: NodeTable, allocations: Allocations, gang: Gang, workload: Workload
) -> Outlook | None:
    """Return what is predicted for the gang alone on the nodes, its GPUs chosen by the wires."""
    views = [msgspec.structs.replace(view, by_wires=True) for view in table.views]
    alone = NodeTable.of(views, (), table.levels)
    spots = place(alone, alone.room, gang)
    return outlook(alone, masks_of(spots), workload) if spots else None


def naive_outlook(
    table: NodeTable, room: FreeResources, pods: Sequence[PodView], workload: Workload
) -> Outlook | None:
    """Return what is predicted for first fit: each pod on the first node by name, lowest free ids."""
    left = room.copy()
    masks: dict[int, int] = {}
    for pod in pods:
        fitting = np.flatnonzero(capacity(table, left, pod) > 0)
        if not len(fitting):
            return None
        row = int(fitting[0])
        gpus = members(int(left.gpus[row]))[: pod.request.get(GPU, 0)]
        take(table, left, [Spot(pod, row, gpus)])
        masks[row] = masks.get(row, 0) | sum(1 << index for index in gpus)
    return outlook(table, masks, workload)


def compare(
    table: NodeTable, allocations: Allocations, pods: Sequence[PodView], workload: Workload
) -> Comparison:
    """Return the placement of pods that hold room beside the best and the naive one.

    Args:
        table: the nodes, with the room that these pods leave.
        allocations: all pods that hold room.
        pods: of one gang, in the order of their ranks; those without GPUs count for nothing.
        workload: what is predicted.
    """
    own = [pod for pod in pods if pod.request.get(GPU)]
    if not own:
        return Comparison(None, None, None)
    masks: dict[int, int] = {}
    for pod in own:
        row = table.index(pod.node_name)
        if row >= 0 and (gpus := table.views[row].gpus) is not None:
            masks[row] = masks.get(row, 0) | gpus.mask_of(pod.gpu_uuids)
    room = table.room.copy()
    release(table, room, own)
    waiting = [pod.placed("", ()) for pod in own]
    gang = Gang(own[0].gang or own[0].key, waiting, allocations.groups.get(own[0].gang))
    return Comparison(
        outlook(table, masks, workload),
        best_outlook(table, allocations, gang, workload),
        naive_outlook(table, room, waiting, workload),
    )
