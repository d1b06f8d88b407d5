"""Count the pods of a Job: which are active, which have ended since the last count, how long to back off.

Every pod is counted once, by uid, also over restarts: the uids that the counters of the status already cover
stand in ``status.uncountedTerminatedPods`` for as long as their pods exist, written together with the
counters. (Kubernetes keeps a finalizer on each pod for this, which costs two more writes a pod.) A pod
that is deleted before it was counted is handed over by the shell as *vanished*. That memory does not
outlive the process: such a pod is replaced without being counted when the process dies within the
milliseconds between the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from gangline.api.core import Pod
from gangline.clock import parse_time
from gangline.cluster.controllers.job_pod import earlier_failures, pod_index
from gangline.cluster.controllers.job_types import TrackedJob

BACKOFF_FIRST_S = 10.0
BACKOFF_LIMIT_S = 600.0


class PodTally(msgspec.Struct, frozen=True, kw_only=True):
    """Pods by what they mean for their Job.

    Attributes:
        active: neither ended nor being deleted.
        terminating: being deleted and not ended.
        succeeded: ended well since the last count.
        failed: ended badly since the last count (with the replacement policy ``TerminatingOrFailed`` also
            those that are being deleted).
        ignored: ended badly, but a rule of the pod failure policy says not to count them.
        verdict: message of the rule that fails the whole Job, or empty.
    """

    active: tuple[Pod, ...] = ()
    terminating: tuple[Pod, ...] = ()
    succeeded: tuple[Pod, ...] = ()
    failed: tuple[Pod, ...] = ()
    ignored: tuple[Pod, ...] = ()
    verdict: str = ""

    @property
    def counted_uids(self) -> tuple[list[str], list[str]]:
        """The uids that this tally settles: succeeded, and failed or ignored."""
        return [p.metadata.uid for p in self.succeeded], [
            p.metadata.uid for p in (*self.failed, *self.ignored)
        ]


def settled_uids(job: TrackedJob) -> set[str]:
    """Return the uids that the counters already cover."""
    return {uid for uids in job.status.uncounted_terminated_pods.values() for uid in uids}


def tally_pods(job: TrackedJob, pods: Sequence[Pod], vanished: Sequence[Pod]) -> PodTally:
    """Sort the pods of a Job by what they mean. Cost: 1 µs a pod."""
    settled = settled_uids(job)
    active: list[Pod] = []
    terminating: list[Pod] = []
    succeeded: list[Pod] = []
    failed: list[Pod] = []
    ignored: list[Pod] = []
    verdict = ""
    for pod, is_gone in [*((pod, False) for pod in pods), *((pod, True) for pod in vanished)]:
        is_deleted = is_gone or pod.metadata.deletion_timestamp is not None
        phase = pod.status.phase
        if not is_gone and not pod.is_finished:
            (terminating if is_deleted else active).append(pod)
        if pod.metadata.uid in settled:
            continue
        if phase == "Succeeded":
            succeeded.append(pod)
        elif phase == "Failed" or is_gone or (is_deleted and not job.spec.replaces_only_failed):
            action, message = match_failure_rule(job, pod)
            verdict = verdict or (message if action == "FailJob" else "")
            (ignored if action == "Ignore" else failed).append(pod)
    return PodTally(
        active=tuple(active),
        terminating=tuple(terminating),
        succeeded=tuple(succeeded),
        failed=tuple(failed),
        ignored=tuple(ignored),
        verdict=verdict,
    )


class IndexFailures(msgspec.Struct, frozen=True):
    """Failures of one index: how many pods failed, which one last, whether a rule fails the index at once."""

    count: int
    last: Pod
    is_final: bool = False


def index_failures(job: TrackedJob, pods: Iterable[Pod], tally: PodTally) -> dict[int, IndexFailures]:
    """Return the failures of each index that had some, from the pods that exist and those just counted.

    A pod carries how many failed before it, so the newest of an index knows all. A failure is forgotten when
    its pod is deleted before it is replaced: Kubernetes holds such a pod by its finalizer.
    """
    kept = [pod for pod in pods if pod.status.phase == "Failed" and not pod.metadata.deletion_timestamp]
    found: dict[int, IndexFailures] = {}
    for pod in {pod.metadata.uid: pod for pod in (*kept, *tally.failed, *tally.ignored)}.values():
        if (index := pod_index(pod)) is None:
            continue
        action, _ = match_failure_rule(job, pod)
        new = IndexFailures(earlier_failures(pod) + (action != "Ignore"), pod, action == "FailIndex")
        old = found.get(index)
        if old is None or (new.count, new.is_final) > (old.count, old.is_final):
            found[index] = new
    return found


def match_failure_rule(job: TrackedJob, pod: Pod) -> tuple[str, str]:
    """Return action and message of the first rule of ``podFailurePolicy`` that a failed pod matches."""
    for number, rule in enumerate((job.spec.pod_failure_policy or {}).get("rules") or []):
        action = rule.get("action", "Count")
        if rule.get("onExitCodes") is not None:
            if found := _matching_exit(rule["onExitCodes"], pod):
                return action, f"{found} matching {action} rule at index {number}"
        elif condition := _matching_condition(rule.get("onPodConditions") or [], pod):
            where = f"Pod {pod.metadata.key} has condition {condition}"
            return action, f"{where} matching {action} rule at index {number}"
    return "Count", ""


def _matching_exit(rule: dict[str, Any], pod: Pod) -> str:
    """Return which container ended with an exit code that the rule names; success never matches."""
    values = rule.get("values") or []
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        ended = status.state.terminated
        if ended is None or ended.exit_code == 0:
            continue
        if rule.get("containerName") and rule["containerName"] != status.name:
            continue
        if (ended.exit_code in values) == (rule.get("operator") == "In"):
            return (
                f"Container {status.name} for pod {pod.metadata.key} failed with exit code {ended.exit_code}"
            )
    return ""


def _matching_condition(patterns: list[dict[str, str]], pod: Pod) -> str:
    for pattern in patterns:
        for condition in pod.status.conditions:
            if condition.type == pattern.get("type") and condition.status == pattern.get("status", "True"):
                return condition.type
    return ""


def restarts(pods: Iterable[Pod]) -> int:
    """Return how often the containers of the pods were restarted in place."""
    return sum(
        status.restart_count
        for pod in pods
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    )


def ended_at(pod: Pod) -> datetime | None:
    """Return when a pod ended: the end of its last container, else its deletion or creation."""
    ends = [
        status.state.terminated.finished_at
        for status in pod.status.container_statuses
        if status.state.terminated and status.state.terminated.finished_at
    ]
    text = max(ends, default=None) or pod.metadata.deletion_timestamp or pod.metadata.creation_timestamp
    return parse_time(text) if text else None


def backoff_left_s(pods: Iterable[Pod], now: datetime) -> float:
    """Return how long to wait before the next pod: 10 s after a failure, doubling, at most 10 minutes.

    A success resets it. Computed from the pods that exist, so it survives restarts.
    """
    ends: list[tuple[datetime, bool]] = []
    for pod in pods:
        if pod.is_finished and (end := ended_at(pod)):
            ends.append((end, pod.status.phase == "Failed"))
    last_success = max((end for end, is_failure in ends if not is_failure), default=None)
    failures = [
        end for end, is_failure in ends if is_failure and (last_success is None or end > last_success)
    ]
    return _left_s(len(failures), max(failures, default=now), now)


def index_backoff_left_s(failures: IndexFailures | None, now: datetime) -> float:
    """Return how long to wait before the next pod of an index; the others do not matter to it."""
    if failures is None:
        return 0.0
    return _left_s(max(failures.count, 1), ended_at(failures.last) or now, now)


def _left_s(failures: int, last: datetime, now: datetime) -> float:
    if not failures:
        return 0.0
    delay_s = min(BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 16), BACKOFF_LIMIT_S)
    return max(0.0, delay_s - (now - last).total_seconds())
