"""The scheduler: caches in, placement decides, bindings and conditions out.

A pass runs as soon as something has changed that may let a waiting pod in, and looks at all waiting gangs at
once; changes that come while the caches deliver a batch are taken together. Gangs are bound concurrently.
What waits gets the condition ``PodScheduled=False`` and an event, both only when the message changes, and its
PodGroup the first binding reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from gangline import clock
from gangline.api.core import Node, Pod
from gangline.api.resources import NODES, PODS
from gangline.kube.cache import Cache
from gangline.kube.client import Client
from gangline.kube.errors import Conflict, NotFound, Unavailable
from gangline.kube.events import Recorder
from gangline.placement.decisions import Binding, Decisions, Eviction, Unschedulable
from gangline.placement.policy import Policy
from gangline.placement.schedule import Pass
from gangline.placement.snapshot import PodView
from gangline.scheduler.advice import Advice
from gangline.scheduler.binder import Binder, regarding
from gangline.scheduler.by_wires import ByWiresTaints
from gangline.scheduler.group_watch import GroupWatch
from gangline.scheduler.state import SchedulerState

DEFAULT_NAMES = ("gangline-scheduler", "default-scheduler")
"""``spec.schedulerName`` of the pods that are placed here."""

RETRY_DELAY_S = 1.0
RETRY_DELAY_MAX_S = 60.0
"""A gang that could not be bound is tried again after the first; each failure in a row doubles the pause."""

OVERDUE_CHECK_S = 60.0
"""While gangs wait, a pass runs at least this often, for waiting itself changes who is first."""

FORMING_S = 2.0
"""For so long nobody is told that a gang lacks pods, or its PodGroup: they are being created."""

REJECTED = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "Preempting")
"""Reasons, or beginnings of them, of pods that their kubelet refused after the binding."""


class Scheduler:
    """Places pods on nodes until cancelled.

    Args:
        client: of the cluster to schedule.
        names: the scheduler names that are answered for.
        policy: levels of the network, who may pass whom; queues are read from the cluster.
    """

    def __init__(
        self, client: Client, *, names: tuple[str, ...] = DEFAULT_NAMES, policy: Policy | None = None
    ) -> None:
        self._recorder = Recorder(client, names[0])
        self._binder = Binder(client, self._recorder)
        self._nodes: Cache[Node] = Cache(client, NODES, Node)
        self._pods: Cache[Pod] = Cache(client, PODS, Pod)
        self._policy = policy or Policy()
        self._state = SchedulerState(names, self._policy.levels)
        self._groups = GroupWatch(client, self._state, self._wake)
        self._is_due = asyncio.Event()
        self._taken_back: dict[str, frozenset[str]] = {}
        self._advice = Advice()
        self._taints = ByWiresTaints(client, self._nodes)
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: dict[str, int] = {}
        self._evicted: set[str] = set()
        self._forming: dict[str, float] = {}
        self._nodes.on_change(self._on_node)
        self._pods.on_change(self._on_pod)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run(), name="scheduler nodes")
            group.create_task(self._pods.run(), name="scheduler pods")
            group.create_task(self._groups.run(), name="scheduler groups")
            group.create_task(self._taints.run(), name="scheduler taints")
            await _wait_synced(self._nodes)
            await _wait_synced(self._pods)
            await self._groups.ready()
            try:
                while True:
                    await self._due()
                    await asyncio.sleep(0)  # let the caches finish the batch that they are delivering
                    self._is_due.clear()
                    self._pass()
            finally:
                for task in self._tasks:
                    task.cancel()
                await self._recorder.close()

    async def _due(self) -> None:
        pause = OVERDUE_CHECK_S if self._state.waiting() else None
        try:
            await asyncio.wait_for(self._is_due.wait(), pause)
        except TimeoutError:
            return

    def _wake(self) -> None:
        self._is_due.set()

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if self._state.take_node(old, new):
            self._wake()
        if new is not None:
            self._check_gpus(new.metadata.name)

    def _check_gpus(self, node: str) -> None:
        """Take back every gang that holds an unhealthy GPU of a node; its pods are made and placed anew."""
        for gang, message in self._state.on_unhealthy_gpus(node).items():
            bound = [pod for pod in self._state.members(gang) if pod.node_name]
            uids = frozenset(pod.uid for pod in bound)
            if self._taken_back.get(gang) == uids:
                continue  # they are on their way out
            self._taken_back = {key: old for key, old in self._taken_back.items() if self._state.members(key)}
            self._taken_back[gang] = uids
            text = f"{message}; the gang starts anew"
            self._start(self._binder.take_away(_named(bound), text, event="UnhealthyGPU"))

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and new.status.phase == "Failed" and new.status.reason.startswith(REJECTED):
            self._on_rejection(old, new)
        if self._state.take_pod(old, new):
            self._wake()
        if new is not None and new.spec.node_name and (old is None or not old.spec.node_name):
            self._check_gpus(new.spec.node_name)

    def _on_rejection(self, old: Pod | None, new: Pod) -> None:
        """Take back a gang of which a node has refused a pod: another scheduler filled the node meanwhile."""
        if old is None or old.is_finished:
            return
        view = PodView.from_pod(new)
        if not view.gang:
            return
        others = [pod for pod in self._state.members(view.gang) if pod.uid != view.uid and pod.node_name]
        message = f"node {new.spec.node_name} refused {view.key} ({new.status.reason}); its gang starts anew"
        self._start(self._binder.take_away([(view.key, view.uid), *_named(others)], message))
        self._pause(view.gang, [pod.uid for pod in self._state.members(view.gang) if not pod.node_name])

    def _pass(self) -> None:
        """Decide once for all waiting gangs, and start the writes."""
        gangs = self._state.gangs()
        if not gangs:
            return
        policy = self._groups.policy(self._policy)
        fleet, holders = self._state.fleet(), self._state.holders
        decisions = Pass(fleet, holders, policy, now=clock.now()).run(gangs)
        decisions = self._advice.added(decisions, gangs, fleet, holders)
        keys = {pod.uid: gang.key for gang in gangs for pod in gang.pods if pod.gang}
        self._carry_out(decisions, keys)

    def _carry_out(self, decisions: Decisions, keys: dict[str, str]) -> None:
        together: dict[str, list[Binding]] = {}
        for binding in decisions.bindings:
            self._state.assume(binding)
            together.setdefault(keys.get(binding.uid, binding.pod), []).append(binding)
        for key, bindings in together.items():
            self._start(self._commit(key, bindings))
        for eviction in decisions.evictions:
            if eviction.gang not in self._evicted:
                self._evicted.add(eviction.gang)
                self._start(self._evict(eviction))
        forming = self._still_forming(decisions)
        for entry in decisions.unschedulable:
            if keys.get(entry.uid) not in forming and not self._state.is_said(entry.uid, entry.message):
                self._start(self._report(entry))
        told = tuple(wait for wait in decisions.waits if wait.gang not in forming)
        self._groups.tell(told, together.keys())

    def _still_forming(self, decisions: Decisions) -> set[str]:
        """Return the gangs that lack something only since a moment; they are looked at again."""
        loop = asyncio.get_running_loop()
        lacking = {wait.gang for wait in decisions.waits if wait.reason in ("Incomplete", "NoGroup")}
        self._forming = {key: self._forming.get(key, loop.time()) for key in lacking}
        forming = {key for key, since in self._forming.items() if loop.time() - since < FORMING_S}
        if forming:
            loop.call_later(FORMING_S, self._wake)
        return forming

    def _start(self, write: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(write)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit(self, key: str, bindings: list[Binding]) -> None:
        """Bind a gang; when a pod of it cannot be bound, take all of this attempt back."""
        failed = await self._binder.bind_all(bindings)
        if not failed:
            self._failures.pop(key, None)
            return
        for binding, error in failed:
            self._state.revoke(binding)
            if not isinstance(error, NotFound | Conflict):
                message = f"binding to {binding.node} failed: {error}"
                entry = regarding(binding.pod, binding.uid)
                self._recorder.event(entry, "Warning", "FailedScheduling", message)
        broken = {binding.uid for binding, _ in failed}
        bound = [(binding.pod, binding.uid) for binding in bindings if binding.uid not in broken]
        if bound:
            first, error = failed[0]
            message = f"{first.pod} of the same gang could not be bound ({error}); the gang starts anew"
            await self._binder.take_away(bound, message)
        self._pause(key, broken)

    def _pause(self, gang: str, uids: Iterable[str]) -> None:
        """Let the waiting pods of a gang wait a moment, longer each time."""
        count = self._failures[gang] = self._failures.get(gang, 0) + 1
        chosen = list(uids)
        self._state.pause(chosen)
        delay = min(RETRY_DELAY_S * 2 ** (count - 1), RETRY_DELAY_MAX_S)
        asyncio.get_running_loop().call_later(delay, self._resume, chosen)

    def _resume(self, uids: list[str]) -> None:
        waiting = [uid for uid in uids if self._state.resume(uid)]
        if waiting:
            self._wake()

    async def _evict(self, eviction: Eviction) -> None:
        message = f"gave way to {eviction.beneficiary}, which has a higher priority"
        try:
            await self._binder.take_away(zip(eviction.pods, eviction.uids, strict=True), message)
        finally:
            self._evicted.discard(eviction.gang)

    async def _report(self, entry: Unschedulable) -> None:
        if not await self._binder.report(entry.pod, entry.uid, entry.message):
            self._state.unsay(entry.uid)  # said again with the next pass


def _named(pods: Iterable[PodView]) -> list[tuple[str, str]]:
    return [(pod.key, pod.uid) for pod in pods]


async def _wait_synced(cache: Cache[Any]) -> None:
    """Wait for the first list, however long the server takes to come up."""
    while True:
        try:
            return await cache.wait_synced()
        except Unavailable:
            continue
