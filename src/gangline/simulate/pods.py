"""Jobs of a trace as the pods and gangs that :mod:`gangline.placement` decides about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gangline.clock import format_time
from gangline.placement import Gang, Group, PodView
from gangline.placement.amounts import PODS
from gangline.simulate.trace import TraceJob
from gangline.workloads.requests import GPU

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""The virtual clock shows this at second 0 of a trace."""


def moment(seconds: float) -> datetime:
    """Return what the virtual clock shows."""
    return BEGIN + timedelta(seconds=seconds)


def pods_of(job: TraceJob, *, since_s: float | None = None) -> list[PodView]:
    """Return the pods of a job, in the order of their ranks; made when it arrived, or at a later second."""
    created = format_time(moment(job.arrival_s if since_s is None else since_s))
    gpus, gang = job.gpus_per_pod, job.name if job.pods > 1 else ""
    return [
        PodView(
            key=f"{job.name}/{rank}",
            uid=f"{job.name}/{rank}",
            request={GPU: gpus, PODS: 1},
            created=created,
            shape=b"%d" % gpus,
            gang=gang,
            gpu_shares=(("worker", 0, gpus),),
            limit_s=None if job.limit_s is None else int(job.limit_s),
        )
        for rank in range(job.pods)
    ]


def gang_of(job: TraceJob, *, since_s: float | None = None) -> Gang:
    """Return the job as a gang, see :func:`pods_of`; one of a single pod is that pod."""
    pods = pods_of(job, since_s=since_s)
    if len(pods) == 1:
        return Gang(pods[0].key, pods)
    group = Group(key=job.name, min_member=len(pods), created=pods[0].created, limit_s=job.limit_s)
    return Gang(job.name, pods, group)
