"""What people see of a job: status, duration, GPUs, instances. Pure: from objects in wire form to values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from gangline.cli.jobs.pending_reason import why_pending
from gangline.clock import parse_time
from gangline.cluster.runs.record import RunRecord, summary_of
from gangline.workloads.job_state import (
    condition,
    finished,
    is_suspended,
    primary_pods,
    priority_class,
    requested_gpus,
    sort_pods,
)
from gangline.workloads.kinds import kind_of
from gangline.workloads.pod_state import read_pod_state
from gangline.workloads.requests import pod_gpus

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class InstanceView:
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


@dataclass(frozen=True, slots=True)
class JobView:
    """One job with its pods.

    Attributes:
        status: SUSPENDED, QUEUING, PENDING, RUNNING, SUCCEEDED or FAILED.
        trainer: its kind in capitals.
        duration_s: from its creation to its end, or until now.
        gpus: how many all its pods ask for.
        gpus_allocated: how many its running and starting pods on nodes have; ``None`` once it is over.
        reason: why it waits or failed, in one line; empty when there is nothing to say.
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
    instances: tuple[InstanceView, ...] = field(default=())

    @property
    def primary(self) -> str:
        """Name of the pod whose log is the job's; empty when there is none."""
        return next((instance.name for instance in self.instances if instance.is_primary), "")


def view_job(job: Obj, pods: Sequence[Obj], now: datetime, warnings: Sequence[Obj] = ()) -> JobView:
    """Return the view of an MPIJob, a Job or a Pod with the pods that belong to it.

    Warnings are events of the namespace; they say why a pod waits where its status does not.
    """
    metadata = job["metadata"]
    primaries = {pod["metadata"]["name"] for pod in primary_pods(job, pods)[-1:]}
    instances = tuple(
        view_pod(pod, now, is_primary=pod["metadata"]["name"] in primaries) for pod in sort_pods(pods)
    )
    status, reason, ended = _status(job, pods, warnings)
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
        reason=reason,
        instances=instances,
    )


def as_run(view: JobView, record: RunRecord) -> JobView:
    """Return the view of a job that is gone, or whose cluster is not up, as that of its run."""
    run = summary_of(record, datetime.now(UTC), is_up=False)
    reason = run.cancelled_why or view.reason
    return replace(
        view,
        status=run.status,
        duration_s=run.duration_s,
        ended=run.ended,
        reason=reason,
        gpus_allocated=None,
    )


def lifetime_s(job: Obj) -> float:
    """Return the seconds from the creation of a finished job to its end, in whole seconds as its times are.

    A second less, since both times are cut to seconds; 0 when one of them is missing.
    """
    view = view_job(job, (), datetime.now(UTC))
    return max(0.0, view.duration_s - 1) if view.ended else 0.0


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


def _status(job: Obj, pods: Sequence[Obj], warnings: Sequence[Obj]) -> tuple[str, str, str]:
    """Return status, reason and the time of the end."""
    status = job.get("status") or {}
    over = finished(job)
    if over:
        failed = condition(job, "Failed") or {}
        last = max(
            (found.get("lastTransitionTime") or "" for found in status.get("conditions") or []), default=""
        )
        words = failed.get("message", "") if over == "FAILED" else ""
        return over, words or status.get("message", ""), status.get("completionTime") or last
    if is_suspended(job):
        return "SUSPENDED", "the job is suspended", ""
    reason = next(filter(None, (why_pending(pod, warnings) for pod in sort_pods(pods))), "")
    running = condition(job, "Running") or (not kind_of(job).tells_running and pods)
    waiting = [pod for pod in pods if pod.get("status", {}).get("phase") in (None, "Pending")]
    return ("PENDING" if waiting or reason or not running else "RUNNING"), reason, ""


def _is_over(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
