"""Writes down what runs: a record of every job from its creation to its end, whoever made it.

A job that is gone leaves its record, with the last state of its pods. The record of one that ends while no
server runs is ended by the next server, which finds it gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import structlog

from gangline import clock
from gangline.api.core import Node, ObjectMeta, Pod, Wire
from gangline.api.resources import JOBS, MPIJOBS, NODES, PODS, TRAINING_JOBS, Resource
from gangline.cluster.controllers.caches import Caches, wait_synced
from gangline.cluster.controllers.job_types import TrackedJob
from gangline.cluster.runs.bounds import Bounds
from gangline.cluster.runs.history import DamagedRunError, History
from gangline.cluster.runs.record import PROGRAM_ANNOTATION, RunRecord, summary_of, without_environment
from gangline.kube.cache import Cache
from gangline.kube.errors import ApiError, Conflict, NotFound
from gangline.kube.queue import WorkQueue, work
from gangline.kube.verbs import ObjectClient
from gangline.workloads.gpu_source import SOURCE_LABEL
from gangline.workloads.kinds import BATCH_JOB_LABEL, JOB_NAME_LABEL

Obj = dict[str, Any]

WRITE_PAUSE_S = 0.5
"""A run that goes on is written at most so often, however many pods it starts."""
RETRY_S = 30.0
"""After a disk that refused."""
SWEEP_PERIOD_S = 600.0
SWEEP_PAUSE_S = 5.0
"""However many runs end, the bounds are looked at no more often."""
JOB_KEPT_S = 3600.0
"""How long after its end the job of a program stays in the API; its run stays in the history."""
PODS_MAX = 512
"""Pods of one run that are kept, the last ones."""


_TRAININGS = (MPIJOBS, *TRAINING_JOBS)


class RecordedTraining(Wire, frozen=True, kw_only=True):
    """A training job of any kind, of which everything is kept."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


_KINDS = frozenset(resource.kind for resource in _TRAININGS)
AnyJob = RecordedTraining | TrackedJob | Pod


@dataclass(slots=True)
class _Run:
    """A job as last seen; ``written`` is the digest of its record on disk, empty while there is none."""

    resource: Resource
    job: AnyJob
    pods: dict[str, Pod] = field(default_factory=dict)
    gone_at: str = ""
    written: bytes = b""

    @property
    def key(self) -> str:
        """``KIND/NAMESPACE/NAME``."""
        return f"{self.resource.kind}/{self.job.metadata.key}"


