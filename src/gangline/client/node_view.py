"""Nodes with their GPUs and who holds which, as values. Pure: from objects in wire form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any

from gangline.client.jobs.gpu_kind import kind_of_nodes
from gangline.placement import NodeView, PodView
from gangline.placement.snapshot import BY_WIRES, unknown_mode
from gangline.topology.rings import pair_matrix
from gangline.workloads.requests import counts_as_gpu, gpu_count

if TYPE_CHECKING:
    from gangline.client.jobs.cluster_view import ClusterView

Obj = dict[str, Any]

BY_PLUGIN = "which, its own device plugin chooses and does not tell"

LETTERS = ascii_uppercase + ascii_lowercase
FREE, UNHEALTHY, UNNAMED = ".", "x", "?"
_ROLE_PREFIX = "node-role.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU.

    Attributes:
        index: on its node.
        uuid: its identity.
        healthy: whether it may be used.
        holder: ``NAMESPACE/POD`` that has it, or empty.
        owner: ``NAMESPACE/JOB``, or the pod where it is of no job; empty for a free one.
    """

    index: int
    uuid: str
    healthy: bool
    holder: str
    owner: str


@dataclass(frozen=True, slots=True)
class HolderView:
    """One pod with GPUs on a node; ``indices`` is None where its device plugin chose them."""

    namespace: str
    name: str
    requested: int
    indices: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class NodeGpuView:
    """One node.

    Attributes:
        mode: ``topology`` where GPUs are chosen by their links, ``exclusive`` for other nodes with GPUs, else
            ``none``.
        gpus: each one; empty where only their number is known.
        links: names of links, row by row; empty where unknown.
        bandwidths: predicted GB/s one way between each two.
        resources: by which names it has how many: whole ones, and slices, of which each counts as one.
        note: what is wrong with its label of the mode, or empty.
    """

    name: str
    address: str
    role: str
    status: str
    total: int
    allocated: int
    mode: str
    kind: str
    model: str
    gpus: tuple[GpuView, ...] = ()
    holders: tuple[HolderView, ...] = ()
    links: tuple[tuple[str, ...], ...] = ()
    bandwidths: tuple[tuple[float, ...], ...] = field(default=())
    note: str = ""
    resources: dict[str, int] = field(default_factory=dict)

    @property
    def unhealthy(self) -> int:
        """How many GPUs may not be used."""
        return sum(not gpu.healthy for gpu in self.gpus)

    @property
    def chooser(self) -> str:
        """Who chooses which GPUs a pod gets: ``gangline``, ``device plugin``, or nobody without GPUs."""
        return "gangline" if self.gpus else "device plugin" if self.total else ""


def view_nodes(view: ClusterView, names: Sequence[str] = ()) -> list[NodeGpuView]:
    """Return the nodes by name; those named, or all."""
    by_node: dict[str, list[PodView]] = {}
    for pod in view.snapshot.pods:
        by_node.setdefault(pod.node_name, []).append(pod)
    rows = []
    for node, seen in zip(view.nodes, view.snapshot.nodes, strict=True):
        if not names or seen.name in names:
            rows.append(_view(node, seen, by_node.get(seen.name, [])))
    return sorted(rows, key=lambda row: row.name)


def _view(node: Obj, seen: NodeView, pods: Sequence[PodView]) -> NodeGpuView:
    status = node.get("status") or {}
    ready: Obj = next((one for one in status.get("conditions") or [] if one["type"] == "Ready"), {})
    addresses = {one["type"]: one["address"] for one in status.get("addresses") or []}
    roles = [label.removeprefix(_ROLE_PREFIX) for label in seen.labels if label.startswith(_ROLE_PREFIX)]
    word = "Ready" if ready.get("status") == "True" else "NotReady"
    total = len(seen.gpus.uuids) if seen.gpus else gpu_count(seen.allocatable)
    holding = [pod for pod in pods if gpu_count(pod.request)]
    gpus = seen.gpus
    return NodeGpuView(
        name=seen.name,
        address=addresses.get("InternalIP", ""),
        role=",".join(sorted(roles)) or "<none>",
        status=f"{word},SchedulingDisabled" if seen.unschedulable else word,
        total=total,
        allocated=sum(gpu_count(pod.request) for pod in holding),
        mode=(BY_WIRES if seen.has_mode_label and gpus else "exclusive") if total else "none",
        kind=kind_of_nodes([node]),
        model=gpus.machine.model if gpus else "",
        gpus=_gpus(seen, holding),
        holders=tuple(_holder(seen, pod) for pod in sorted(holding, key=lambda pod: pod.key)),
        links=gpus.machine.links if gpus else (),
        bandwidths=tuple(map(tuple, pair_matrix(gpus.machine))) if gpus else (),
        note=unknown_mode(seen.labels),
        resources={name: count for name, count in sorted(seen.allocatable.items()) if counts_as_gpu(name)},
    )


