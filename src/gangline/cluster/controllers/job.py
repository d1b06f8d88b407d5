"""Runs the plans of :mod:`gangline.cluster.controllers.job_plan` against the API.

A stale decision is refused by the resource version. A pod is created in the moment in which its Job appears.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable
from typing import Any

import msgspec

from gangline import clock
from gangline.api.core import JobStatus, Pod
from gangline.api.resources import JOBS, PODS
from gangline.cluster.controllers.apps.plan import ApiWrite, claim, selects
from gangline.cluster.controllers.apps.workloads import is_namespace_going
from gangline.cluster.controllers.caches import Caches, wait_synced
from gangline.cluster.controllers.current_objects import CurrentObjects
from gangline.cluster.controllers.job_plan import JobPlan, is_controlled, is_finished, plan_job
from gangline.cluster.controllers.job_pod import pod_manifest
from gangline.cluster.controllers.job_types import TrackedJob
from gangline.kube.errors import ApiError, Conflict, Forbidden, NotFound
from gangline.kube.events import Recorder
from gangline.kube.queue import WorkQueue, work
from gangline.kube.verbs import ObjectClient

WORKERS = 16
"""Jobs in work at once."""

_STATUS_FIELDS = (
    "conditions",
    "active",
    "succeeded",
    "failed",
    "startTime",
    "completionTime",
    "completedIndexes",
    "failedIndexes",
)


class JobController:
    """Creates, counts and deletes the pods of batch/v1 Jobs."""

    def __init__(self, client: ObjectClient, caches: Caches) -> None:
        self._client = client
        self._recorder = Recorder(client, "job-controller")
        self._queue: WorkQueue[str] = WorkQueue()
        self._jobs: CurrentObjects[TrackedJob] = CurrentObjects(caches, JOBS, TrackedJob)
        self._pods: CurrentObjects[Pod] = CurrentObjects(caches, PODS, Pod)
        self._jobs.cache.on_change(self._on_job)
        self._pods.cache.on_change(self._on_pod)
        self._vanished: dict[str, dict[str, Pod]] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        await wait_synced(self._jobs.cache, self._pods.cache)
        try:
            await work(self._queue, self.reconcile, workers=WORKERS)
        finally:
            await self._recorder.close()

    def _on_job(self, old: TrackedJob | None, new: TrackedJob | None) -> None:
        if job := new or old:
            self._queue.add(job.metadata.key)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        for pod in (old, new):
            owner = pod.metadata.controller if pod else None
            if pod is None or owner is None or owner.kind != JOBS.kind:
                continue
            key = f"{pod.metadata.namespace}/{owner.name}"
            if new is None:
                self._vanished.setdefault(key, {})[pod.metadata.uid] = pod
            self._queue.add(key)
        if new is not None and new.metadata.controller is None:
            for job in self._jobs.cache.items():
                is_near = job.metadata.namespace == new.metadata.namespace
                if is_near and selects(_selector(job), new.metadata.labels):
                    self._queue.add(job.metadata.key)

    async def reconcile(self, key: str) -> float | None:
        """Bring one Job forward; returns when to look again, in seconds."""
        job = self._jobs.get(key)
        if job is None:
            self._vanished.pop(key, None)
            return None
        uid = job.metadata.uid
        vanished = [pod for pod in self._vanished.get(key, {}).values() if _controller_uid(pod) == uid]
        pods, claims = self._claim(job)
        plan = plan_job(job, pods, clock.now(), vanished=vanished)
        if plan.delete_job:
            await _ignore_gone(self._client.delete(JOBS, *_name(job), propagation="Foreground", uid=uid))
            return None
        indexes = plan.create_indexes or [None] * plan.create_count
        failures = plan.index_failures or [None] * plan.create_count
        steps: list[Awaitable[None]] = [self._set_owners(claim) for claim in claims]
        steps += [self._create_pod(job, *of_index) for of_index in zip(indexes, failures, strict=True)]
        if plan.status is not None:
            steps.append(self._write_status(job, plan))
        await _all_done(steps)
        self._forget(key, vanished)
        await _all_done(self._delete_pod(job, pod) for pod in plan.delete)
        return plan.requeue_after_s

    def _claim(self, job: TrackedJob) -> tuple[list[Pod], list[ApiWrite]]:
        """Return the Job's pods, and the writes by which it adopts those it selects and releases others."""
        mine = self._pods.controlled_by(job.metadata.uid)
        if job.spec.selector is None or is_finished(job) or not is_controlled(job):
            return mine, []
        found = [*mine, *self._pods.orphans_of(job.metadata.namespace)]
        return claim(JOBS, job.metadata, _selector(job), PODS, found)

    async def _set_owners(self, step: ApiWrite) -> None:
        patch = self._client.patch(PODS, step.meta.name, step.body, step.meta.namespace)
        with contextlib.suppress(NotFound):
            self._pods.note(await patch)

    def _forget(self, key: str, vanished: Iterable[Pod]) -> None:
        """Drop the vanished pods that the status now covers, or that it has covered before."""
        remembered = self._vanished.get(key, {})
        for pod in vanished:
            remembered.pop(pod.metadata.uid, None)
        if not remembered:
            self._vanished.pop(key, None)

    async def _create_pod(self, job: TrackedJob, index: int | None, failures: int | None) -> None:
        try:
            answer = await self._client.create(PODS, pod_manifest(job, index, failures))
        except ApiError as error:
            if isinstance(error, Forbidden) and is_namespace_going(error):
                return
            self._emit(job, "Warning", "FailedCreate", f"Error creating: {error}")
            raise
        pod = self._pods.note(answer)
        self._emit(job, "Normal", "SuccessfulCreate", f"Created pod: {pod.metadata.name if pod else ''}")

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
        self._jobs.note(answer)
        for event in plan.events:
            self._emit(job, event.type, event.reason, event.message)

    def _emit(self, job: TrackedJob, type_: str, reason: str, message: str) -> None:
        self._recorder.event((JOBS.api_version, JOBS.kind, job.metadata), type_, reason, message)


def status_patch(old: JobStatus, new: JobStatus) -> dict[str, Any]:
    """Return a merge patch from one status to another; what is empty now is removed."""
    wire = msgspec.to_builtins(new)
    patch: dict[str, Any] = {field: wire.get(field) for field in _STATUS_FIELDS}
    patch |= {"ready": new.ready, "terminating": new.terminating}  # told even when there are none
    before, after = old.uncounted_terminated_pods, new.uncounted_terminated_pods
    if before != after:
        merged = {field: after.get(field) for field in (*before, *after)}
        patch["uncountedTerminatedPods"] = merged if after else None
    return patch


def _controller_uid(pod: Pod) -> str:
    owner = pod.metadata.controller
    return owner.uid if owner else ""


def _selector(job: TrackedJob) -> dict[str, Any]:
    selector: dict[str, Any] = msgspec.to_builtins(job.spec.selector)
    return selector


def _name(job: TrackedJob) -> tuple[str, str]:
    return job.metadata.name, job.metadata.namespace


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