class RunRecorder:
    """Keeps the history of one cluster up to date.

    Args:
        client: deletes finished jobs of programs, whose names are not used again.
        caches: shared with other controllers.
        history: where records go.
        bounds: what is kept of runs that are over.
    """

    def __init__(self, client: ObjectClient, caches: Caches, history: History, bounds: Bounds) -> None:
        self._client = client
        self._history = history
        self._bounds = bounds
        self._trainings = [caches.typed(resource, RecordedTraining) for resource in _TRAININGS]
        self._jobs: Cache[TrackedJob] = caches.typed(JOBS, TrackedJob)
        self._pods: Cache[Pod] = caches.typed(PODS, Pod)
        self._nodes: Cache[Node] = caches.typed(NODES, Node)
        self._pods.add_index("run", _run_keys)
        for cache in self._trainings:
            cache.on_change(partial(self._on_job, cache.resource))
        self._jobs.on_change(lambda old, new: self._on_job(JOBS, old, new))
        self._pods.on_change(self._on_pod)
        self._runs: dict[str, _Run] = {}
        self._names: dict[str, str] = {}
        self._dirty: set[str] = set()
        self._queue: WorkQueue[str] = WorkQueue()
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled; what is not written then is written before the end."""
        mpi_jobs, *others = self._trainings
        await wait_synced(mpi_jobs, self._jobs, self._pods, self._nodes)
        # An operator of others may bring no definition of them.
        known = await asyncio.gather(*(cache.wait_known() for cache in others))
        await wait_synced(*(cache for cache, is_known in zip(others, known, strict=True) if is_known))
        await self._take_over()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(work(self._queue, self.reconcile, workers=1))
                group.create_task(self._keep_bounds())
        finally:
            for uid in list(self._dirty):
                record = self._record(self._runs[uid])
                with contextlib.suppress(OSError):
                    self._write(record, is_new=not self._runs[uid].written)

    # Changes

    def _on_job(self, resource: Resource, old: AnyJob | None, new: AnyJob | None) -> None:
        job = new or old
        if job is None or job.metadata.controller is not None:
            return
        uid = job.metadata.uid
        run = self._runs.get(uid)
        if run is None:
            if new is None:
                return
            run = self._runs[uid] = _Run(resource, job)
            self._names[run.key] = uid
        run.job = job
        if new is None:
            run.gone_at = clock.format_time(clock.now())
        self._note(uid, has_ended=RunRecord(job=_wire(resource, job), gone_at=run.gone_at).is_over)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is None:
            return
        keys = _run_keys(pod)
        if not keys:  # a pod alone is a run of its own, once it has been on a node
            if pod.metadata.uid in self._runs or pod.status.container_statuses:
                self._on_job(PODS, old, new)
            if run := self._runs.get(pod.metadata.uid):
                run.pods[pod.metadata.uid] = pod
            return
        uid = self._names.get(keys[0], "")
        if run := self._runs.get(uid):
            if pod.metadata.uid in run.pods or _is_of(pod, run.job):
                run.pods[pod.metadata.uid] = pod
            self._note(uid)

    def _note(self, uid: str, *, has_ended: bool = False) -> None:
        self._dirty.add(uid)
        run = self._runs[uid]
        if not run.written or run.gone_at or has_ended:  # whoever saw the end may ask for the list at once
            self._queue.add(uid)
        else:
            self._queue.add_after(uid, WRITE_PAUSE_S)

    # Writing

    async def reconcile(self, uid: str) -> float | None:
        """Write one run if it has changed; returns when to look again, in seconds."""
        run = self._runs.get(uid)
        if run is None:
            return None
        self._dirty.discard(uid)
        record = self._record(run)
        digest = _digest(record)
        if digest != run.written:
            try:
                await asyncio.to_thread(self._write, record, is_new=not run.written)
            except OSError as error:
                self._dirty.add(uid)
                structlog.get_logger().warning("run not recorded", run=run.key, error=str(error))
                return RETRY_S
            run.written = digest
            if record.is_over:
                self._ended.set()
        if run.gone_at and uid not in self._dirty and not self._pods.by_index("run", run.key):
            del self._runs[uid]
            if self._names.get(run.key) == uid:
                del self._names[run.key]
        return None

    def _write(self, record: RunRecord, *, is_new: bool) -> None:
        """Write a record, unless the user has removed the run meanwhile."""
        if is_new or self._history.is_there(record):
            self._history.write(record)

    def _record(self, run: _Run) -> RunRecord:
        for pod in self._pods.by_index("run", run.key):  # some were there before their job was seen
            if _is_of(pod, run.job):
                run.pods[pod.metadata.uid] = pod
        while len(run.pods) > PODS_MAX:
            del run.pods[next(iter(run.pods))]
        pods = sorted(
            run.pods.values(), key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name)
        )
        nodes = {pod.spec.node_name for pod in pods if pod.spec.node_name}
        labels = [node.metadata.labels for name in sorted(nodes) if (node := self._nodes.get(name))]
        return RunRecord(
            job=without_environment(_wire(run.resource, run.job)),
            pods=[without_environment(msgspec.to_builtins(pod)) for pod in pods],
            gone_at=run.gone_at,
            gpu_source=next((found[SOURCE_LABEL] for found in labels if SOURCE_LABEL in found), ""),
        )

    # Start and bounds

    async def _take_over(self) -> None:
        """Go on with the records of a server before this one, and end those of jobs that are gone."""
        for record in await asyncio.to_thread(_read_all, self._history):
            if run := self._runs.get(record.uid):
                run.written = _digest(record)
            elif not record.is_over:
                lost = msgspec.structs.replace(record, gone_at=clock.format_time(clock.now()), is_lost=True)
                with contextlib.suppress(OSError):  # the next server tries again
                    await asyncio.to_thread(self._history.write, lost)
        for run in self._runs.values():
            if run.gone_at:  # since the first look: its end is still to be written
                continue
            if not run.written and (record := self._record(run)).is_over:
                run.written = _digest(record)  # its record was removed: it is not made again

    async def _keep_bounds(self) -> None:
        """After each end, and every 10 minutes, remove the oldest runs that are too many."""
        while True:
            self._ended.clear()
            living = {uid for uid, run in self._runs.items() if not run.gone_at}
            try:
                await asyncio.to_thread(self._history.sweep, self._bounds, living=living, now_s=time.time())
                await self._delete_finished()
            except (OSError, ApiError) as error:
                structlog.get_logger().warning("bounds of the history not kept", error=str(error))
            await asyncio.sleep(SWEEP_PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_PERIOD_S):
                    await self._ended.wait()

    async def _delete_finished(self) -> None:
        """Delete the jobs of programs that ended an hour ago: every run has one, and its record stays."""
        for run in list(self._runs.values()):
            metadata = run.job.metadata
            if run.gone_at or not run.written or PROGRAM_ANNOTATION not in metadata.annotations:
                continue
            record = RunRecord(job=_wire(run.resource, run.job))
            ended = summary_of(record, clock.now()).ended
            if ended and (clock.now() - clock.parse_time(ended)).total_seconds() > JOB_KEPT_S:
                with contextlib.suppress(NotFound, Conflict):
                    await self._client.delete(
                        run.resource, metadata.name, metadata.namespace, uid=metadata.uid
                    )


def _read_all(history: History) -> list[RunRecord]:
    """Return every record that can be read; the others are told in the log."""
    records = []
    for file in history.files():
        try:
            records.append(history.read(file))
        except (DamagedRunError, OSError) as error:
            structlog.get_logger().warning("run of the history left out", error=str(error))
    return records


def _digest(record: RunRecord) -> bytes:
    return hashlib.sha256(msgspec.json.encode(record)).digest()


def _wire(resource: Resource, job: AnyJob) -> Obj:
    return {**msgspec.to_builtins(job), "apiVersion": resource.api_version, "kind": resource.kind}


def _run_keys(pod: Pod) -> list[str]:
    """Return ``KIND/NAMESPACE/NAME`` of the job that a pod belongs to; nothing for a pod alone."""
    metadata = pod.metadata
    owner = metadata.controller
    if owner is not None and owner.kind in _KINDS:
        return [f"{owner.kind}/{metadata.namespace}/{owner.name}"]
    for resource, label in ((MPIJOBS, JOB_NAME_LABEL), (JOBS, BATCH_JOB_LABEL)):
        if name := metadata.labels.get(label):
            return [f"{resource.kind}/{metadata.namespace}/{name}"]
    return [f"{owner.kind}/{metadata.namespace}/{owner.name}"] if owner else []


def _is_of(pod: Pod, job: AnyJob) -> bool:
    """Return whether a pod belongs to this job and not to an older one of its name."""
    owner = pod.metadata.controller
    if owner is not None and owner.kind in _KINDS and owner.uid != job.metadata.uid:
        return False
    return (pod.metadata.creation_timestamp or "") >= (job.metadata.creation_timestamp or "")