def _holder(node: NodeView, pod: PodView) -> HolderView:
    namespace, _, name = pod.key.partition("/")
    indices = None
    if node.gpus and pod.gpu_uuids:
        table = dict(zip(node.gpus.uuids, node.gpus.indices, strict=True))
        indices = tuple(table[uuid] for uuid in pod.gpu_uuids if uuid in table)
    return HolderView(namespace, name, gpu_count(pod.request), indices)


def _gpus(node: NodeView, pods: Sequence[PodView]) -> tuple[GpuView, ...]:
    if node.gpus is None:
        return ()
    holders = {uuid: pod for pod in pods for uuid in pod.gpu_uuids}
    found = []
    for bit, (uuid, index) in enumerate(zip(node.gpus.uuids, node.gpus.indices, strict=True)):
        pod = holders.get(uuid)
        owner = (pod.job or pod.key) if pod else ""
        healthy = bool(node.gpus.healthy >> bit & 1)
        found.append(GpuView(index, uuid, healthy, pod.key if pod else "", owner))
    return tuple(found)


def grid(nodes: Sequence[NodeGpuView], names_max: int | None = None) -> list[str]:
    """Return a line of signs for each node with GPUs, and a line for each owner: who holds what.

    ``.`` is free, ``x`` unhealthy, a letter the owner's, ``?`` the 53rd owner's and later ones'; the sign of
    a held GPU that is unhealthy is followed by ``!``. Of names that are longer than asked for the ends are
    shown, in which those of one cluster differ.
    """
    shown = [node for node in nodes if node.gpus]
    owners = list(dict.fromkeys(gpu.owner for node in shown for gpu in node.gpus if gpu.owner))
    signs = {owner: LETTERS[place] if place < len(LETTERS) else UNNAMED for place, owner in enumerate(owners)}
    names = {node.name: _short(node.name, names_max) for node in nodes}
    width = max((len(names[node.name]) for node in shown), default=0)
    lines = []
    for node in shown:
        cells = [_sign(gpu, signs) for gpu in node.gpus]
        lines.append(f"{names[node.name]:{width}}  {' '.join(cells)}  {node.model}, {node.mode}")
    for node in nodes:
        if node.chooser == "device plugin":
            lines.append(f"{names[node.name]:{width}}  {node.allocated} of {node.total} held; {BY_PLUGIN}")
    for owner in owners:
        count = sum(gpu.owner == owner for node in shown for gpu in node.gpus)
        lines.append(f"{signs[owner]:{width}}  {owner}: {count}")
    return lines


def _short(name: str, most: int | None) -> str:
    return name if most is None or len(name) <= most else f"…{name[1 - most :]}"


def _sign(gpu: GpuView, signs: dict[str, str]) -> str:
    if gpu.owner:
        return signs[gpu.owner] + (" " if gpu.healthy else "!")
    return (FREE if gpu.healthy else UNHEALTHY) + " "


def node_report(node: NodeGpuView) -> dict[str, Any]:
    """Return a node as plain values, for programs."""
    return {
        "name": node.name,
        "ip": node.address,
        "role": node.role,
        "status": node.status,
        "type": node.mode,
        "idsChosenBy": node.chooser or None,
        "note": node.note or None,
        "gpuKind": node.kind or None,
        "model": node.model,
        "totalGPUs": node.total,
        "allocatedGPUs": node.allocated,
        "unhealthyGPUs": node.unhealthy,
        "resources": node.resources,
        "instances": [
            {
                "namespace": holder.namespace,
                "name": holder.name,
                "requestGPUs": holder.requested,
                "allocatedGPUs": list(holder.indices) if holder.indices is not None else None,
            }
            for holder in node.holders
        ],
        "devices": [
            {
                "id": gpu.index,
                "uuid": gpu.uuid,
                "healthy": gpu.healthy,
                "status": "using" if gpu.holder else "idle",
                "instance": gpu.holder or None,
            }
            for gpu in node.gpus
        ],
        "linkTypeMatrix": [list(row) for row in node.links],
        "predictedBandwidthMatrix": [[round(cell, 2) for cell in row] for row in node.bandwidths],
    }
