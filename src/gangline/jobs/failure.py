"""Why a job failed: which pod decides it, and the reason and message of the condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gangline.api.core import Job, Pod, find_condition, is_true
from gangline.workloads.outcome import describe_end

JOB_FAILED = "MPIJobFailed"
JOB_EVICTED = "MPIJobEvicted"
WORKER_FAILED = "MPIJobWorkerFailed"
WORKER_LOST = "MPIJobWorkerLost"
PREEMPTED = "PreemptionByScheduler"
"""Reason of DisruptionTarget. Source: Kubernetes, Pod disruption conditions."""


class FailedCondition(NamedTuple):
    """Reason and message of the Failed condition."""

    reason: str
    message: str

    @property
    def is_disruption(self) -> bool:
        """Whether the cluster took workers away, and no program failed."""
        return self.reason == JOB_EVICTED


def judge_workers(workers: Sequence[Pod]) -> FailedCondition | None:
    """Return why the job cannot go on without the workers that have failed; None while all are well.

    A pod that is being deleted is no failure, for it will be replaced; so will one that its node refused.
    Evictions keep upstream's words.
    """
    failed = [
        pod
        for pod in workers
        if pod.status.phase == "Failed" and not pod.is_refused and not pod.metadata.deletion_timestamp
    ]
    if not failed:
        return None
    evicted = sorted(
        pod.metadata.name for pod in failed if pod.status.reason == "Evicted" or is_disrupted(pod)
    )
    if evicted:
        count = f"{len(evicted)}/{len(workers)} workers are evicted"
        return FailedCondition(JOB_EVICTED, f"{count}: {', '.join(evicted)}")
    first = min(failed, key=lambda pod: (_finished_at(pod), pod.metadata.name))
    more = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
    return FailedCondition(
        WORKER_FAILED, f"worker pod {first.metadata.name} failed: {describe_failure(first)}{more}"
    )


def is_disrupted(pod: Pod) -> bool:
    """Whether Kubernetes says that it ends a pod through no fault of the pod's own."""
    return is_true(pod.status.conditions, "DisruptionTarget")


def judge_evicted_workers(workers: Sequence[Pod], *, by_scheduler: bool) -> FailedCondition | None:
    """Return which workers Kubernetes ends through no fault of theirs; None when there are none.

    Args:
        workers: all that are wanted.
        by_scheduler: count those that give way to others, too.
    """
    names = []
    for pod in workers:
        target = find_condition(pod.status.conditions, "DisruptionTarget")
        if target and target.status == "True" and (by_scheduler or target.reason != PREEMPTED):
            names.append(pod.metadata.name)
    count = f"{len(names)}/{len(workers)} workers are evicted"
    return FailedCondition(JOB_EVICTED, f"{count}: {', '.join(sorted(names))}") if names else None


def judge_lost_workers(names: Sequence[str]) -> FailedCondition | None:
    """Return what to say of workers that were deleted while the job ran; None when there are none."""
    if not names:
        return None
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return FailedCondition(WORKER_LOST, f"worker pod {names[0]} was deleted while the job ran{more}")


def judge_launcher(name: str, launcher: Job, pods: Sequence[Pod]) -> FailedCondition:
    """Return why the launcher Job failed, with what its newest failed pod says.

    Args:
        name: ``NAMESPACE/NAME`` of the MPIJob.
        launcher: the Job, with a Failed condition.
        pods: the pods of the Job that still exist.
    """
    condition = find_condition(launcher.status.conditions, "Failed")
    reason = (condition.reason if condition else "") or JOB_FAILED
    message = (condition.message if condition else "") or f"MPIJob {name} has failed"
    failed = [pod for pod in pods if pod.status.phase == "Failed"]
    if reason == "BackoffLimitExceeded" and failed:
        newest = max(failed, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
        if newest.status.reason:
            reason += f"/{newest.status.reason}"
        said = newest.status.message or f"pod {newest.metadata.name}: {describe_failure(newest)}"
        message += f": {said}"
    return FailedCondition(reason, message)


def describe_failure(pod: Pod) -> str:
    """Return what ended a failed pod: container and exit code, or what the node said."""
    ends = [(status.name, status.state.terminated) for status in pod.status.container_statuses]
    bad = [(name, end) for name, end in ends if end and (end.exit_code or end.signal)]
    if bad:
        name, end = min(bad, key=lambda item: item[1].finished_at or "")
        return f"container {name} {describe_end(end.exit_code, end.reason, end.message, signal=end.signal)}"
    said = [text for text in (pod.status.reason, pod.status.message) if text]
    return ": ".join(said) if said else "its node gave no reason"


def _finished_at(pod: Pod) -> str:
    ends = [status.state.terminated for status in pod.status.container_statuses]
    times = [end.finished_at for end in ends if end and end.finished_at]
    return min(times, default="~")  # sorts after every time
