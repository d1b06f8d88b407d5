"""What a face shows of a job: status, duration, GPUs, instances. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from gangline.clock import parse_time
from gangline.workloads.job_state import (
    condition,
    ended_at,
    finished,
    is_suspended,
    primary_pods,
    priority_class,
    requested_gpus,
    sort_pods,
)
from gangline.workloads.kinds import kind_of
from gangline.workloads.outcome import Cause
from gangline.workloads.pending import PendingReason, pending_reason_of
from gangline.workloads.pod_state import read_pod_state
from gangline.workloads.requests import pod_gpus

Obj = dict[str, Any]


class InstanceView(msgspec.Struct, frozen=True):
    """One pod of a job."""

    name: str
    status: str
    age_s: float
    is_primary: bool
    gpus: int
    node: str
    ip: str
    node_ip: str
    created: str
    restarts: int


class JobView(msgspec.Struct, frozen=True):
    """One job with its pods.

    Attributes:
        status: SUSPENDED, QUEUING, PENDING, RUNNING, SUCCEEDED or FAILED.
        trainer: its kind in capitals.
        duration_s: from its creation to its end, or until now.
        gpus: how many all its pods ask for.
        gpus_allocated: how many its running and starting pods on nodes have; ``None`` once it is over.
        reason: why it waits or failed, in one line; empty when there is nothing to say.
        pending: what that line says of a job that waits for a pod.
        cause: what it says of one that failed, where its pods and its log were read.
    """

    name: str
    namespace: str
    uid: str
    kind: str
    status: str
    trainer: str
    duration_s: float
    created: str
    ended: str
    priority: str
    gpus: int
    gpus_allocated: int | None
    node: str
    reason: str
    pending: PendingReason | None = None
    cause: Cause | None = None
    instances: tuple[InstanceView, ...] = ()

    @property
    def primary(self) -> str:
        """Name of the pod whose log is the job's; empty when there is none."""
        return next((instance.name for instance in self.instances if instance.is_primary), "")


def view_job(
    job: Obj,
    pods: Sequence[Obj],
    now: datetime,
    warnings: Sequence[Obj] = (),
    cause: Cause | None = None,
) -> JobView:
    """Return the view of a job with the pods that belong to it.

    Args:
        job: in wire form.
        pods: of it.
        now: until when a job that goes on lasts.
        warnings: events of the namespace; they say why a pod waits where its status does not.
        cause: why it failed, where that is known better than its conditions say.
    """
    metadata = job["metadata"]
    primaries = {pod["metadata"]["name"] for pod in primary_pods(job, pods)[-1:]}
    instances = tuple(
        view_pod(pod, now, is_primary=pod["metadata"]["name"] in primaries) for pod in sort_pods(pods)
    )
    over = finished(job)
    pending = None if over or is_suspended(job) else _pending(pods, warnings)
    status, ended = over or _status(job, pods, pending), ended_at(job)
    created = metadata.get("creationTimestamp") or ""
    end = parse_time(ended) if ended else now
    duration_s = (end - parse_time(created)).total_seconds() if created else 0.0
    running = status in ("PENDING", "RUNNING")
    held = [pod for pod in pods if pod.get("spec", {}).get("nodeName") and not _is_over(pod)]
    return JobView(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        uid=metadata.get("uid", ""),
        kind=job["kind"],
        status=status,
        trainer=job["kind"].upper(),
        duration_s=max(0.0, duration_s),
        created=created,
        ended=ended,
        priority=priority_class(job),
        gpus=requested_gpus(job),
        gpus_allocated=sum(pod_gpus(pod["spec"]) for pod in held) if running else None,
        node=next((instance.node for instance in instances if instance.is_primary and instance.node), ""),
        reason=str(cause or _reason(job, status, pending)),
        pending=pending,
        cause=cause,
        instances=instances,
    )


def lifetime_s(job: Obj) -> float:
    """Return the seconds from the creation of a finished job to its end, in whole seconds as its times are.

    A second less, since both times are cut to seconds; 0 when one of them is missing.
    """
    created, ended = job["metadata"].get("creationTimestamp"), ended_at(job)
    lasted_s = (parse_time(ended) - parse_time(created)).total_seconds() if created and ended else 0.0
    return max(0.0, lasted_s - 1)


def view_pod(pod: Obj, now: datetime, *, is_primary: bool) -> InstanceView:
    """Return the view of one pod."""
    created = pod["metadata"].get("creationTimestamp") or ""
    status = pod.get("status", {})
    state = read_pod_state(pod)
    return InstanceView(
        name=pod["metadata"]["name"],
        status=state.status,
        age_s=max(0.0, (now - parse_time(created)).total_seconds()) if created else 0.0,
        is_primary=is_primary,
        gpus=pod_gpus(pod["spec"]),
        node=pod["spec"].get("nodeName") or "",
        ip=status.get("podIP") or "",
        node_ip=status.get("hostIP") or "",
        created=created,
        restarts=state.restarts,
    )


def _status(job: Obj, pods: Sequence[Obj], pending: PendingReason | None) -> str:
    """Return the status of a job that is not over."""
    if is_suspended(job):
        return "SUSPENDED"
    running = condition(job, "Running") or (not kind_of(job).tells_running and pods)
    waiting = [pod for pod in pods if pod.get("status", {}).get("phase") in (None, "Pending")]
    return "PENDING" if waiting or pending or not running else "RUNNING"


def _pending(pods: Sequence[Obj], warnings: Sequence[Obj]) -> PendingReason | None:
    """Return what holds up the first pod that something does."""
    return next(filter(None, (pending_reason_of(pod, warnings) for pod in sort_pods(pods))), None)


def _reason(job: Obj, status: str, pending: PendingReason | None) -> str:
    if status == "SUSPENDED":
        return "the job is suspended"
    if status in ("PENDING", "RUNNING"):
        return str(pending or "")
    failed = (condition(job, "Failed") or {}) if status == "FAILED" else {}
    return str(failed.get("message") or (job.get("status") or {}).get("message") or "")


def _is_over(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def job_report(view: JobView, gpu_kind: str = "") -> dict[str, Any]:
    """Return a job and its instances as plain values; durations and ages as ``Ns``.

    ``gpuKind`` is ``real``, ``simulated``, or null where there is none or nobody knows.
    """
    return {
        "uuid": view.uid,
        "name": view.name,
        "namespace": view.namespace,
        "kind": view.kind,
        "duration": f"{view.duration_s:.0f}s",
        "status": view.status,
        "reason": view.reason,
        "pending": {"kind": view.pending.kind, "scope": view.pending.scope} if view.pending else None,
        "cause": view.cause.as_values() if view.cause else None,
        "trainer": view.trainer.lower(),
        "tensorboard": "",
        "chiefName": view.primary,
        "priority": view.priority or "N/A",
        "requestGPUs": view.gpus,
        "allocatedGPUs": view.gpus_allocated or 0,
        "gpuKind": (gpu_kind if view.gpus else "") or None,
        "creationTimestamp": view.created,
        "endTimestamp": view.ended or None,
        "instances": [
            {
                "name": instance.name,
                "status": instance.status,
                "age": f"{instance.age_s:.0f}s",
                "chief": instance.is_primary,
                "requestGPUs": instance.gpus,
                "ip": instance.ip,
                "node": instance.node,
                "nodeIP": instance.node_ip,
                "restarts": instance.restarts,
                "creationTimestamp": instance.created,
            }
            for instance in view.instances
        ],
    }
