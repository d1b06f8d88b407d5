"""The operator: watches jobs and what they own, and carries out what ``jobs`` works out.

One queue for all kinds; every change of a job or of a child puts the job's key there, and whoever takes it
looks at the whole. Jobs of one key never run twice at a time. Nothing is kept that a restart would miss.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from gangline import clock
from gangline.api.core import ObjectMeta
from gangline.api.crds import crds
from gangline.api.definitions import DefinitionOrigin
from gangline.api.mpijob import AnyJob
from gangline.api.resources import CRDS, Resource
from gangline.api.trainer.job import Runtime
from gangline.jobs.conditions import standing
from gangline.jobs.gang import dialect_of, how_to_serve
from gangline.jobs.plan import Emit, Object, Plan
from gangline.jobs.registry import JOB_KINDS, MPI_JOB, JobKind
from gangline.jobs.settings import Settings
from gangline.kube.cache import Cache
from gangline.kube.definitions import find_strangers, watch_definitions
from gangline.kube.durations import Durations
from gangline.kube.errors import ApiError, Forbidden, NotFound, Unavailable
from gangline.kube.events import Recorder, Regarding
from gangline.kube.queue import WorkQueue, work
from gangline.kube.verbs import ObjectClient
from gangline.operator.children import Children, JobKey
from gangline.operator.execution import Execution, PlanResult
from gangline.operator.recent import is_newer, look_again_s
from gangline.operator.statistics import OperatorStatistics

workers_count = 16
"""Jobs that are worked on at the same time."""

leftover_retry_s = 1.0
foreign_retry_s = 5.0
unsynced_retry_s = 0.5
not_ours_retry_s = 30.0


class Operator:
    """Runs every kind of job in the registry; construct it in a running event loop.

    Args:
        client: asks and writes; all rights that it needs are on jobs, pods, services, config maps,
            secrets and events.
        namespace: only this one; empty means all.
        settings: what holds for every job.
        workers: jobs that are worked on at the same time.
    """

    def __init__(
        self,
        client: ObjectClient,
        *,
        namespace: str = "",
        settings: Settings = Settings(),  # noqa: B008 - a frozen value
        workers: int = workers_count,
    ) -> None:
        self._client = client
        self._workers = workers
        self._settings = settings
        self._queue: WorkQueue[JobKey] = WorkQueue()
        self._kinds: dict[str, _Kind] = {}
        for kind in JOB_KINDS:
            self._kinds[kind.resource.kind] = _Kind(client, kind, namespace or None, self._queue, settings)
        self._execution = Execution(client)
        self._memory: dict[JobKey, _Memory] = {}
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._reconcile_durations = Durations()
        self._decide_durations = Durations()
        self._not_ours: frozenset[str] | None = None  # until the definitions have been looked at
        self.notes: tuple[str, ...] = ()
        """What an administrator should know of the cluster, in words."""

    async def run(self) -> None:
        """Reconcile until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for kind in self._kinds.values():
                    group.create_task(kind.run(), name=f"kind-{kind.entry.resource.plural}")
                with contextlib.suppress(ApiError):
                    self._not_ours = frozenset(
                        verdict.name for verdict in await find_strangers(self._client, crds())
                    )
                group.create_task(watch_definitions(self._client, crds(), self._on_strangers))
                await asyncio.gather(*(self._until_synced(cache) for cache in self._required_caches))
                await work(self._queue, self.reconcile, workers=self._workers)
        finally:
            for kind in self._kinds.values():
                await kind.recorder.close()

    async def flush_events(self) -> None:
        """Wait until every event so far is sent."""
        for kind in self._kinds.values():
            await kind.recorder.flush()

    def _on_strangers(self, found: list[DefinitionOrigin]) -> None:
        """Say that a definition is not the one that jobs are read by here; and that it is again."""
        recorder = self._kinds[MPI_JOB.resource.kind].recorder
        self._not_ours = frozenset(verdict.name for verdict in found)
        for verdict in found:
            _log().warning("definition replaced", definition=verdict.name, message=verdict.message)
            about = Regarding(CRDS.api_version, CRDS.kind, ObjectMeta(name=verdict.name))
            advice = "jobs may be refused or lose fields; `gangline crds --install --replace` puts it back"
            recorder.event(about, "Warning", "DefinitionReplaced", f"{verdict.message}; {advice}")
        if self.notes and not found:
            _log().info("definitions are Gangline's again")
        self.notes = tuple(verdict.message for verdict in found)

    async def reconcile(self, key: JobKey) -> float | None:
        """Look at one job and do what is needed; return after how many seconds to look again.

        Raises:
            ApiError: something could not be written; trying again may help.
        """
        started_s = time.perf_counter()
        kind = self._kinds[key.kind]
        job = kind.jobs.get(key.object_key)
        if job is None:
            self._memory.pop(key, None)
            kind.children.recent.forget(key)
            return None
        if not kind.is_synced:
            return unsynced_retry_s
        if not kind.entry.is_required:
            if self._not_ours is None:
                return unsynced_retry_s
            if kind.definition in self._not_ours:
                return not_ours_retry_s  # whoever brought the definition runs these jobs
        memory = self._memory.get(key)
        if memory is None or memory.uid != job.metadata.uid:
            memory = self._memory[key] = _Memory(job.metadata.uid)
        if memory.is_gone:
            return None
        plan = self._decide(key, kind, job, memory)
        try:
            return await self._carry_out(key, kind, job, memory, plan)
        finally:
            self._reconcile_durations.add(time.perf_counter() - started_s)

    def statistics(self) -> OperatorStatistics:
        """Return the numbers of this moment."""
        queue = self._queue.statistics()
        jobs = Counter(
            (name, job.metadata.namespace, standing(job.status))
            for name, kind in self._kinds.items()
            for job in kind.jobs.items()
        )
        launchers = [
            launcher.metadata for kind in self._kinds.values() for launcher in kind.children.launchers()
        ]
        caches = [(cache.resource.plural, cache.statistics()) for cache in self._caches]
        restarts: Counter[str] = Counter()
        for plural, statistics in caches:
            restarts[plural] += max(statistics.watches - 1, 0)
        return OperatorStatistics(
            jobs=tuple((*about, count) for about, count in sorted(jobs.items())),
            jobs_created=self._count_of(MPI_JOB, "created"),
            jobs_successful=self._count_of(MPI_JOB, "successful"),
            jobs_failed=self._count_of(MPI_JOB, "failed"),
            training_jobs=tuple(
                (self._kinds[kind].entry.framework, namespace, what, count)
                for (kind, namespace, what), count in sorted(self._counts.items())
                if self._kinds[kind].entry.framework
            ),
            launchers=tuple(sorted((meta.namespace, meta.name) for meta in launchers)),
            reconcile=self._reconcile_durations.statistics(),
            decide=self._decide_durations.statistics(),
            queue_ready=queue.ready,
            retries=queue.retries,
            events_dropped=sum(kind.recorder.dropped_count for kind in self._kinds.values()),
            watch_restarts=tuple(sorted(restarts.items())),
            is_synced=all(
                cache.statistics().is_synced or self._is_left_out(cache) for cache in self._required_caches
            ),
            process_cpu_s=time.process_time(),
        )

    async def _until_synced(self, cache: Cache[Any]) -> None:
        """Wait for a cache as long as it takes, and say what is missing on the way; not for PodGroups."""
        if not await cache.wait_known():
            dialect = dialect_of(self._settings.gang_scheduling) if self._is_left_out(cache) else None
            _log().warning(
                "kind not served",
                kind=cache.resource.kind,
                api_version=cache.resource.api_version,
                hint=how_to_serve(dialect) if dialect else "install it with `gangline crds --install`",
            )
        while not self._is_left_out(cache):
            try:
                await cache.wait_synced()
                return
            except Unavailable as error:  # it goes on trying by itself
                _log().warning("still waiting", resource=cache.resource.plural, error=str(error))

    def _is_left_out(self, cache: Cache[Any]) -> bool:
        """Whether the cluster lacks PodGroups: each job that needs one says so, and all else goes on."""
        dialect = dialect_of(self._settings.gang_scheduling)
        return dialect is not None and cache.resource == dialect.resource and not cache.is_served

    @property
    def _caches(self) -> list[Cache[Any]]:
        return [cache for kind in self._kinds.values() for cache in kind.caches]

    @property
    def _required_caches(self) -> list[Cache[Any]]:
        """Those without which no job is worked on; a cluster may lack the definitions of the other kinds."""
        required = (kind for kind in self._kinds.values() if kind.entry.is_required)
        return [cache for kind in required for cache in kind.caches]

    def _count_of(self, entry: JobKind[Any], what: str) -> int:
        return sum(
            count
            for (kind, _, counted), count in self._counts.items()
            if (kind, counted) == (entry.resource.kind, what)
        )

    def _decide(self, key: JobKey, kind: _Kind, job: AnyJob, memory: _Memory) -> Plan:
        started_s = time.thread_time()
        status = memory.newest_status(job)
        plan = kind.entry.reconcile(
            memory.read_with(kind.entry, job, status),
            kind.children.observe(key, memory.rejected, memory.refused),
            clock.now(),
            raw_status=status,
            settings=self._settings,
        )
        self._decide_durations.add(time.thread_time() - started_s)
        return plan

    async def _carry_out(
        self, key: JobKey, kind: _Kind, job: AnyJob, memory: _Memory, plan: Plan
    ) -> float | None:
        regarding = Regarding(kind.entry.resource.api_version, key.kind, job.metadata)
        execution = self._execution.run(key, job, kind.children, plan)
        outcome, error = PlanResult(), None
        if plan.is_first:
            outcome = await execution
            if plan.actions and outcome.is_good:
                self._queue.add(key)  # behind the jobs that have no children yet, the status goes out then
            else:
                error = await self._try_status(kind.entry.resource, regarding, memory, plan)
        else:
            status = self._try_status(kind.entry.resource, regarding, memory, plan)
            outcome, error = await asyncio.gather(execution, status)
        if error:
            outcome.failed.append(error)
        self._tell(regarding, outcome.told)
        self._warn(regarding, memory, [*plan.warnings, *outcome.foreign, *outcome.warnings])
        return self._next_look(key, kind, memory, plan, outcome)

    def _next_look(
        self, key: JobKey, kind: _Kind, memory: _Memory, plan: Plan, outcome: PlanResult
    ) -> float | None:
        if outcome.rejected:
            memory.rejected = tuple(dict.fromkeys(outcome.rejected))
            self._queue.add(key)
        refusals = [str(error) for error in outcome.failed if isinstance(error, Forbidden)]
        refused = next(iter([*refusals, *(event.message for event in outcome.foreign)]), "")
        if outcome.foreign and refused != memory.refused:
            self._queue.add(key)  # so that the status says it
        memory.refused = refused
        if outcome.failed:
            raise outcome.failed[0]
        waits = [plan.requeue_after_s] if plan.requeue_after_s is not None else []
        if outcome.foreign:
            waits.append(foreign_retry_s)
        if outcome.has_leftovers:
            waits.append(leftover_retry_s)
        if kind.children.recent.has_any(key):
            waits.append(look_again_s)
        return min(waits, default=None)

    async def _try_status(
        self, resource: Resource, regarding: Regarding, memory: _Memory, plan: Plan
    ) -> ApiError | None:
        """Write the status; an error must not stop what goes on beside it."""
        try:
            await self._write_status(resource, regarding, memory, plan)
        except ApiError as error:
            return error
        return None

    async def _write_status(
        self, resource: Resource, regarding: Regarding, memory: _Memory, plan: Plan
    ) -> None:
        """Write a changed status; events and counters follow only a write that went through."""
        if plan.status is not None:
            meta = regarding.meta
            # The uid keeps the patch off a successor of the same name; the version keeps a request that was
            # given up, and reaches the server late, off what was written since.
            metadata = {"uid": meta.uid, "resourceVersion": memory.version_of(meta)}
            body = {"metadata": metadata, "status": plan.status_patch}
            try:
                answer = await self._client.patch(
                    resource, meta.name, body, meta.namespace, subresource="status"
                )
            except NotFound as error:
                memory.is_gone = error.details.get("name") == meta.name
                return
            memory.wrote(answer, plan.status)
        self._counts.update((resource.kind, regarding.meta.namespace, what) for what in plan.counts)
        self._tell(regarding, plan.events)

    def _tell(self, regarding: Regarding, events: Iterable[Emit]) -> None:
        recorder = self._kinds[regarding.kind].recorder
        for event in events:
            recorder.event(regarding, event.type, event.reason, event.message)

    def _warn(self, regarding: Regarding, memory: _Memory, warnings: list[Emit]) -> None:
        """Send the warnings that are new since the last look."""
        self._tell(regarding, (warning for warning in warnings if warning not in memory.warned))
        memory.warned = frozenset(warnings)


