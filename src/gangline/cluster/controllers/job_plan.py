"""What a Job wants next: ``(job, pods, now) -> JobPlan``. Pure; the shell beside it carries the plan out.

A Job first gets a *target* condition (``SuccessCriteriaMet`` or ``FailureTarget``) and its other pods are
deleted; only when all pods have ended does it get the final one (``Complete`` or ``Failed``). Both are
written at once when nothing is left to wait for. Finished Jobs with a time to live are deleted.

Source: Kubernetes documentation, "Jobs"; condition and event wording as the batch/v1 controller of 1.31
and later.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import msgspec

from gangline.api.core import Condition, Pod, find_condition, is_true
from gangline.clock import format_time, parse_time
from gangline.cluster.controllers.job_pod import format_indexes, free_indexes, parse_indexes, pod_index
from gangline.cluster.controllers.job_tally import (
    IndexFailures,
    PodTally,
    backoff_left_s,
    index_backoff_left_s,
    index_failures,
    restarts,
    settled_uids,
    tally_pods,
)
from gangline.cluster.controllers.job_types import JOB_CONTROLLER, TrackedJob, TrackedJobStatus

CREATED_PODS_MAX = 500
"""Pods created in one pass at most; the rest follows in the next."""


class JobEvent(msgspec.Struct, frozen=True):
    """An event about the Job."""

    type: str
    reason: str
    message: str


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, in this order: status, then events and deletions; pods may be created at any time.

    Attributes:
        status: the new status; None when it stays as it is.
        create_count: pods to create from the template.
        create_indexes: their completion indexes, for an Indexed Job.
        index_failures: how many pods of each of those failed before; empty without a limit for each index.
        delete: pods to delete.
        events: to be sent when the status is written.
        delete_job: the time to live is over.
        requeue_after_s: look again after so many seconds, even if nothing changes.
    """

    status: TrackedJobStatus | None = None
    create_count: int = 0
    create_indexes: tuple[int, ...] = ()
    index_failures: tuple[int, ...] = ()
    delete: tuple[Pod, ...] = ()
    events: tuple[JobEvent, ...] = ()
    delete_job: bool = False
    requeue_after_s: float | None = None


def plan_job(job: TrackedJob, pods: Sequence[Pod], now: datetime, *, vanished: Sequence[Pod] = ()) -> JobPlan:
    """Decide what a Job needs.

    Args:
        job: the Job with the status of its last write.
        pods: every pod that it controls, ended ones included.
        now: the time, used for conditions, deadlines and back-off.
        vanished: the last state of pods that were deleted since, and may not have been counted.
    """
    if not is_controlled(job):
        return JobPlan()
    if is_finished(job):
        return _plan_finished(job, now)
    return _Pass(job, pods, now, tally_pods(job, pods, vanished)).plan()


def is_controlled(job: TrackedJob) -> bool:
    """Return whether this controller brings a Job forward: it is not going, and no other one was asked to."""
    return not job.metadata.deletion_timestamp and job.spec.managed_by in ("", JOB_CONTROLLER)


def is_finished(job: TrackedJob) -> bool:
    """Return whether the Job has its final condition."""
    return is_true(job.status.conditions, "Complete") or is_true(job.status.conditions, "Failed")


def _plan_finished(job: TrackedJob, now: datetime) -> JobPlan:
    ttl_s = job.spec.ttl_seconds_after_finished
    if ttl_s is None:
        return JobPlan()
    final = next(c for c in job.status.conditions if c.type in ("Complete", "Failed") and c.status == "True")
    since = parse_time(final.last_transition_time) if final.last_transition_time else now
    left_s = ttl_s - (now - since).total_seconds()
    return JobPlan(requeue_after_s=left_s) if left_s > 0 else JobPlan(delete_job=True)


