"""Runs the plans of :mod:`gangline.cluster.controllers.job_plan` against the API.

The cache lags behind our own writes by a moment. Two notes bridge it: the pods that were created and not yet
seen, and the Job as the server answered our last write; a stale decision is refused by the resource version
anyway. A pod is created in the moment in which its Job appears.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

import msgspec

from gangline import clock
from gangline.api.core import JobStatus, Pod
from gangline.api.resources import JOBS, PODS
from gangline.cluster.controllers.caches import Caches, wait_synced
from gangline.cluster.controllers.job_plan import JobPlan, plan_job
from gangline.cluster.controllers.job_pod import pod_manifest
from gangline.cluster.controllers.job_types import TrackedJob
from gangline.kube.cache import Cache
from gangline.kube.errors import ApiError, Conflict, Forbidden, NotFound
from gangline.kube.events import Recorder
from gangline.kube.queue import WorkQueue, work
from gangline.kube.verbs import ObjectClient

WORKERS = 16
"""Jobs in work at once."""

CREATED_MEMORY_S = 30.0
"""A created pod that the cache has not shown for this long is taken to be gone again."""

_STATUS_FIELDS = (
    "conditions",
    "active",
    "ready",
    "succeeded",
    "failed",
    "terminating",
    "startTime",
    "completionTime",
    "completedIndexes",
)


class JobController:
    """Creates, counts and deletes the pods of batch/v1 Jobs."""

    def __init__(self, client: ObjectClient, caches: Caches) -> None:
        self._client = client
        self._recorder = Recorder(client, "job-controller")
        self._queue: WorkQueue[str] = WorkQueue()
        self._jobs: Cache[TrackedJob] = caches.typed(JOBS, TrackedJob)
        self._pods: Cache[Pod] = caches.typed(PODS, Pod)
        self._pods.add_index("controller", _controller_uid)
        self._jobs.on_change(self._on_job)
        self._pods.on_change(self._on_pod)
        self._created: dict[str, dict[str, tuple[float, Pod]]] = {}
        self._written: dict[str, TrackedJob] = {}
        self._vanished: dict[str, dict[str, Pod]] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        await wait_synced(self._jobs, self._pods)
        try:
            await work(self._queue, self.reconcile, workers=WORKERS)
        finally:
            await self._recorder.close()

    def _on_job(self, old: TrackedJob | None, new: TrackedJob | None) -> None:
        if job := new or old:
            self._queue.add(job.metadata.key)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        owner = pod.metadata.controller if pod else None
        if pod is None or owner is None or owner.kind != JOBS.kind:
            return
        key = f"{pod.metadata.namespace}/{owner.name}"
        if pending := self._created.get(owner.uid):
            pending.pop(pod.metadata.uid, None)
            if not pending:
                del self._created[owner.uid]
        if new is None:
            self._vanished.setdefault(key, {})[pod.metadata.uid] = pod
        self._queue.add(key)

    async def reconcile(self, key: str) -> float | None:
        """Bring one Job forward; returns when to look again, in seconds."""
        job = self._latest(key)
        if job is None:
            self._vanished.pop(key, None)
            return None
        uid = job.metadata.uid
        vanished = [pod for pod in self._vanished.get(key, {}).values() if _controller_uid(pod) == [uid]]
        plan = plan_job(job, self._pods_of(uid), clock.now(), vanished=vanished)
        if plan.delete_job:
            await _ignore_gone(self._client.delete(JOBS, *_name(job), propagation="Foreground", uid=uid))
            return None
        indexes = plan.create_indexes or [None] * plan.create_count
        steps: list[Awaitable[None]] = [self._create_pod(job, index) for index in indexes]
        if plan.status is not None:
            steps.append(self._write_status(job, plan))
        await _all_done(steps)
        self._forget(key, vanished)
        await _all_done(self._delete_pod(job, pod) for pod in plan.delete)
        return plan.requeue_after_s

    def _latest(self, key: str) -> TrackedJob | None:
        """Return the Job of the cache or of our last write, whichever is newer."""
        cached, written = self._jobs.get(key), self._written.get(key)
        if written is None:
            return cached
        is_same = cached is not None and cached.metadata.uid == written.metadata.uid
        if cached is not None and is_same and _version(cached) < _version(written):
            return written
        del self._written[key]
        return cached

    def _pods_of(self, uid: str) -> list[Pod]:
        pods = self._pods.by_index("controller", uid)
        pending = self._created.get(uid)
        if not pending:
            return pods
        known = {pod.metadata.uid for pod in pods}
        oldest_s = asyncio.get_running_loop().time() - CREATED_MEMORY_S
        return pods + [
            pod for since_s, pod in pending.values() if pod.metadata.uid not in known and since_s > oldest_s
        ]

    def _forget(self, key: str, vanished: Iterable[Pod]) -> None:
        """Drop the vanished pods that the status now covers, or that it has covered before."""
        remembered = self._vanished.get(key, {})
        for pod in vanished:
            remembered.pop(pod.metadata.uid, None)
        if not remembered:
            self._vanished.pop(key, None)

    async def _create_pod(self, job: TrackedJob, index: int | None) -> None:
        try:
            answer = await self._client.create(PODS, pod_manifest(job, index))
        except ApiError as error:
            if isinstance(error, Forbidden) and _is_namespace_going(error):
                return
            self._emit(job, "Warning", "FailedCreate", f"Error creating: {error}")
            raise
        pod = msgspec.convert(answer, Pod)
        if self._pods.get(pod.metadata.key) is None:
            now_s = asyncio.get_running_loop().time()
            self._created.setdefault(job.metadata.uid, {})[pod.metadata.uid] = (now_s, pod)
        self._emit(job, "Normal", "SuccessfulCreate", f"Created pod: {pod.metadata.name}")

    async def _delete_pod(self, job: TrackedJob, pod: Pod) -> None:
        meta = pod.metadata
        if await _ignore_gone(self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid)):
            self._emit(job, "Normal", "SuccessfulDelete", f"Deleted pod: {meta.name}")

    async def _write_status(self, job: TrackedJob, plan: JobPlan) -> None:
        assert plan.status is not None
        name, namespace = _name(job)
        patch = {
            "metadata": {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version},
            "status": status_patch(job.status, plan.status),
        }
        try:
            answer = await self._client.patch(JOBS, name, patch, namespace, subresource="status")
        except NotFound:
            return
        self._written[job.metadata.key] = msgspec.convert(answer, TrackedJob)
        for event in plan.events:
            self._emit(job, event.type, event.reason, event.message)

    def _emit(self, job: TrackedJob, type_: str, reason: str, message: str) -> None:
        self._recorder.event((JOBS.api_version, JOBS.kind, job.metadata), type_, reason, message)


def status_patch(old: JobStatus, new: JobStatus) -> dict[str, Any]:
    """Return a merge patch from one status to another; what is empty now is removed."""
    wire = msgspec.to_builtins(new)
    patch: dict[str, Any] = {field: wire.get(field) for field in _STATUS_FIELDS}
    before, after = old.uncounted_terminated_pods, new.uncounted_terminated_pods
    if before != after:
        merged = {field: after.get(field) for field in (*before, *after)}
        patch["uncountedTerminatedPods"] = merged if after else None
    return patch


def _controller_uid(pod: Pod) -> list[str]:
    owner = pod.metadata.controller
    return [owner.uid] if owner is not None and owner.kind == JOBS.kind else []


def _name(job: TrackedJob) -> tuple[str, str]:
    return job.metadata.name, job.metadata.namespace


def _version(job: TrackedJob) -> int:
    text = job.metadata.resource_version
    return int(text) if text.isdigit() else 0


def _is_namespace_going(error: ApiError) -> bool:
    return any(cause.get("reason") == "NamespaceTerminating" for cause in error.details.get("causes") or ())


async def _ignore_gone(deletion: Awaitable[Any]) -> bool:
    """Await a deletion; False when the object was gone, or another one of its name is there."""
    try:
        await deletion
    except (NotFound, Conflict):
        return False
    return True


async def _all_done(steps: Iterable[Awaitable[None]]) -> None:
    """Await all steps, whatever happens to one of them, then raise the first error."""
    for outcome in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