class _Kind:
    """One kind of job: its cache and its children's."""

    def __init__(
        self,
        client: ObjectClient,
        entry: JobKind[Any],
        namespace: str | None,
        queue: WorkQueue[JobKey],
        settings: Settings,
    ) -> None:
        self.entry = entry
        self.jobs: Cache[AnyJob] = Cache(client, entry.resource, AnyJob, namespace=namespace)
        self.children = Children(client, entry, namespace, queue.add, dialect_of(settings.gang_scheduling))
        self.recorder = Recorder(client, entry.component)
        self._queue = queue
        self._are_synced = False
        self.jobs.on_change(self._job_changed)
        for runtime in entry.runtimes:
            if cache := self.children.caches.get(runtime.plural):
                cache.on_change(self._runtime_changed)

    @property
    def caches(self) -> list[Cache[Any]]:
        return [self.jobs, *self.children.caches.values()]

    async def run(self) -> None:
        """Keep the caches up to date; of what a kind's jobs have, once the cluster serves the kind."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.jobs.run())
            if not self.entry.is_required:
                await self.jobs.wait_synced(None)
            for cache in self.children.caches.values():
                group.create_task(cache.run(), name=f"cache-{cache.resource.plural}")

    @property
    def definition(self) -> str:
        """Name of the definition of its kind."""
        return f"{self.entry.resource.plural}.{self.entry.resource.group}"

    @property
    def is_synced(self) -> bool:
        """Whether all caches have had their first list; those of PodGroups may not be served."""
        self._are_synced = self._are_synced or all(
            cache.statistics().is_synced or not cache.is_served for cache in self.caches
        )
        return self._are_synced

    def _job_changed(self, old: AnyJob | None, new: AnyJob | None) -> None:
        job = new or old
        if job:
            self._queue.add(JobKey(self.entry.resource.kind, job.metadata.namespace, job.metadata.name))

    def _runtime_changed(self, old: Runtime | None, new: Runtime | None) -> None:
        """Have all jobs looked at that may name it: runtimes change seldom."""
        namespace = next(one.metadata.namespace for one in (new, old) if one)
        for job in self.jobs.items():
            if namespace in ("", job.metadata.namespace):
                self._job_changed(None, job)


class _Memory(msgspec.Struct):
    """What the operator remembers of one job between looks; all of it may be lost.

    Attributes:
        uid: of the job.
        rejected: what the server will never take; ends up in the status.
        refused: what the server does not take yet; ends up there too.
        warned: warnings that were sent and still hold.
        status: the version of the job that the last written status gave, and that status.
        read: the generation of the spec and what was read of it.
        is_gone: whether the server has the job no more, though the cache still does; what is made for such a
            job is garbage.
    """

    uid: str
    rejected: tuple[str, ...] = ()
    refused: str = ""
    warned: frozenset[Emit] = frozenset()
    status: tuple[str, Object] | None = None
    read: tuple[int, Any] | None = None
    is_gone: bool = False

    def read_with(self, entry: JobKind[Any], job: AnyJob, status: Any) -> Any:
        """Return the typed job; its spec is read once for each generation."""
        generation = job.metadata.generation
        if generation and self.read and self.read[0] == generation:
            return entry.renew(self.read[1], job.metadata, status)
        read = entry.read(job.metadata, job.spec, status)
        self.read = (generation, read)
        return read

    def wrote(self, answer: Object, status: Object) -> None:
        """Keep a status that the cache may not have yet."""
        self.status = (answer.get("metadata", {}).get("resourceVersion", ""), status)

    def version_of(self, meta: ObjectMeta) -> str:
        """Return the version that the newest known status belongs to."""
        return self.status[0] if self.status else meta.resource_version

    def newest_status(self, job: AnyJob) -> Any:
        """Return the cached status, or the one that was written since."""
        if self.status and is_newer(self.status[0], job.metadata.resource_version):
            return self.status[1]
        self.status = None
        return job.status


def _log() -> Any:
    import structlog  # late: 30 ms that the command line does not pay

    return structlog.get_logger()