class _Pass:
    """One decision about an unfinished Job: gathers conditions, events and deletions on the way."""

    def __init__(self, job: TrackedJob, pods: Sequence[Pod], now: datetime, tally: PodTally) -> None:
        self.job, self.pods, self.now, self.tally = job, pods, now, tally
        self.conditions = list(job.status.conditions)
        self.events: list[JobEvent] = []
        self.active = list(tally.active)
        self.delete: list[Pod] = []
        self.forgiven: list[str] = []
        self.create_count = 0
        self.requeue_after_s: float | None = None
        self.start_time = job.status.start_time
        self.completion_time: str | None = None
        self.succeeded = job.status.succeeded + len(tally.succeeded)
        self.completed: set[int] = set()
        self.create_indexes: tuple[int, ...] = ()
        if job.spec.is_indexed:
            self.completed = parse_indexes(job.status.completed_indexes) | self._indexes(tally.succeeded)
            self.succeeded = len(self.completed)
        self.index_failures: dict[int, IndexFailures] = {}
        self.failed_indexes: set[int] = set()
        if (limit := job.spec.backoff_limit_per_index) is not None:
            self.index_failures = index_failures(job, pods, tally)
            over = {i for i, one in self.index_failures.items() if one.is_final or one.count > limit}
            self.failed_indexes = (parse_indexes(job.status.failed_indexes or "") | over) - self.completed
        self.failed = job.status.failed + len(tally.failed)

    def plan(self) -> JobPlan:
        self._set_suspension()
        target = self._find_target()
        if target:
            self._approach(target)
        elif self.job.spec.suspend:
            self._remove(self.active, count_as_failed=False)
        else:
            self._match_parallelism()
        status = self._status()
        return JobPlan(
            status=status if status != self.job.status else None,
            create_count=self.create_count,
            create_indexes=self.create_indexes,
            index_failures=self._failures_before(self.create_indexes),
            delete=tuple(self.delete),
            events=tuple(self.events),
            requeue_after_s=self.requeue_after_s,
        )

    # ----- conditions

    def _set(self, type_: str, reason: str, message: str, status: str = "True") -> None:
        """Set a condition; its time moves only when its status changes."""
        old = find_condition(self.conditions, type_)
        if old is not None and (old.status, old.reason) == (status, reason):
            return
        when = format_time(self.now)
        if old is not None and old.status == status and old.last_transition_time:
            when = old.last_transition_time
        new = Condition(type=type_, status=status, reason=reason, message=message, last_transition_time=when)
        self.conditions = [new if c.type == type_ else c for c in self.conditions]
        if old is None:
            self.conditions.append(new)

    def _set_suspension(self) -> None:
        was_suspended = is_true(self.conditions, "Suspended")
        if self.job.spec.suspend:
            self.start_time = None
            if not was_suspended:
                self._set("Suspended", "JobSuspended", "Job suspended")
                self.events.append(JobEvent("Normal", "Suspended", "Job suspended"))
            return
        if was_suspended:
            self._set("Suspended", "JobResumed", "Job resumed", status="False")
            self.events.append(JobEvent("Normal", "Resumed", "Job resumed"))
        if was_suspended or not self.start_time:
            self.start_time = format_time(self.now)

    # ----- the target, and the way to it

    def _find_target(self) -> Condition | None:
        """Return the condition that says how the Job will end, setting it if its time has come."""
        for type_ in ("FailureTarget", "SuccessCriteriaMet"):
            if is_true(self.conditions, type_):
                return find_condition(self.conditions, type_)
        if failure := self._failure():
            self._set("FailureTarget", *failure)
            return find_condition(self.conditions, "FailureTarget")
        if message := met_success_rule(self.job.spec.success_policy, self.completed):
            self._set("SuccessCriteriaMet", "SuccessPolicy", message)
            return find_condition(self.conditions, "SuccessCriteriaMet")
        if self._is_complete():
            message = "Reached expected number of succeeded pods"
            self._set("SuccessCriteriaMet", "CompletionsReached", message)
            return find_condition(self.conditions, "SuccessCriteriaMet")
        return None

    def _failure(self) -> tuple[str, str] | None:
        spec = self.job.spec
        if self.tally.verdict:
            return "PodFailurePolicy", self.tally.verdict
        if self.failed > spec.retries or self._restarts_exceeded():
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if spec.active_deadline_seconds is not None and self.start_time and not spec.suspend:
            age_s = (self.now - parse_time(self.start_time)).total_seconds()
            if age_s >= spec.active_deadline_seconds:
                return "DeadlineExceeded", "Job was active longer than specified deadline"
            self._look_again(spec.active_deadline_seconds - age_s)
        failed_count = len(self.failed_indexes)
        if spec.max_failed_indexes is not None and failed_count > spec.max_failed_indexes:
            words = "Job has exceeded the specified maximal number of failed indexes"
            return "MaxFailedIndexesExceeded", words
        if failed_count and failed_count + len(self.completed) >= (spec.completions or 0):
            return "FailedIndexes", "Job has failed indexes"
        return None

    def _restarts_exceeded(self) -> bool:
        """Restarts in place count as retries when the pods restart themselves."""
        spec = self.job.spec
        if (spec.template.get("spec") or {}).get("restartPolicy") != "OnFailure":
            return False
        count = restarts(self.tally.active)
        return count > 0 if spec.retries == 0 else count >= spec.retries

    def _is_complete(self) -> bool:
        if self.job.spec.suspend:
            return False
        completions = self.job.spec.completions
        if completions is None:
            return self.succeeded > 0 and not self.tally.active and not self.tally.terminating
        return self.succeeded >= completions

    def _approach(self, target: Condition) -> None:
        """Delete what still runs; give the final condition once everything has ended."""
        is_success = target.type == "SuccessCriteriaMet"
        self.requeue_after_s = None
        self._remove(self.active, count_as_failed=not is_success)
        if self.delete or self.tally.terminating:
            return
        self._set("Complete" if is_success else "Failed", target.reason, target.message)
        if is_success:
            self.completion_time = format_time(self.now)
            self.events.append(JobEvent("Normal", "Completed", "Job completed"))
        else:
            self.events.append(JobEvent("Warning", target.reason, target.message))

    # ----- pods

    def _indexes(self, pods: Sequence[Pod]) -> set[int]:
        """Return the completion indexes of pods; those that the Job does not have are left out."""
        found = (pod_index(pod) for pod in pods)
        return {index for index in found if index is not None and index < (self.job.spec.completions or 0)}

    def _remove_duplicates(self) -> None:
        """Of the pods of one index the oldest stays; one whose index has ended is not needed."""
        taken = self.completed | self.failed_indexes
        surplus = []
        for pod in sorted(self.active, key=_first_to_go, reverse=True):
            index = pod_index(pod)
            if index is None or index in taken:
                surplus.append(pod)
            else:
                taken.add(index)
        self._remove(surplus, count_as_failed=False)

    def _match_parallelism(self) -> None:
        if self.job.spec.is_indexed:
            self._remove_duplicates()
        spec, active = self.job.spec, len(self.active)
        parallelism = 1 if spec.parallelism is None else spec.parallelism
        if spec.completions is not None:
            wanted = min(parallelism, spec.completions - self.succeeded)
        else:
            wanted = min(parallelism, active) if self.succeeded else parallelism
        if active > wanted:
            surplus = sorted(self.active, key=_first_to_go)[: active - wanted]
            self._remove(surplus, count_as_failed=False)
            return
        missing = wanted - active
        if spec.replaces_only_failed:
            missing -= len(self.tally.terminating)
        if missing <= 0:
            return
        if spec.backoff_limit_per_index is None and (wait_s := backoff_left_s(self.pods, self.now)) > 0:
            self._look_again(wait_s)
            return
        self.create_count = min(missing, CREATED_PODS_MAX)
        if spec.is_indexed:
            self.create_indexes = self._due_indexes(self.create_count)
            self.create_count = len(self.create_indexes)
        if missing > CREATED_PODS_MAX:
            self._look_again(0.0)

    def _due_indexes(self, count: int) -> tuple[int, ...]:
        """Return at most so many indexes that want a pod; one that backs off keeps its place."""
        spec = self.job.spec
        busy = [*self.active, *(self.tally.terminating if spec.replaces_only_failed else ())]
        taken = self.completed | self.failed_indexes | self._indexes(busy)
        free = free_indexes(spec.completions or 0, taken, count)
        waits_s = {i: index_backoff_left_s(self.index_failures.get(i), self.now) for i in free}
        if left_s := [wait_s for wait_s in waits_s.values() if wait_s > 0]:
            self._look_again(min(left_s))
        return tuple(index for index in free if waits_s[index] <= 0)

    def _failures_before(self, indexes: Sequence[int]) -> tuple[int, ...]:
        if self.job.spec.backoff_limit_per_index is None:
            return ()
        found = (self.index_failures.get(index) for index in indexes)
        return tuple(one.count if one else 0 for one in found)

    def _remove(self, pods: Sequence[Pod], *, count_as_failed: bool) -> None:
        self.delete.extend(pods)
        gone = {pod.metadata.uid for pod in pods}
        self.active = [pod for pod in self.active if pod.metadata.uid not in gone]
        if not count_as_failed:
            self.forgiven.extend(gone)

    def _look_again(self, after_s: float) -> None:
        self.requeue_after_s = after_s if self.requeue_after_s is None else min(self.requeue_after_s, after_s)

    # ----- status

    def _status(self) -> TrackedJobStatus:
        ready = sum(1 for pod in self.active if is_true(pod.status.conditions, "Ready"))
        return TrackedJobStatus(
            conditions=self.conditions,
            active=len(self.active) + self.create_count,
            ready=ready,
            succeeded=self.succeeded,
            failed=self.failed,
            terminating=len(self.tally.terminating) + len(self.delete),
            start_time=self.start_time,
            completion_time=self.completion_time,
            completed_indexes=format_indexes(self.completed),
            failed_indexes=None
            if self.job.spec.backoff_limit_per_index is None
            else format_indexes(self.failed_indexes),
            uncounted_terminated_pods=self._settled(),
        )

    def _settled(self) -> dict[str, list[str]]:
        """Return the uids that the counters cover, without those of pods that are gone.

        A finished Job counts no more, so it keeps none. Uids of gone pods alone are no reason for a write.
        """
        if any(c.type in ("Complete", "Failed") and c.status == "True" for c in self.conditions):
            return {}
        succeeded, failed = self.tally.counted_uids
        new_failed = [*failed, *self.forgiven]
        old = self.job.status.uncounted_terminated_pods
        existing = {pod.metadata.uid for pod in self.pods}
        added = existing.intersection((*succeeded, *new_failed)) - settled_uids(self.job)
        if not added:
            return old
        merged = {
            "succeeded": sorted(existing.intersection((*old.get("succeeded", ()), *succeeded))),
            "failed": sorted(existing.intersection((*old.get("failed", ()), *new_failed))),
        }
        return {name: uids for name, uids in merged.items() if uids}


def met_success_rule(policy: dict[str, Any] | None, completed: Collection[int]) -> str:
    """Return which rule of a ``successPolicy`` the completed indexes meet, the first one; or empty."""
    for number, rule in enumerate((policy or {}).get("rules") or []):
        indexes, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        wanted = set(completed) if indexes is None else parse_indexes(indexes)
        needed = len(wanted) if count is None else count
        if completed and len(wanted.intersection(completed)) >= needed:
            return f"Matched rules at index {number}"
    return ""


def _first_to_go(pod: Pod) -> tuple[bool, bool, bool, float]:
    """Order for scaling down: unscheduled, pending, not ready, then the newest first."""
    created = pod.metadata.creation_timestamp
    age = -parse_time(created).timestamp() if created else 0.0
    return (
        bool(pod.spec.node_name),
        pod.status.phase == "Running",
        is_true(pod.status.conditions, "Ready"),
        age,
    )
