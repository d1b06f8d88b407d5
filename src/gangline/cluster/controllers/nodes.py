"""Nodes that fall silent, and the pods of nodes that are gone.

Only nodes of this cluster's own agent are judged. One whose lease goes stale becomes ``Ready=Unknown``,
so that nothing new is placed there; its pods stay, because the agent is restarted at once and adopts them.
Pods that do not tolerate a ``NoExecute`` taint of their node are deleted. Pods bound to a node that was
deleted are failed and removed: right away when the deletion was seen, else after one grace. So are pods that
were deleted, of a silent node with the taint ``node.kubernetes.io/out-of-service``.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from gangline import clock
from gangline.api.core import Node, ObjectMeta, Pod
from gangline.api.resources import LEASES, NODES, PODS
from gangline.cluster.controllers.caches import BareObject, Caches, wait_synced
from gangline.cluster.controllers.node_plan import (
    LEASE_GRACE_S,
    given_up_pod_status,
    is_out_of_service,
    is_own,
    judge_node,
    lost_pod_status,
    stay_s,
    tainted_pod_status,
)
from gangline.kube.cache import Cache
from gangline.kube.errors import Conflict, NotFound
from gangline.kube.events import Recorder
from gangline.kube.queue import WorkQueue, work
from gangline.kube.verbs import ObjectClient

LEASE_NAMESPACE = "kube-node-lease"
WORKERS = 4

GIVE_UP_S = 1.0
"""After this time a pod that was driven away from a node that is out of service is removed."""


class NodeController:
    """Watches over nodes."""

    def __init__(self, client: ObjectClient, caches: Caches) -> None:
        self._client = client
        self._recorder = Recorder(client, "node-controller")
        self._nodes: Cache[Node] = caches.typed(NODES, Node)
        self._pods: Cache[Pod] = caches.typed(PODS, Pod)
        self._leases: Cache[BareObject] = caches.typed(LEASES, BareObject)
        self._queue: WorkQueue[str] = WorkQueue()
        self._heard_s: dict[str, float] = {}
        self._gone: set[str] = set()
        self._tainted_s: dict[str, float] = {}
        """Since when a pod, by its uid, has been seen on a node with taints that it tolerates for a time."""
        self._started_s = 0.0
        self._pods.add_index("node", lambda pod: [pod.spec.node_name] if pod.spec.node_name else [])
        self._nodes.on_change(self._on_node)
        self._leases.on_change(self._on_lease)
        self._pods.on_change(self._on_pod)

    async def run(self) -> None:
        """Work until cancelled."""
        self._started_s = asyncio.get_running_loop().time()
        await wait_synced(self._nodes, self._pods, self._leases)
        try:
            await work(self._queue, self.reconcile, workers=WORKERS)
        finally:
            await self._recorder.close()

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None and old is not None:
            self._gone.add(old.metadata.name)
            self._heard_s.pop(old.metadata.name, None)
            self._queue.add(old.metadata.name)
        elif new is not None:
            self._gone.discard(new.metadata.name)
            # One that comes again has not been silent while it was away.
            self._heard_s.setdefault(new.metadata.name, asyncio.get_running_loop().time())
            if (
                old is None
                or old.status.conditions != new.status.conditions
                or old.spec.taints != new.spec.taints
            ):
                self._queue.add(new.metadata.name)

    def _on_lease(self, old: BareObject | None, new: BareObject | None) -> None:
        if new is None or new.metadata.namespace != LEASE_NAMESPACE:
            return
        name = new.metadata.name
        is_first = old is None and name not in self._heard_s
        self._heard_s[name] = asyncio.get_running_loop().time()
        node = self._nodes.get(name)
        if is_first or (node is not None and not node.is_ready):
            self._queue.add(name)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        is_bound_now = new is not None and new.spec.node_name and (old is None or not old.spec.node_name)
        if new is None and old is not None:
            self._tainted_s.pop(old.metadata.uid, None)
        if new is not None and is_bound_now:
            node = self._nodes.get(new.spec.node_name)
            if node is None or node.spec.taints:
                self._queue.add(new.spec.node_name)

    async def reconcile(self, name: str) -> float | None:
        """Judge one node; returns when to look again, in seconds."""
        node = self._nodes.get(name)
        if node is None:
            return await self._clear(name)
        evict_s = await self._evict(node)
        if not is_own(node):
            return evict_s
        now_s = asyncio.get_running_loop().time()
        silent_s = now_s - max(self._heard_s.get(name, 0.0), self._started_s)
        health = judge_node(node, silent_s=silent_s, when=clock.format_time(clock.now()))
        if health.condition is not None:
            patch = {"status": {"conditions": [health.condition]}}
            try:
                await self._client.patch(NODES, name, patch, kind="strategic", subresource="status")
            except NotFound:
                return None
            reason = "NodeReady" if health.condition["status"] == "True" else "NodeNotReady"
            self._recorder.event(
                (NODES.api_version, NODES.kind, node.metadata), "Normal", reason, health.condition["message"]
            )
        return min((one for one in (evict_s, health.look_again_s) if one is not None), default=None)

    async def _evict(self, node: Node) -> float | None:
        """Delete the pods that the node's taints drive away; return when the next one has to go."""
        now_s, waits = asyncio.get_running_loop().time(), []
        gives_up = is_out_of_service(node)
        for pod in self._pods.by_index("node", node.metadata.name):
            if gives_up and pod.metadata.deletion_timestamp is not None:
                await self._remove(pod, given_up_pod_status(pod))
                continue
            uid, limit_s = pod.metadata.uid, stay_s(node, pod)
            if limit_s is None or pod.metadata.deletion_timestamp is not None or pod.is_finished:
                self._tainted_s.pop(uid, None)
                continue
            left_s = self._tainted_s.setdefault(uid, now_s) + limit_s - now_s
            if left_s > 0:
                waits.append(left_s)
            else:
                await self._drive_away(pod)
                waits += [GIVE_UP_S] if gives_up else []
        return min(waits, default=None)

    async def _drive_away(self, pod: Pod) -> None:
        meta = pod.metadata
        about = (PODS.api_version, PODS.kind, meta)
        self._recorder.event(about, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {meta.key}")
        patch = tainted_pod_status(pod, clock.format_time(clock.now()))
        with contextlib.suppress(NotFound, Conflict):
            await self._client.patch(
                PODS, meta.name, patch, meta.namespace, kind="strategic", subresource="status"
            )
            await self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid)

    async def _clear(self, name: str) -> float | None:
        """Fail and remove the pods of a node that is not there."""
        pods = self._pods.by_index("node", name)
        if not pods:
            self._gone.discard(name)
            return None
        waited_s = asyncio.get_running_loop().time() - self._started_s
        if name not in self._gone and waited_s < LEASE_GRACE_S:
            return LEASE_GRACE_S - waited_s  # after a start, nodes may yet come back
        try:
            await self._client.get(NODES, name)
        except NotFound:
            for pod in pods:
                await self._remove(pod, lost_pod_status(pod, clock.format_time(clock.now())))
        return None

    async def _remove(self, pod: Pod, patch: dict[str, Any]) -> None:
        """Write how a pod ended, of which its node will say nothing, and delete it."""
        meta: ObjectMeta = pod.metadata
        try:
            if not pod.is_finished:
                await self._client.patch(
                    PODS, meta.name, patch, meta.namespace, kind="strategic", subresource="status"
                )
            await self._client.delete(PODS, meta.name, meta.namespace, grace_period_s=0, uid=meta.uid)
        except (NotFound, Conflict):
            return
