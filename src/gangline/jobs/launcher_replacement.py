"""A launcher that its node refused is no failure of the program: it is placed anew without counting.

A scheduler may bind a pod to a node that has no room for it any more; the node's kubelet then fails the pod
before it ran. A Job of Kubernetes counts that against its backoff limit, and cannot be told not to. So the
Job is replaced by one with the budget that the true failures have left: after a pause that doubles, and at
most ``replacements_max`` times.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from gangline.api.core import Job, Pod, find_condition
from gangline.api.mpijob import DEFAULT_BACKOFF_LIMIT, MPIJob
from gangline.clock import parse_time
from gangline.jobs.conditions import cut
from gangline.jobs.names import LAUNCHER_FAILURES_ANNOTATION, count_in
from gangline.jobs.plan import Emit

LAUNCHER_REFUSED: Final = "MPIJobLauncherRefused"

replacements_max = 6
first_wait_s = 10.0
wait_max_s = 360.0
"""Both are those of Kubernetes between the pods of a Job."""
_LAG_MAX_S = 10.0
_LAG_RETRY_S = 1.0


def backoff_limit_of(job: MPIJob) -> int:
    """Return how many failures of the program a job forgives."""
    limit = job.spec.run_policy.backoff_limit
    return DEFAULT_BACKOFF_LIMIT if limit is None else limit


def count_failures(launcher: Job, pods: Sequence[Pod]) -> int:
    """Return how many pods of a launcher failed by themselves, with those of the Jobs that it replaces."""
    before = count_in(launcher.metadata, LAUNCHER_FAILURES_ANNOTATION)
    return before + max(launcher.status.failed - len(_refused(pods)), 0)


def replacement_wait_s(job: MPIJob, launcher: Job | None, pods: Sequence[Pod], now: datetime) -> float | None:
    """Return after how many seconds a failed launcher Job is to be replaced; None where it is not.

    Args:
        job: the job; its status says how many Jobs were replaced.
        launcher: the Job of now.
        pods: of that Job.
        now: zero or less is returned once the pause is over.
    """
    failed = find_condition(launcher.status.conditions, "Failed") if launcher else None
    if (
        launcher is None
        or failed is None
        or (failed.status, failed.reason) != ("True", "BackoffLimitExceeded")
    ):
        return None
    age_s = (
        (now - parse_time(failed.last_transition_time)).total_seconds()
        if failed.last_transition_time
        else 0.0
    )
    if age_s < _LAG_MAX_S and _is_behind(launcher, pods):
        return _LAG_RETRY_S
    if not _refused(pods) or job.status.launcher_replacements >= replacements_max:
        return None
    template = launcher.spec.template.get("spec") or {}
    # A pod that is restarted in place fails only when its restarts are used up.
    left = backoff_limit_of(job) if template.get("restartPolicy") == "Never" else 0
    if count_failures(launcher, pods) > left:
        return None
    return float(min(first_wait_s * 2**job.status.launcher_replacements, wait_max_s) - age_s)


def rejection_events(pods: Sequence[Pod]) -> list[Emit]:
    """Return the warning about the newest launcher pod that was refused."""
    refused = _refused(pods)
    if not refused:
        return []
    pod = max(refused, key=lambda found: (found.metadata.creation_timestamp or "", found.metadata.name))
    node = f"node {pod.spec.node_name}" if pod.spec.node_name else "its node"
    said = ": ".join(text for text in (pod.status.reason, pod.status.message) if text)
    message = (
        f"launcher pod {pod.metadata.name} was refused by {node} ({said}); "
        "it is placed anew, and that does not count against the backoff limit"
    )
    return [Emit("Warning", LAUNCHER_REFUSED, cut(message))]


def describe_replacements(job: MPIJob) -> str:
    """Return what is added to the words about a launcher that failed in the end."""
    times = job.status.launcher_replacements
    return f" (placed anew {times} time{'s' if times > 1 else ''})" if times else ""


def _refused(pods: Sequence[Pod]) -> list[Pod]:
    return [pod for pod in pods if pod.is_refused]


def _is_behind(launcher: Job, pods: Sequence[Pod]) -> bool:
    """Whether a pod that a failed Job has counted is known only as it was before."""
    known = sum(pod.status.phase == "Failed" for pod in pods)
    lags = any(not pod.is_finished and not pod.metadata.deletion_timestamp for pod in pods)
    return lags and known < launcher.status.failed
