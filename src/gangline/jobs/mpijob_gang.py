"""An MPIJob as its gang sees it."""

from __future__ import annotations

from gangline.api.core import find_condition
from gangline.api.mpijob import LAUNCHER, WORKER, MPIJob, SchedulingPolicy
from gangline.api.resources import MPIJOBS
from gangline.jobs.gang import Dialect, GangedJob, gang_warnings, other_schedulers
from gangline.jobs.names import other_child_labels
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.plan import Emit


def gang_of_mpijob(job: MPIJob) -> GangedJob:
    """Return the gang of an MPIJob; a launcher that waits for its workers cannot be placed with them."""
    policy = job.spec.run_policy
    counts = {LAUNCHER: 1, WORKER: job.worker_count}
    order = (WORKER, LAUNCHER) if job.launcher_waits else (LAUNCHER, WORKER)
    roles = tuple((role, counts[name]) for name in order if (role := job.spec.replica(name)))
    return GangedJob(
        owner=MPIJOBS,
        metadata=job.metadata,
        policy=policy.scheduling_policy or SchedulingPolicy(),
        limit_s=policy.active_deadline_seconds,
        roles=roles,
        size=job.worker_count if job.launcher_waits and job.worker_count else job.worker_count + 1,
        labels=other_child_labels(job.metadata.name),
        keeps_order=job.launcher_waits,
    )


def mpijob_gang_warnings(job: MPIJob, dialect: Dialect, observed: ObservedChildren) -> list[Emit]:
    """Return what a user should know of a gang that has not run: odd names, a scheduler that is not asked."""
    if find_condition(job.status.conditions, "Running"):
        return []
    gang = gang_of_mpijob(job)
    return gang_warnings(gang, observed.priorities) + [
        Emit("Warning", "SchedulerNameOverridden", f"schedulerName {name} becomes {dialect.scheduler}")
        for name in other_schedulers(gang, dialect)
    ]
