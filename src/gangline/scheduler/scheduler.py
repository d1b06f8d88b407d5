"""The scheduler: caches in, placement decides, bindings and conditions out.

A pass runs as soon as something has changed that may let a waiting pod in, and looks at all waiting pods at
once; changes that come while the caches deliver a batch are taken together. Bindings are written
concurrently. A pod that does not fit gets the condition ``PodScheduled=False`` and an event, both only
when the message changes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from gangline import clock
from gangline.api.core import Node, ObjectMeta, Pod
from gangline.api.resources import NODES, PODS
from gangline.kube.cache import Cache
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, Conflict, NotFound, Unavailable
from gangline.kube.events import Recorder
from gangline.placement.decisions import Binding, Unschedulable
from gangline.placement.first_fit import schedule
from gangline.scheduler.state import SchedulerState

DEFAULT_NAMES = ("gangline-scheduler", "default-scheduler")
"""``spec.schedulerName`` of the pods that are placed here."""

WRITES_AT_ONCE_MAX = 32

RETRY_DELAY_S = 1.0
"""A pod whose binding the server refused is tried again after this."""


class Scheduler:
    """Places pods on nodes until cancelled.

    Args:
        client: of the cluster to schedule.
        names: the scheduler names that are answered for.
    """

    def __init__(self, client: Client, *, names: tuple[str, ...] = DEFAULT_NAMES) -> None:
        self._client = client
        self._recorder = Recorder(client, names[0])
        self._nodes: Cache[Node] = Cache(client, NODES, Node)
        self._pods: Cache[Pod] = Cache(client, PODS, Pod)
        self._state = SchedulerState(names)
        self._is_due = asyncio.Event()
        self._writes = asyncio.Semaphore(WRITES_AT_ONCE_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._nodes.on_change(self._on_node)
        self._pods.on_change(self._on_pod)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run(), name="scheduler nodes")
            group.create_task(self._pods.run(), name="scheduler pods")
            await _wait_synced(self._nodes)
            await _wait_synced(self._pods)
            try:
                while True:
                    await self._is_due.wait()
                    await asyncio.sleep(0)  # let the caches finish the batch that they are delivering
                    self._is_due.clear()
                    self._pass()
            finally:
                for task in self._tasks:
                    task.cancel()
                await self._recorder.close()

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if self._state.take_node(old, new):
            self._is_due.set()

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if self._state.take_pod(old, new):
            self._is_due.set()

    def _pass(self) -> None:
        """Decide once for all waiting pods, and start the writes."""
        waiting = self._state.waiting()
        if not waiting:
            return
        decisions = schedule(self._state.snapshot(), waiting, now=clock.now())
        for binding in decisions.bindings:
            self._state.assume(binding)
            self._start(self._bind(binding))
        for entry in decisions.unschedulable:
            if not self._state.is_said(entry.uid, entry.message):
                self._start(self._report(entry))

    def _start(self, write: Any) -> None:
        task = asyncio.get_running_loop().create_task(write)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bind(self, binding: Binding) -> None:
        namespace, name = binding.pod.split("/", 1)
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": binding.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
        }
        try:
            async with self._writes:
                await self._client.create_subresource(PODS, name, "binding", body, namespace)
        except ApiError as error:
            self._take_back(binding, error)
            return
        message = f"Successfully assigned {binding.pod} to {binding.node}"
        self._recorder.event(_regarding(binding), "Normal", "Scheduled", message)

    def _take_back(self, binding: Binding, error: ApiError) -> None:
        """Release the room of a binding that failed, and try again later unless the pod is gone."""
        self._state.revoke(binding)
        if not isinstance(error, NotFound | Conflict):
            message = f"binding to {binding.node} failed: {error}"
            self._recorder.event(_regarding(binding), "Warning", "FailedScheduling", message)
        asyncio.get_running_loop().call_later(RETRY_DELAY_S, self._resume, binding.uid)

    def _resume(self, uid: str) -> None:
        if self._state.resume(uid):
            self._is_due.set()

    async def _report(self, entry: Unschedulable) -> None:
        namespace, name = entry.pod.split("/", 1)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": entry.message,
            "lastTransitionTime": clock.format_time(clock.now()),
        }
        patch = {"metadata": {"uid": entry.uid}, "status": {"conditions": [condition]}}
        self._recorder.event(_regarding(entry), "Warning", "FailedScheduling", entry.message)
        try:
            async with self._writes:
                await self._client.patch(PODS, name, patch, namespace, kind="strategic", subresource="status")
        except ApiError:
            self._state.unsay(entry.uid)  # said again with the next pass


async def _wait_synced(cache: Cache[Any]) -> None:
    """Wait for the first list, however long the server takes to come up."""
    while True:
        try:
            return await cache.wait_synced()
        except Unavailable:
            continue


def _regarding(entry: Binding | Unschedulable) -> tuple[str, str, ObjectMeta]:
    namespace, name = entry.pod.split("/", 1)
    return "v1", "Pod", ObjectMeta(name=name, namespace=namespace, uid=entry.uid)
