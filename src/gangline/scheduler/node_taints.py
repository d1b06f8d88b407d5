"""Keeps the scheduler's own taints on nodes, so that no other scheduler hands out what is decided here.

Nodes whose GPUs are chosen by their links have one as long as the label ``ack.node.gpu.schedule=topology`` is
there; any other value or none turns it off, and of a value that is not known an event tells. Nodes that are
held, see :mod:`gangline.scheduler.fence`, have another for the moment. Pods that are placed here tolerate
both without saying so; the pods of other schedulers, DaemonSets too, need a toleration.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from gangline.api.core import Node
from gangline.api.resources import NODES
from gangline.errors import UserError
from gangline.kube.cache import Cache
from gangline.kube.errors import ApiError, Conflict, NotFound
from gangline.kube.events import Recorder
from gangline.kube.queue import WorkQueue, work
from gangline.kube.verbs import ObjectClient
from gangline.placement.snapshot import (
    BY_WIRES,
    BY_WIRES_TAINT,
    HELD_TAINT,
    MODE_LABEL,
    OWN_TAINTS,
    unknown_mode,
)
from gangline.topology import read_annotation
from gangline.topology.annotation import ANNOTATION as TOPOLOGY_ANNOTATION

CONFLICT_DELAY_S = 0.05
WRITES_AT_ONCE_MAX = 8
CLOSE_LIMIT_S = 2.0


def wanted_taints(node: Node, *, is_held: bool = False) -> list[dict[str, Any]] | None:
    """Return the taints that a node should have, in wire form; None when it has them. Pure."""
    by_wires = node.metadata.labels.get(MODE_LABEL) == BY_WIRES
    own = [BY_WIRES_TAINT] * by_wires + [HELD_TAINT] * is_held
    others = [taint for taint in node.spec.taints if taint.key not in OWN_TAINTS]
    if [taint for taint in node.spec.taints if taint.key in OWN_TAINTS] == own:
        return None
    return [msgspec.to_builtins(taint) for taint in (*others, *own)]


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


class NodeTaints:
    """Writes and removes the taints; one that somebody left by :meth:`hold` and an end goes too.

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
        self._held: Counter[str] = Counter()
        self._node_changed = asyncio.Event()
        self._queue: WorkQueue[str] = WorkQueue()
        nodes.on_change(self._on_node)

    async def run(self) -> None:
        """Work until cancelled."""
        await work(self._queue, self._reconcile, workers=WRITES_AT_ONCE_MAX)

    def hold(self, names: Iterable[str]) -> None:
        """Hold nodes until as many calls of :meth:`release`."""
        for name in names:
            self._held[name] += 1
            self._queue.add(name)

    def release(self, names: Iterable[str]) -> None:
        """Hold nodes no longer."""
        for name in names:
            self._held[name] -= 1
            if self._held[name] <= 0:  # after close() too
                del self._held[name]
                self._queue.add(name)

    async def close(self) -> None:
        """Hold nothing any more, as far as the API server answers in time."""
        names = list(self._held)
        self._held.clear()
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await asyncio.gather(*map(self._reconcile, names))

    async def until_held(self, names: Iterable[str]) -> None:
        """Wait until the API server says that these nodes are held."""
        wanted = list(names)
        while any((node := self._nodes.get(name)) and HELD_TAINT not in node.spec.taints for name in wanted):
            self._node_changed.clear()
            await self._node_changed.wait()

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        self._node_changed.set()
        if new is not None and self._wanted(new) is not None:
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

    def _wanted(self, node: Node) -> list[dict[str, Any]] | None:
        return wanted_taints(node, is_held=node.metadata.name in self._held)

    async def _reconcile(self, name: str) -> float | None:
        node = self._nodes.get(name)
        taints = self._wanted(node) if node is not None else None
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
