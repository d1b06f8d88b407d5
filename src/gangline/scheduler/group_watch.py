"""Follows PodGroups of all dialects, PriorityClasses and Queues, where the cluster has them.

A cluster without Volcano has no Volcano PodGroups: each kind is looked for, again and again at leisure, and
followed from the moment its definition is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from gangline import clock
from gangline.api.core import Pod
from gangline.api.pod_group import PodGroup, PriorityClass
from gangline.api.resources import (
    PRIORITY_CLASSES,
    VOLCANO_QUEUES,
    Resource,
)
from gangline.kube.cache import Cache
from gangline.kube.discovery import resource_for
from gangline.kube.errors import (
    ApiError,
    KubeconfigError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unavailable,
)
from gangline.kube.events import Recorder
from gangline.kube.verbs import ObjectClient
from gangline.placement import Policy, Queue, Wait
from gangline.placement.groups.read_groups import read_queue
from gangline.placement.policy import DEFAULT_QUEUE
from gangline.scheduler.dialects import DIALECTS, GroupDialect
from gangline.scheduler.group_status import is_same
from gangline.scheduler.kept import SeenPod
from gangline.scheduler.set_gangs import Obj
from gangline.scheduler.state import SchedulerState
from gangline.scheduler.tally import GangProgress, GangTally
from gangline.workloads.workload_sets import SET_LABELS

LOOK_AGAIN_S = 30.0
"""How often an absent definition is looked for."""

ASK_AGAIN_S = 1.0
"""A server that could not be asked for a definition is asked again so soon."""

READY_TIMEOUT_S = 10.0

TOGETHER_S = 0.5
"""A change of a PodGroup's status is written after this time, at most twice it, with what came meanwhile:
most gangs are placed by then, and the API server has one write less to serve."""

WRITE_AGAIN_S = 5.0
"""After this time a status is written again that the API server could not take."""

GIVE_WAY_MAX_S = 10.0
"""While pods are bound without a pause, changes of status are held back for so long."""


class GroupWatch:
    """What the cluster says about gangs apart from their pods.

    Args:
        client: of the cluster.
        state: is told of every group.
        wake: called when a waiting gang may fit now.
        names: scheduler names of the pods that are placed here.
        recorder: for events about PodGroups.
        quiet: set while nothing is being bound.
    """

    def __init__(
        self,
        client: ObjectClient,
        state: SchedulerState,
        wake: Callable[[], None],
        names: tuple[str, ...],
        recorder: Recorder,
        quiet: asyncio.Event,
    ) -> None:
        self._quiet = quiet
        self._since_s = 0.0
        self._recorder = recorder
        self._client = client
        self._state = state
        self._wake = wake
        self._found: dict[GroupDialect, dict[str, PodGroup]] = {dialect: {} for dialect in DIALECTS}
        self._classes: dict[str, PriorityClass] = {}
        self._queues: dict[str, Queue] = {}
        self._told: dict[str, dict[str, Any]] = {}
        self._waits: dict[str, Wait] = {}
        self._disrupted: dict[str, str] = {}
        self._tally = GangTally(names)
        self._due: set[str] = set()
        self._fresh: set[str] = set()
        self._writes: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._first: dict[Resource, asyncio.Event] = {
            resource: asyncio.Event()
            for resource in (
                *(dialect.resource for dialect in DIALECTS),
                *SET_LABELS,
                PRIORITY_CLASSES,
                VOLCANO_QUEUES,
            )
        }

    async def run(self) -> None:
        """Follow all kinds until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for dialect in DIALECTS:
                    group.create_task(self._follow(dialect.resource, PodGroup, self._group_callback(dialect)))
                for kind in SET_LABELS:
                    group.create_task(self._follow(kind, dict, self._set_callback(kind)))
                group.create_task(self._follow(PRIORITY_CLASSES, PriorityClass, self._on_priority))
                group.create_task(self._follow(VOLCANO_QUEUES, dict, self._on_queue))
        finally:
            self._is_over = True  # what is not written yet, the next leader finds out
            for task in self._writes:
                task.cancel()

    async def ready(self) -> None:
        """Wait until every kind has been listed once or found absent, at most ten seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_TIMEOUT_S):
                for event in self._first.values():
                    await event.wait()

    def policy(self, given: Policy) -> Policy:
        """Return the policy with the queues of the cluster."""
        return msgspec.structs.replace(given, queues={**given.queues, **self._queues})

    def tell(self, waiting: Iterable[Wait], placed: Iterable[str]) -> None:
        """Take what a pass said; the PodGroups whose gangs it is about get a new status."""
        waits = {key: wait for wait in waiting for key in self._state.groups_of(wait.gang)}
        started = {key for gang in placed for key in self._state.groups_of(gang)}
        self._disrupted |= dict.fromkeys(self._disrupted.keys() & started, "")
        self._note({*waits, *self._waits, *started})
        self._waits = waits

    def disrupt(self, gang: str, message: str) -> None:
        """Say of a gang that it gives way, until it is placed again."""
        found = dict.fromkeys(self._state.groups_of(gang), message)
        self._disrupted |= found
        self._note(set(found))

    def hold(self, wait: Wait) -> None:
        """Say of a gang that it pauses; the next pass that sees it says something else."""
        found = dict.fromkeys(self._state.groups_of(wait.gang), wait)
        self._waits |= found
        self._note(set(found))

    def take_pod(self, old: SeenPod | None, new: Pod | None) -> None:
        """Take a pod as it is now."""
        if gang := self._tally.take(old, new):
            self._note({gang, *self._state.groups_above(gang)})

    def _note(self, gangs: set[str]) -> None:
        """Have the status of gangs written in a moment: pods of one gang change together."""
        if gangs and not self._due and not self._fresh:
            loop = asyncio.get_running_loop()
            self._since_s = loop.time()
            loop.call_later(TOGETHER_S, self._refresh)
        self._fresh |= gangs - self._due

    def _refresh(self) -> None:
        if self._is_over:
            return
        loop = asyncio.get_running_loop()
        if not self._quiet.is_set() and loop.time() - self._since_s < GIVE_WAY_MAX_S:
            loop.call_later(TOGETHER_S, self._refresh)
            return
        due, self._due, self._fresh = self._due, self._fresh, set()
        self._since_s = loop.time()
        if self._due:
            loop.call_later(TOGETHER_S, self._refresh)
        for key in due:
            for dialect, groups in self._found.items():
                if key in groups:
                    self._refresh_one(dialect, key, groups[key])

    def _refresh_one(self, dialect: GroupDialect, key: str, group: PodGroup) -> None:
        if dialect.status is None:
            return
        uid = group.metadata.uid
        progress, least = self._progress(key)
        if not progress.pods and uid not in self._told:
            return  # another scheduler's, as far as we know
        known, wait = self._state.groups.get(key), self._waits.get(key)
        if known is not None and uid not in self._told:
            self._warn_of_queue(dialect, group, known.queue)
        before = self._told.get(uid, group.status)
        status = dialect.status(
            wait=wait,
            progress=progress,
            min_member=least,
            now=clock.format_time(clock.now()),
            known=before,
            disruption=self._disrupted.get(key),
            generation=group.metadata.generation or 0,
        )
        if is_same(status, before):
            return
        self._told[uid] = status
        said = [one.get("message") for one in before.get("conditions") or []]
        if (
            wait is not None and wait.message not in said
        ):  # a definition of others may have no room for conditions
            about = (dialect.resource.api_version, dialect.resource.kind, group.metadata)
            self._recorder.event(about, "Warning", "Unschedulable", wait.message)
        task = asyncio.get_running_loop().create_task(self._write(dialect.resource, key, group, status))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    def _progress(self, key: str) -> tuple[GangProgress, int]:
        """Return how far a group is, and how many must be placed: of its pods, or of its groups."""
        group = self._state.groups.get(key)
        if group is None or group.min_groups is None:
            return self._tally.progress(key), group.min_member if group else 1
        below = [child for child, one in self._state.groups.items() if one.parent == key]
        found = [self._progress(child) for child in below]
        placed = sum(one.placed >= max(least, 1) for one, least in found)
        return GangProgress(pods=sum(one.pods for one, _ in found), bound=placed), group.min_groups

    def _warn_of_queue(self, dialect: GroupDialect, group: PodGroup, queue: str) -> None:
        """Say of a gang whose queue is not there that it counts against no quota."""
        if queue in ("", DEFAULT_QUEUE, *self._queues) or not self._first[VOLCANO_QUEUES].is_set():
            return
        about = (dialect.resource.api_version, dialect.resource.kind, group.metadata)
        message = f"Queue {queue} does not exist: the gang is placed without a quota"
        self._recorder.event(about, "Warning", "QueueNotFound", message)

    async def _write(self, resource: Resource, key: str, group: PodGroup, status: dict[str, Any]) -> None:
        meta = group.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": status}
        try:
            await self._client.patch(
                resource, meta.name, patch, meta.namespace, kind="merge", subresource="status"
            )
        except (ApiError, KubeconfigError) as error:
            self._told.pop(meta.uid, None)
            if isinstance(error, ServerError | TooManyRequests | Unavailable | KubeconfigError):
                asyncio.get_running_loop().call_later(WRITE_AGAIN_S, self._note, {key})

    async def _follow(self, resource: Resource, type_: Any, on_change: Callable[[Any, Any], None]) -> None:
        await self._until_served(resource)
        cache: Cache[Any] = Cache(self._client, resource, type_)
        cache.on_change(on_change)
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run())
            try:
                await cache.wait_synced()
            except ApiError:
                pass
            self._first[resource].set()

    async def _until_served(self, resource: Resource) -> None:
        """Wait until the server has a kind; a server that does not answer has not said that it has not."""
        while True:
            try:
                await resource_for(self._client, resource.api_version, resource.kind)
            except NotFound:
                self._first[resource].set()
                await asyncio.sleep(LOOK_AGAIN_S)
            except (ApiError, KubeconfigError):
                await asyncio.sleep(ASK_AGAIN_S)
            else:
                return

    def _set_callback(self, resource: Resource) -> Callable[[Obj | None, Obj | None], None]:
        def on_change(old: Obj | None, new: Obj | None) -> None:
            if self._state.take_set(resource, old, new):
                self._wake()

        return on_change

    def _group_callback(self, dialect: GroupDialect) -> Callable[[PodGroup | None, PodGroup | None], None]:
        def on_change(old: PodGroup | None, new: PodGroup | None) -> None:
            group = new or old
            if group is None:
                return
            key = dialect.key(group)
            if new is None:
                self._found[dialect].pop(key, None)
                self._told.pop(group.metadata.uid, None)
                self._disrupted.pop(key, None)
                gone = [one.key for one in dialect.read(group, self._classes)]
                taken = [self._state.take_group(one, None) for one in gone]
                is_news = any(taken)
            else:
                self._found[dialect][key] = new
                is_news = self._take(dialect, new)
                if old is None:
                    self._note({key})
            if is_news:
                self._wake()

        return on_change

    def _take(self, dialect: GroupDialect, group: PodGroup) -> bool:
        """Tell what an object says about its gangs; return whether one that waits may fit now."""
        taken = [self._state.take_group(one.key, one) for one in dialect.read(group, self._classes)]
        return any(taken)

    def _on_priority(self, old: PriorityClass | None, new: PriorityClass | None) -> None:
        entry = new or old
        if entry is None:
            return
        if new is None:
            self._classes.pop(entry.metadata.name, None)
        else:
            self._classes[entry.metadata.name] = new
        for dialect, groups in self._found.items():
            for group in groups.values():
                if self._take(dialect, group):
                    self._wake()

    def _on_queue(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        name = ((new or old or {}).get("metadata") or {}).get("name", "")
        queue = read_queue(new) if new is not None else None
        if queue is None:
            self._queues.pop(name, None)
        else:
            self._queues[name] = queue
        self._wake()
