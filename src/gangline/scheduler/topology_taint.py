"""Keeps a taint on the nodes whose GPUs are chosen by their links, so that no other scheduler hands them out.

The label ``ack.node.gpu.schedule=topology`` turns it on, any other value or none off; of a value that is
not known an event tells. Pods that are placed here tolerate the taint without saying so; the pods of other
schedulers, DaemonSets too, need a toleration.
"""

from __future__ import annotations

from typing import Any

from gangline.api.core import Node
from gangline.api.resources import NODES
from gangline.errors import UserError
from gangline.kube.cache import Cache
from gangline.kube.errors import Conflict, NotFound
from gangline.kube.events import Recorder
from gangline.kube.queue import WorkQueue, work
from gangline.kube.verbs import ObjectClient
from gangline.placement.snapshot import BY_WIRES, BY_WIRES_TAINT, MODE_LABEL, unknown_mode
from gangline.topology import read_annotation
from gangline.topology.annotation import ANNOTATION as TOPOLOGY_ANNOTATION

CONFLICT_DELAY_S = 0.2


def wanted_taints(node: Node) -> list[dict[str, Any]] | None:
    """Return the taints that a node should have, in wire form; None when it has them. Pure."""
    is_on = node.metadata.labels.get(MODE_LABEL) == BY_WIRES
    others = [taint for taint in node.spec.taints if taint.key != BY_WIRES_TAINT.key]
    wanted = [*others, BY_WIRES_TAINT] if is_on else others
    own = [taint for taint in node.spec.taints if taint.key == BY_WIRES_TAINT.key]
    if own == ([BY_WIRES_TAINT] if is_on else []):
        return None
    return [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in wanted]


def unknown_topology(node: Node) -> str:
    """Return why a node that asks for GPUs by their links cannot have them chosen, or nothing. Pure."""
    if node.metadata.labels.get(MODE_LABEL) != BY_WIRES:
        return ""
    text = node.metadata.annotations.get(TOPOLOGY_ANNOTATION)
    if not text:
        why = f"it has no annotation {TOPOLOGY_ANNOTATION}"
    else:
        try:
            read_annotation(text, node=node.metadata.name)
        except UserError as error:
            why = str(error)
        else:
            return ""
    return f"labelled {MODE_LABEL}={BY_WIRES}, but {why}: its own device plugin goes on choosing GPUs"


class TopologyTaints:
    """Writes and removes the taint.

    Args:
        client: of the cluster.
        nodes: somebody else runs this cache.
        recorder: for events about nodes whose links are not known; None for no events.
    """

    def __init__(self, client: ObjectClient, nodes: Cache[Node], recorder: Recorder | None = None) -> None:
        self._client = client
        self._nodes = nodes
        self._recorder = recorder
        self._told: dict[str, str] = {}
        self._queue: WorkQueue[str] = WorkQueue()
        nodes.on_change(self._on_node)

    async def run(self) -> None:
        """Work until cancelled."""
        await work(self._queue, self._reconcile, workers=1)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is not None and wanted_taints(new) is not None:
            self._queue.add(new.metadata.name)
        if new is not None and self._recorder is not None:
            mode = unknown_mode(new.metadata.labels)
            message = mode or unknown_topology(new)
            if message and self._told.get(new.metadata.name) != message:
                reason = "UnknownMode" if mode else "UnknownTopology"
                self._recorder.event(
                    (NODES.api_version, NODES.kind, new.metadata), "Warning", reason, message
                )
            self._told[new.metadata.name] = message

    async def _reconcile(self, name: str) -> float | None:
        node = self._nodes.get(name)
        taints = wanted_taints(node) if node is not None else None
        if node is None or taints is None:
            return None
        version = {"resourceVersion": node.metadata.resource_version}  # somebody else may taint it meanwhile
        try:
            await self._client.patch(NODES, name, {"metadata": version, "spec": {"taints": taints}})
        except Conflict:
            return CONFLICT_DELAY_S
        except NotFound:
            return None
        return None
