"""The scheduler: caches in, placement decides, bindings and conditions out.

A pass runs as soon as something has changed that may let a waiting pod in, and looks at all waiting gangs at
once; changes that come while the caches deliver a batch are taken together. Gangs are bound concurrently.
What waits gets the condition ``PodScheduled=False`` and an event, both only when the message changes, and its
PodGroup the first binding reason.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from gangline import clock
from gangline.api.core import Node, ObjectMeta, Pod
from gangline.api.crds import gang_crds
from gangline.api.definitions import DefinitionOrigin
from gangline.api.resources import CRDS, NODES, PODS
from gangline.kube.cache import Cache
from gangline.kube.definitions import watch_definitions
from gangline.kube.errors import Conflict, NotFound
from gangline.kube.events import Recorder, Regarding
from gangline.kube.verbs import ObjectClient
from gangline.placement import (
    Binding,
    Decisions,
    Eviction,
    Gang,
    PodView,
    Policy,
    SchedulingCycle,
    Snapshot,
    Wait,
    Workload,
    next_moment,
)
from gangline.scheduler.binder import Binder, regarding
from gangline.scheduler.budget_watch import BudgetWatch
from gangline.scheduler.claim_watch import ClaimWatch
from gangline.scheduler.explained.advice import Advice
from gangline.scheduler.explained.answers import SchedulerAnswer, answer
from gangline.scheduler.explained.published import DEFAULT_NAMES
from gangline.scheduler.fence import Fence
from gangline.scheduler.gang_times import FORMING, Forming, GangBackoff
from gangline.scheduler.group_watch import GroupWatch
from gangline.scheduler.job_watch import JobWatch
from gangline.scheduler.kept import KeptPod, SeenPod, kept_node, kept_pod
from gangline.scheduler.namespace_watch import NamespaceWatch
from gangline.scheduler.node_taints import NodeTaints
from gangline.scheduler.reports import Reports
from gangline.scheduler.state import SchedulerState
from gangline.scheduler.storage_watch import StorageWatch
from gangline.scheduler.suspended_gangs import SuspendedGangs
from gangline.scheduler.tally import SchedulerStatistics
from gangline.workloads.requests import counts_as_gpu

OVERDUE_CHECK_S = 60.0
"""While gangs wait, a pass runs at least this often."""

EVENTS_MAX = 20_000
"""Events that wait while pods are bound; more are dropped."""

EVENTS_AT_ONCE = 32
"""Events that are sent at once, when no pods are bound."""

BARE = (
    "it stays as it is, for no controller would make it again: "
    "to have it placed anew, delete it and create it again"
)
"""What is said of a pod that is not taken back with its gang."""


class Scheduler:
    """Places pods on nodes until cancelled.

    Args:
        client: of the cluster to schedule.
        names: the scheduler names that are answered for.
        policy: levels of the network, who may pass whom; queues are read from the cluster.
        node_selector: labels of the nodes that may be used; the others are left to other schedulers.
    """

    def __init__(
        self,
        client: ObjectClient,
        *,
        names: tuple[str, ...] = DEFAULT_NAMES,
        policy: Policy | None = None,
        node_selector: str = "",
    ) -> None:
        self._names = names
        self._client = client
        self.notes: tuple[str, ...] = ()
        """What an administrator should know of the cluster, in words."""
        quiet = asyncio.Event()  # events give way to bindings, and the status of PodGroups
        self._recorder = Recorder(client, names[0], gate=quiet, queue_max=EVENTS_MAX, together=EVENTS_AT_ONCE)
        self._binder = Binder(client, self._recorder, quiet)
        self._nodes: Cache[Node] = Cache(client, NODES, Node, label_selector=node_selector, keep=kept_node)
        self._pods: Cache[Pod] = Cache(client, PODS, Pod, keep=kept_pod)
        self._policy = policy or Policy()
        self._state = SchedulerState(names, self._policy.levels)
        self._groups = GroupWatch(client, self._state, self._wake, names, self._recorder, quiet)
        self._storage = StorageWatch(client, self._state, self._wake)
        self._claims = ClaimWatch(client, self._state, self._wake)
        self._namespaces = NamespaceWatch(client, self._state, self._wake)
        self._budgets = BudgetWatch(client, self._state)
        self._suspended = SuspendedGangs(self._state)
        self._jobs = JobWatch(client, self._suspended, self._wake, self._recorder)
        self._is_due = asyncio.Event()
        self._told_to_wait: list[Gang] = []
        self._warned: dict[str, str] = {}
        self._taken_back: dict[str, frozenset[str]] = {}
        self._advice = Advice()
        self._taints = NodeTaints(client, self._nodes, self._recorder)
        self._fence = Fence(self._taints, names)
        self._tasks: set[asyncio.Task[None]] = set()
        self._backoff = GangBackoff()
        self._pauses: dict[str, asyncio.TimerHandle] = {}
        self._refused_before: list[Pod] = []
        self.is_synced = False
        """Whether nodes, pods and gangs have been seen once."""
        self._statistics = SchedulerStatistics()
        self._evicted: set[str] = set()
        self._forming = Forming()
        self._reports = Reports(self._binder.report, names, quiet)
        self._next_look: asyncio.TimerHandle | None = None
        self._nodes.on_change(self._on_node)
        self._pods.on_change(self._on_pod)

    def statistics(self) -> SchedulerStatistics:
        """Return what has been counted so far; the same object goes on counting."""
        self._statistics.events_dropped = self._recorder.dropped_count
        return self._statistics

    def snapshot(self) -> Snapshot:
        """Return the nodes, and the pods that hold room on them, as of now."""
        return self._state.snapshot()

    def explain(self, gang: str, workload: Workload) -> SchedulerAnswer:
        """Return why a gang waits, by the pass that would be made now."""
        gangs, policy = self._jobs.begin(self._state.gangs()), self._groups.policy(self._policy)
        behind_s = max(self._nodes.behind_s, self._pods.behind_s)
        return answer(self._state, gangs, gang, policy, workload, behind_s)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run(), name="scheduler nodes")
            group.create_task(self._pods.run(), name="scheduler pods")
            group.create_task(self._groups.run(), name="scheduler groups")
            group.create_task(self._storage.run(), name="scheduler storage")
            group.create_task(self._claims.run(), name="scheduler claims")
            group.create_task(self._namespaces.run(), name="scheduler namespaces")
            group.create_task(self._budgets.run(), name="scheduler budgets")
            group.create_task(self._taints.run(), name="scheduler taints")
            group.create_task(self._jobs.run(), name="scheduler jobs")
            group.create_task(self._reports.run(), name="scheduler reports")
            group.create_task(
                watch_definitions(self._client, gang_crds(), self._on_strangers), name="scheduler definitions"
            )
            await self._nodes.wait_synced(None)
            await self._pods.wait_synced(None)
            await self._groups.ready()
            await self._storage.ready()
            await self._claims.ready()
            await self._namespaces.ready()
            await self._budgets.ready()
            await self._jobs.ready()
            self.is_synced = True
            for pod in self._refused_before:
                self._on_refusal(None, pod)
            self._refused_before.clear()
            try:
                while True:
                    await self._due()
                    await asyncio.sleep(0)  # let the caches finish the batch that they are delivering
                    self._is_due.clear()
                    self._pass()
            finally:
                for task in self._tasks:
                    task.cancel()
                await self._taints.close()
                await self._recorder.close()

    async def _due(self) -> None:
        """Wait for a change, or for the moment at which time alone may let a waiting gang in."""
        if self._is_due.is_set():
            return
        pause_s = OVERDUE_CHECK_S if self._state.waiting() or self._told_to_wait else None
        if self._told_to_wait:
            now, policy = clock.now(), self._groups.policy(self._policy)
            if moment := next_moment(self._told_to_wait, self._state.allocations, policy, now):
                pause_s = min(OVERDUE_CHECK_S, (moment - now).total_seconds())
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._is_due.wait()

    def _on_strangers(self, found: list[DefinitionOrigin]) -> None:
        """Say that a definition of ours was changed; those of Volcano and scheduler-plugins are as good."""
        self.notes = tuple(verdict.message for verdict in found if verdict.state == "changed")
        for verdict in found:
            if verdict.state == "changed":
                about = Regarding(CRDS.api_version, CRDS.kind, ObjectMeta(name=verdict.name))
                self._recorder.event(about, "Warning", "DefinitionReplaced", verdict.message)

    def _wake(self) -> None:
        self._is_due.set()

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if self._state.take_node(old, new):
            self._wake()
        if new is not None:
            self._check_gpus(new.metadata.name)

    def _check_gpus(self, node: str) -> None:
        """Take back every gang that holds an unhealthy GPU of a node; its pods are made and placed anew."""
        for pod, index in self._state.on_unhealthy_gpus(node):
            message = f"GPU {index} of node {node}, which {pod.key} holds, is unhealthy"
            if pod.gang:
                self._take_back(pod.gang, message, "UnhealthyGPU")
            elif self._warned.get(pod.uid) != message:
                self._warned = {
                    uid: text for uid, text in self._warned.items() if self._state.allocations.get(uid)
                }
                self._warned[pod.uid] = message
                text = f"{message}; it keeps it, for a pod of no gang would not be made again"
                self._recorder.event(regarding(pod.key, pod.uid), "Warning", "UnhealthyGPU", text)

    def _on_pod(self, old: SeenPod | None, new: Pod | None) -> None:
        if new is not None and new.is_refused and not (old is not None and old.is_finished):
            self._on_refusal(old, new)
        self._reports.take_pod(old, new)
        if self._state.take_pod(old, new):
            self._wake()
        elif self._state.growing:
            self._on_growing()
        if new is not None:
            self._suspended.take_pod(new)
            self._claims.take_pod(new)
        self._groups.take_pod(old, new)
        self._fence.take_pod(old, new)
        was_bound = isinstance(old, KeptPod) and old.is_bound
        if new is not None and new.spec.node_name and not was_bound:
            self._check_gpus(new.spec.node_name)

    def _on_refusal(self, old: SeenPod | None, new: Pod) -> None:
        """Take back a gang of which a node has refused a pod: another scheduler filled the node meanwhile."""
        pod = self._state.view_of(new)
        if not pod.gang or new.spec.scheduler_name not in self._names:
            return
        if not self.is_synced:
            self._refused_before.append(new)
        elif old is not None or self._state.is_broken(pod.gang, pod.gang_size):
            message = f"node {pod.node_name} refused {pod.key} ({new.status.reason})"
            self._take_back(pod.gang, message, "NodeRefused", also=pod)
            self._pause(pod.gang, message)

    def _take_back(self, gang: str, why: str, event: str, *, also: PodView | None = None) -> None:
        """Take the bound pods of a gang back, once."""
        pods = {pod.uid: pod for pod in self._state.members(gang) if pod.node_name and not pod.is_ending}
        if also is not None:
            pods[also.uid] = also
        known = self._taken_back.get(gang, frozenset())
        if known.issuperset(pods):
            return  # they are on their way out
        self._taken_back = {key: old for key, old in self._taken_back.items() if self._state.members(key)}
        self._taken_back[gang] = known.union(pods)
        self._release([pod for uid, pod in pods.items() if uid not in known], why, event, is_first=not known)

    def _release(self, pods: list[PodView], why: str, event: str, *, is_first: bool = True) -> None:
        """Delete pods whose controller makes them anew, to be placed together; tell of those without one.

        A bare pod is its user's only copy: it stays, bound, and the rest of its gang joins it where it can.
        """
        if gone := [(pod.key, pod.uid) for pod in pods if pod.is_controlled]:
            self._statistics.gangs_taken_back[event] += is_first
            self._start(self._binder.take_away(gone, f"{why}; the gang starts anew", event=event))
        for pod in pods:
            if not pod.is_controlled:
                self._recorder.event(regarding(pod.key, pod.uid), "Warning", event, f"{why}; {BARE}")

    def _pass(self) -> None:
        """Decide once for all waiting gangs, and start the writes."""
        gangs = self._jobs.begin(self._state.gangs())
        self._told_to_wait = []
        if not gangs:
            self._fence.keep(())
            self._statistics.waiting = Counter(BackOff=len(self._pauses)) if self._pauses else Counter()
            return
        started_s = time.perf_counter()
        policy = self._groups.policy(self._policy)
        table, allocations = self._state.table(), self._state.allocations
        decisions = SchedulingCycle(table, allocations, policy, now=clock.now()).run(gangs)
        self._statistics.gangs_suspended += len(decisions.suspensions)
        waiting = {wait.gang for wait in decisions.waits}
        self._told_to_wait = [gang for gang in gangs if gang.key in waiting]
        decisions = self._jobs.carried_out(decisions)
        decisions = self._advice.added(decisions, gangs, table, allocations)
        keys = {pod.uid: gang.key for gang in gangs for pod in gang.pods if pod.gang}
        self._carry_out(decisions, keys)
        self._fence.keep(decisions.kept_nodes if self._fence.is_needed else ())
        self._statistics.passes.add(time.perf_counter() - started_s)
        self._statistics.waiting = Counter(wait.reason for wait in decisions.waits)
        if self._pauses:
            self._statistics.waiting["BackOff"] = len(self._pauses)
        self._take_back_halves(decisions, gangs)

    def _take_back_halves(self, decisions: Decisions, gangs: list[Gang]) -> None:
        """Take back what an earlier leader has bound half, and what cannot be completed now."""
        waits = {wait.gang: wait for wait in decisions.waits if wait.reason not in FORMING}
        for gang in gangs:
            wait = waits.get(gang.key)
            if wait is not None and gang.pods[0].gang and (half := self._state.half_bound(gang)):
                message = f"only {len(half)} of the gang's pods were bound, and {wait.message}"
                self._take_back(gang.key, message, "HalfBound")

    def _carry_out(self, decisions: Decisions, keys: dict[str, str]) -> None:
        together: dict[str, list[Binding]] = {}
        for binding in decisions.bindings:
            self._state.assume(binding)
            self._reports.forget(binding.uid)
            together.setdefault(keys.get(binding.uid, binding.pod), []).append(binding)
        self._statistics.gangs_placed += len(together)
        for key, bindings in together.items():
            is_held = self._fence.is_needed and self._state.is_gang(bindings)
            self._start(self._commit_held(key, bindings) if is_held else self._commit(key, bindings))
        for eviction in decisions.evictions:
            if eviction.gang not in self._evicted:
                self._evicted.add(eviction.gang)
                self._statistics.gangs_preempted += 1
                self._groups.disrupt(eviction.gang, _gave_way(eviction))
                self._start(self._evict(eviction))
        if stuck := self._stuck(decisions, keys):
            self._start(self._claims.release_idle(stuck))
        forming = self._still_forming(decisions)
        for entry in decisions.unschedulable:
            if keys.get(entry.uid) not in forming:
                self._reports.tell(entry)
        if decisions.bindings and any(wait.reason == "Behind" for wait in decisions.waits):
            self._wake()  # what starts after them may do so now
        told = tuple(wait for wait in decisions.waits if wait.gang not in forming)
        self._groups.tell(told, together.keys())

    def _stuck(self, decisions: Decisions, keys: dict[str, str]) -> list[str]:
        """Return the pods that find no room, by uid, where claims of devices may be the reason."""
        if not self._state.devices.held:
            return []
        gangs = {wait.gang for wait in decisions.waits if wait.reason in ("NoRoom", "NoNode")}
        return [entry.uid for entry in decisions.unschedulable if keys.get(entry.uid, entry.pod) in gangs]

    def _still_forming(self, decisions: Decisions) -> set[str]:
        """Return the gangs that lack something only since a moment; they are looked at again."""
        now_s = asyncio.get_running_loop().time()
        lacking = {wait.gang for wait in decisions.waits if wait.reason in FORMING}
        forming = self._forming.among(lacking, now_s)
        self._plan_look(now_s)
        return forming

    def _on_growing(self) -> None:
        """Look later at gangs that cannot start yet: a pass for each pod costs the square of their size."""
        now_s = asyncio.get_running_loop().time()
        for gang in self._state.growing:
            self._forming.grow((gang, *self._state.groups_above(gang)), now_s)
        self._state.growing.clear()
        self._plan_look(now_s)

    def _plan_look(self, now_s: float) -> None:
        if self._next_look is None and (next_s := self._forming.next_s(now_s)) is not None:
            self._next_look = asyncio.get_running_loop().call_at(next_s, self._look_again)

    def _look_again(self) -> None:
        self._next_look = None
        self._wake()

    def _start(self, write: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(write)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit_held(self, key: str, bindings: list[Binding]) -> None:
        """Bind a gang beside schedulers at work; when they were faster, look for other room."""
        async with self._fence.around({binding.node for binding in bindings}):
            if not self._state.is_overbooked(bindings):
                return await self._commit(key, bindings)
            for binding in bindings:
                self._state.revoke(binding)
            self._wake()

    async def _commit(self, key: str, bindings: list[Binding]) -> None:
        """Bind a gang; when a pod of it cannot be bound, take all of this attempt back."""
        allocations = self._state.allocations
        asked = {
            one.uid: sorted(filter(counts_as_gpu, pod.request))
            for one in bindings
            if (pod := allocations.get(one.uid))
        }
        failed = (
            await self._storage.select(bindings)
            or await self._claims.allocate(bindings)
            or await self._binder.bind_all(bindings, asked)
        )
        self._statistics.pods_bound += len(bindings) - len(failed)
        if not failed:
            return
        await self._claims.release([binding for binding, _ in failed])
        self._pause(key, f"{failed[0][0].pod} could not be bound ({failed[0][1]})")
        for binding, error in failed:
            self._state.revoke(binding)
            self._statistics.bind_failures[str(error.status or "error")] += 1
            if not isinstance(error, NotFound | Conflict):
                message = f"binding to {binding.node} failed: {error}"
                entry = regarding(binding.pod, binding.uid)
                self._recorder.event(entry, "Warning", "FailedScheduling", message)
        self._wake()  # the gang pauses, and others may use the room that it gave back
        broken = {binding.uid for binding, _ in failed}
        bound = [allocations.get(binding.uid) for binding in bindings if binding.uid not in broken]
        first, error = failed[0]
        why = f"{first.pod} of the same gang could not be bound ({error})"
        self._release([pod for pod in bound if pod is not None], why, "HalfBound")

    def _pause(self, gang: str, why: str) -> None:
        """Let a gang wait a moment, longer each time; pods that are made anew for it too."""
        loop = asyncio.get_running_loop()
        delay_s = self._backoff.fail(gang, loop.time())
        self._state.pause(gang)
        message = f"{why}; tried again after {delay_s:g} s"
        self._groups.hold(Wait(gang=gang, reason="BackOff", message=message, position=0))
        if before := self._pauses.get(gang):
            before.cancel()
        self._pauses[gang] = loop.call_later(delay_s, self._resume, gang)

    def _resume(self, gang: str) -> None:
        del self._pauses[gang]
        self._state.resume(gang)
        self._wake()

    async def _evict(self, eviction: Eviction) -> None:
        try:
            pods = zip(eviction.pods, eviction.uids, strict=True)
            await self._binder.take_away(pods, _gave_way(eviction))
        finally:
            self._evicted.discard(eviction.gang)


def _gave_way(eviction: Eviction) -> str:
    return f"gave way to {eviction.beneficiary}, which has a higher priority"
