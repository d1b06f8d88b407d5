"""Nodes as arrays: what they have left, which GPUs are free, which pods may use them. Changed one at a time.

Row i of every array is the i-th node by name, so that "the first" is the first by name, and the same nodes
give the same arrays in whatever order they came. A seed gives the rows another order, which is as fixed.
:class:`FreeResources` holds what changes while gangs are tried. Shapes: N nodes, R resources.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gangline.placement.affinity.affinity_index import AffinityIndex
from gangline.placement.amounts import CPU, MEMORY, PODS
from gangline.placement.filters import NO_DOMAIN, NodeRules, filter_reason
from gangline.placement.free_resources import ALL_DEVICES, EVERYBODY, SHAPES_MAX, FreeResources, Ints
from gangline.placement.gpu_tables import GpuTables, tables_of
from gangline.placement.snapshot import NodeView, PodView
from gangline.topology import NodeGpus, choices, with_cards
from gangline.workloads.device_class import DRIVER
from gangline.workloads.requests import GPU

if TYPE_CHECKING:
    from gangline.placement.claims.devices import Device, DeviceId

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class NodeTable:
    """All nodes of a snapshot.

    Args:
        levels: labels of nodes from the widest domain to the narrowest, for example block, rack.
        seed: decides the order of the rows, and so which of equal nodes is taken; 0 for the order of names.
        claimed: devices that allocated claims of the cluster hold, whoever has them; may change meanwhile.

    Attributes:
        names: of the nodes, in the order of the rows.
        views: of the nodes.
        room: what is left on them.
        affinity_index: who is on them, for pods that ask something of their neighbours; None: nobody.
        fits_idle: whether gangs would fit if nothing ran, by their form; forgotten when a node changes.
    """

    affinity_index: AffinityIndex | None = None

    def __init__(
        self, levels: Sequence[str] = (), *, seed: int = 0, claimed: Collection[DeviceId] = ()
    ) -> None:
        self.levels = tuple(levels)
        self.seed = seed
        self.claimed = claimed
        self.names: list[str] = []
        self.views: list[NodeView] = []
        self.columns: dict[str, int] = {CPU: 0, MEMORY: 1, PODS: 2, GPU: 3}
        self.kind_of = np.zeros(0, np.int32)
        self.model_of = np.zeros(0, np.int64)
        self.domains = np.zeros((len(self.levels), 0), np.int32)
        self.domain_names: list[list[tuple[str, ...]]] = [[] for _ in self.levels]
        self.kinds: list[GpuTables] = []
        self.room = FreeResources(np.zeros((0, len(self.columns)), np.int64), np.zeros(0, np.int64))
        self._model_ids: dict[str, int] = {}
        self._rules = NodeRules()
        self._domain_ids: list[dict[tuple[str, ...], int]] = [{} for _ in self.levels]
        self._eligible: dict[bytes, tuple[PodView, Bools]] = {}
        self._assumed: dict[str, dict[str, int]] = {}  # GPUs by node and pod, where a plugin chose them
        self._idle: FreeResources | None = None
        self.fits_idle: dict[object, bool] = {}
        self._of_nodes: dict[bytes, Ints] = {}

    @classmethod
    def of(
        cls,
        nodes: Iterable[NodeView],
        allocations: Iterable[PodView] = (),
        levels: Sequence[str] = (),
        *,
        seed: int = 0,
        claimed: Collection[DeviceId] = (),
    ) -> NodeTable:
        """Return the table of a snapshot. Cost: 10 µs a node, 5 µs a pod that holds room."""
        table = cls(levels, seed=seed, claimed=claimed)
        ordered = sorted(nodes, key=lambda node: table.turn(node.name))
        table.names = [node.name for node in ordered]
        table.views = ordered
        count = len(ordered)
        table.kind_of = np.full(count, -1, np.int32)
        table.model_of = np.zeros(count, np.int64)
        table._rules = NodeRules(count)
        table.domains = np.full((len(table.levels), count), NO_DOMAIN, np.int32)
        table.room = FreeResources(np.zeros((count, len(table.columns)), np.int64), np.zeros(count, np.int64))
        for index, node in enumerate(ordered):
            table._fill(index, node)
        for pod in sorted(allocations, key=_by_certainty):
            table.hold(pod)
        return table

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str) -> int:
        """Return the row of a node, or -1."""
        index = self._position(name)
        return index if index < len(self.names) and self.names[index] == name else -1

    def turn(self, name: str) -> tuple[bytes, str]:
        """Return what orders the node of a name among the others."""
        return (_shuffled(self.seed, name) if self.seed else b""), name

    def _position(self, name: str) -> int:
        if self.seed:
            return bisect_left(self.names, self.turn(name), key=self.turn)
        return bisect_left(self.names, name)

    def column(self, resource: str) -> int:
        """Return the column of a resource; one that no node has got one of its own, full of zeros."""
        if resource not in self.columns:
            self.columns[resource] = len(self.columns)
            self.room.widen(len(self.columns))
        return self.columns[resource]

    def set_node(self, node: NodeView, allocations: Iterable[PodView]) -> None:
        """Take a node that is new or has changed, or whose pods have, with all pods that hold room on it.

        Cost: 10 µs and 3 µs a pod; another 1 µs for each remembered shape when the node itself has changed;
        a new node moves the arrays (0.5 ms at 10,000 nodes).
        """
        index = self.index(node.name)
        is_same = index >= 0 and self.views[index] is node
        if index < 0:
            index = self._insert(node)
        self.room.free[index] = 0
        self.room.forget(index)
        self._assumed.pop(node.name, None)
        if not is_same:
            self._forget_nodes()
        self._fill(index, node)
        for pod in sorted(allocations, key=_by_certainty):
            self.hold(pod)
        if not is_same:
            for pod, mask in self._eligible.values():
                mask[index] = not pod.refusal and not filter_reason(node, pod)

    def _insert(self, node: NodeView) -> int:
        index = self._position(node.name)
        self.names.insert(index, node.name)
        self.views.insert(index, node)
        self.kind_of = np.insert(self.kind_of, index, -1)
        self.model_of = np.insert(self.model_of, index, 0)
        self._rules.insert(index)
        self.domains = np.insert(self.domains, index, NO_DOMAIN, axis=1)
        self.room.insert(index)
        for shape, (pod, mask) in self._eligible.items():
            self._eligible[shape] = (pod, np.insert(mask, index, False))
        return index

    def drop_node(self, name: str) -> None:
        """Forget a node."""
        index = self.index(name)
        if index < 0:
            return
        self._assumed.pop(name, None)
        self._forget_nodes()
        del self.names[index], self.views[index]
        self.kind_of = np.delete(self.kind_of, index)
        self.model_of = np.delete(self.model_of, index)
        self._rules.delete(index)
        self.domains = np.delete(self.domains, index, axis=1)
        self.room.delete(index)
        self._eligible = {
            shape: (pod, np.delete(mask, index)) for shape, (pod, mask) in self._eligible.items()
        }

    def _forget_nodes(self) -> None:
        """Forget what is worked out from all nodes."""
        self._idle = None
        self.fits_idle.clear()
        self._rules.forget()
        self._of_nodes.clear()

    def hold(self, pod: PodView) -> None:
        """Count a pod that holds room on its node. A pod on a node that is not there counts nowhere."""
        index = self.index(pod.node_name)
        if index < 0:
            return
        mask = self.gpus_of(pod, index)
        gpus = self.views[index].gpus
        if gpus is not None and not mask and (count := pod.request.get(GPU, 0)):
            # The stock device plugin chose them: it takes the lowest free ones.
            mask = choices(gpus.machine).lowest(int(self.room.gpus[index]), count)
            self._assumed.setdefault(pod.node_name, {})[pod.uid] = mask
        self.room.take(index, self.amounts(pod), mask, pod.host_ports, pod.devices)
        self.room.renew(index)

    def gpus_of(self, pod: PodView, index: int) -> int:
        """Return the mask of the GPUs that a pod holds on its node; assumed where it names none."""
        gpus = self.views[index].gpus
        if gpus is None:
            return 0
        return gpus.mask_of(pod.gpu_uuids) or self._assumed.get(pod.node_name, {}).get(pod.uid, 0)

    def gpus_among(self, index: int, devices: Iterable[DeviceId]) -> int:
        """Return the mask of the GPUs of ours that are among devices of claims on a node."""
        node = self.views[index]
        if node.gpus is None or not node.by_claim:
            return 0
        wanted = {device for device in devices if device.driver == DRIVER}
        known = (device for pool in node.pools for device in pool.devices if device.id in wanted)
        return node.gpus.mask_of([device.uuid for device in known]) if wanted else 0

    def is_taken(self, room: FreeResources, index: int, device: Device) -> bool:
        """Return whether a claim holds a device that a node may use."""
        if device.id in self.claimed and device.id not in room.returned:
            return True
        if device.id.driver == DRIVER and not room.gpus[index] & self.gpus_among(index, [device.id]):
            return True
        return room.holds(device.id, index if device.place.node else None)

    def amounts(self, pod: PodView) -> tuple[tuple[int, int], ...]:
        """Return (column, amount) of what a pod asks for."""
        return tuple((self.column(name), amount) for name, amount in pod.request.items() if amount > 0)

    def eligible(self, pod: PodView) -> Bools:
        """Return which nodes the pod may use, apart from room. Remembered by the pod's shape."""
        known = self._eligible.get(pod.shape) if pod.shape else None
        if known is not None:
            return known[1]
        allowed = not pod.refusal
        mask = self._rules.permit(pod, self.views) if allowed else np.zeros(len(self.views), np.bool_)
        if pod.shape:
            while len(self._eligible) >= SHAPES_MAX:
                del self._eligible[next(iter(self._eligible))]
            self._eligible[pod.shape] = (pod, mask)
        return mask

    def level(self, key: str) -> int:
        """Return the position of a label among the levels, or -1."""
        return self.levels.index(key) if key in self.levels else -1

    def label_domains(self, key: str) -> tuple[Ints, int]:
        """Return the domain of each node by a label, int64 (N,), and how many there are.

        Cost: 0.3 µs a node the first time after a node has changed.
        """
        domains, ids = self._rules.domains(key, self.views)
        return domains, len(ids)

    def models(self) -> tuple[Ints, int]:
        """Return the model of each node's devices as a number, int64 (N,), and how many there are.

        Nodes that do not tell are of one model; those without devices count for nothing.
        """
        return self.model_of, max(len(self._model_ids), 1)

    def of_nodes(self, shape: bytes, compute: Callable[[], Ints]) -> Ints:
        """Return numbers by node that depend on the nodes alone, remembered by the shape of a pod."""
        found = self._of_nodes.get(shape) if shape else None
        if found is None:
            found = compute()
            if len(self._of_nodes) >= SHAPES_MAX:
                self._of_nodes.clear()
            if shape:
                self._of_nodes[shape] = found
        return found

    def total(self, resource: str) -> int:
        """Return what all nodes have of a resource together. Cost: one step for each node."""
        return sum(view.allocatable.get(resource, 0) for view in self.views)

    def idle(self) -> FreeResources:
        """Return the room of all nodes as if nothing ran: to look at, not to take from.

        Cost: 2 µs a node after a node has changed, then nothing.
        """
        if self._idle is None:
            self._idle = FreeResources(np.zeros_like(self.room.free), np.zeros_like(self.room.gpus))
            self._idle.gone, self._idle.returned = EVERYBODY, ALL_DEVICES
            for index, node in enumerate(self.views):
                self._offer(self._idle, index, node)
        return self._idle

    def tables(self, index: int) -> GpuTables | None:
        """Return how GPUs are chosen on a node; None where somebody else does that."""
        kind = int(self.kind_of[index])
        return self.kinds[kind] if kind >= 0 else None

    def _fill(self, index: int, node: NodeView) -> None:
        self.views[index] = node
        self._offer(self.room, index, node)
        self.room.gpus[index] &= ~self.gpus_among(index, self._claimed_of(node))
        self.kind_of[index] = self._kind(node, node.gpus) if node.gpus else -1
        model = self._model_ids.setdefault(node.model, len(self._model_ids)) if node.devices else 0
        self.model_of[index] = model
        self._rules.put(index, node)
        path: tuple[str, ...] = ()
        for position, key in enumerate(self.levels):
            path = (*path, node.labels.get(key, ""))
            ids = self._domain_ids[position]
            if path not in ids:
                ids[path] = len(ids)
                self.domain_names[position].append(path)
            self.domains[position, index] = ids[path] if path[-1] else NO_DOMAIN

    def _claimed_of(self, node: NodeView) -> list[DeviceId]:
        if not self.claimed:
            return []
        devices = (device.id for pool in node.pools for device in pool.devices)
        return [device for device in devices if device in self.claimed]

    def _offer(self, room: FreeResources, index: int, node: NodeView) -> None:
        for resource, amount in node.allocatable.items():
            column = self.column(resource)
            room.free[index, column] = amount
        room.gpus[index] = node.gpus.healthy if node.gpus else 0

    def _kind(self, node: NodeView, gpus: NodeGpus) -> int:
        tables = tables_of(with_cards(gpus.machine, node.labels), node.by_wires)
        if tables not in self.kinds:
            self.kinds.append(tables)
        return self.kinds.index(tables)


@lru_cache(maxsize=1 << 16)
def _shuffled(seed: int, name: str) -> bytes:
    """Return bytes that look random and are the same everywhere for one seed and name."""
    return blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()


def _by_certainty(pod: PodView) -> tuple[bool, str]:
    """Order: pods whose GPUs are known first, for the others have what was left."""
    return not pod.gpu_uuids, pod.key
