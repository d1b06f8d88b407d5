"""Follows the jobs that can be suspended, where they may be read, and suspends and resumes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from gangline import clock
from gangline.api.metadata import ObjectMeta
from gangline.api.resources import Resource
from gangline.kube.cache import Cache
from gangline.kube.errors import ApiError, KubeconfigError
from gangline.kube.events import Recorder
from gangline.kube.verbs import ObjectClient
from gangline.placement import Decisions, Gang
from gangline.scheduler.storage_watch import LOOK_AGAIN_S, READY_TIMEOUT_S, is_readable
from gangline.scheduler.suspended_gangs import JobWrite, SuspendedGangs
from gangline.workloads.suspension import FIELD_MANAGER, SUSPENDABLE, SuspendableJob

HELD_S = 60.0
"""For so long room is held for a job that goes on, until its pods are there."""


class JobWatch:
    """What the cluster says about jobs that can be suspended.

    Where they may not be read nobody is suspended. Where they may be read and not written, what the pass
    decides fails, and is said in an event.

    Args:
        client: of the cluster.
        gangs: is told of every job.
        wake: called when a waiting gang may fit now.
        recorder: for events about jobs.
    """

    def __init__(
        self, client: ObjectClient, gangs: SuspendedGangs, wake: Callable[[], None], recorder: Recorder
    ) -> None:
        self._client = client
        self._gangs = gangs
        self._wake = wake
        self._recorder = recorder
        self._first = {resource: asyncio.Event() for resource in SUSPENDABLE}
        self._writes: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Follow all kinds until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for resource in SUSPENDABLE:
                    group.create_task(self._follow(resource))
        finally:
            for task in self._writes:  # each is one patch: a job is suspended with its reason, or not at all
                task.cancel()

    async def ready(self) -> None:
        """Wait until every kind has been listed once or found absent, at most ten seconds."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                for event in self._first.values():
                    await event.wait()
        except TimeoutError:
            return

    def begin(self, gangs: list[Gang]) -> list[Gang]:
        """Return the gangs that take part in a pass: these, and those that are suspended."""
        return [*gangs, *self._gangs.begin(gangs)]

    def carried_out(self, decisions: Decisions) -> Decisions:
        """Begin to suspend and resume jobs; return the decisions about gangs with pods."""
        left, writes = self._gangs.carried_out(decisions, clock.format_time(clock.now()))
        self._start(writes)
        return left

    async def _follow(self, resource: Resource) -> None:
        while not await is_readable(self._client, resource):
            self._first[resource].set()
            await asyncio.sleep(LOOK_AGAIN_S)
        cache = Cache(self._client, resource, SuspendableJob)

        def on_change(old: SuspendableJob | None, new: SuspendableJob | None) -> None:
            job = new or old
            if job is not None:
                self._start(self._gangs.take_job(resource, new, job.metadata.uid))
                self._wake()

        cache.on_change(on_change)
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run())
            await cache.wait_synced(None)
            self._first[resource].set()

    def _start(self, writes: Iterable[JobWrite]) -> None:
        for write in writes:
            task = asyncio.get_running_loop().create_task(self._write(write))
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    async def _write(self, write: JobWrite) -> None:
        meta, resource = write.job.metadata, write.resource
        identity = ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid)
        about = (resource.api_version, resource.kind, identity)
        if gang := self._gangs.held_for(meta.uid):
            asyncio.get_running_loop().call_later(HELD_S, self._release, gang)
        try:
            await self._client.patch(
                resource, meta.name, write.patch, meta.namespace, field_manager=FIELD_MANAGER
            )
        except (ApiError, KubeconfigError) as error:
            self._gangs.fail(meta.uid)
            if write.reason:
                self._recorder.event(about, "Warning", f"Not{write.reason}", f"{write.message}: {error}")
            self._wake()
            asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._look_again, meta.uid)
            return
        if write.reason:
            self._recorder.event(about, "Normal", write.reason, write.message)

    def _look_again(self, uid: str) -> None:
        self._start(self._gangs.look_again(uid))

    def _release(self, gang: str) -> None:
        self._gangs.release(gang)
        self._wake()
