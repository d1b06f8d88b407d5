"""The status of an MPIJob while it is worked out: upstream's conditions, events and counters."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec

from gangline.api.core import Condition, Pod, find_condition, is_true
from gangline.api.mpijob import LAUNCHER, WORKER, MPIJob, MPIJobStatus, ReplicaStatus
from gangline.api.resources import MPIJOBS
from gangline.clock import format_time
from gangline.jobs.conditions import (
    BLOCKED,
    CREATED,
    FAILED,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
    cut,
    has_finished,
    set_condition,
    true_last,
)
from gangline.jobs.failure import FailedCondition
from gangline.jobs.plan import Emit, merge_patch_between

_EventType = Literal["Normal", "Warning", ""]


class StatusDraft:
    """A copy of a job's status that takes the changes of one reconcile.

    Attributes:
        events: what is to be told once the status is written.
        counts: counters that grow then.
    """

    def __init__(self, job: MPIJob, now: datetime) -> None:
        status = job.status
        self.kind = MPIJOBS.kind
        self.key = job.metadata.key
        self.now = format_time(now)
        self.conditions = list(status.conditions)
        self.replicas = dict(status.replica_statuses)
        self.start_time = status.start_time
        self.completion_time = status.completion_time
        self.events: list[Emit] = []
        self.counts: list[str] = []
        self.restarts = status.restarts
        self.launcher_replacements = status.launcher_replacements
        self.workers = job.worker_count
        self._last_reconcile_time = status.last_reconcile_time

    @property
    def is_finished(self) -> bool:
        """Whether the job has come to its end."""
        return has_finished(self.conditions)

    def created(self, *, has_launcher: bool) -> None:
        """Note that the job has been seen; a launcher that is not made yet is not counted."""
        if find_condition(self.conditions, CREATED) is None:
            self._change(CREATED, "True", "MPIJobCreated", f"MPIJob {self.key} is created.", event="Normal")
            self.counts.append("created")
        if has_launcher:
            self.replicas.setdefault(LAUNCHER, ReplicaStatus())
        self.replicas.setdefault(WORKER, ReplicaStatus())

    def suspended(self, why: str) -> None:
        """Note that the job holds no pods by wish, and why. Its end of the list says so: it comes last."""
        self._change(RUNNING, "False", "MPIJobSuspended", f"MPIJob {self.key} is suspended.")
        message = f"MPIJob suspended: {why}" if why else "MPIJob suspended"
        self._change(SUSPENDED, "True", "MPIJobSuspended", message, event="Normal")
        self.replicas[WORKER] = ReplicaStatus()

    def resumed(self) -> None:
        """Note that a job that was suspended is so no more; any other job has now started."""
        is_known = find_condition(self.conditions, SUSPENDED) is not None
        if is_known and self._change(SUSPENDED, "False", "MPIJobResumed", "MPIJob resumed", event="Normal"):
            self.start_time = self.now
        if self.start_time is None:
            self.start_time = self.now

    def running(self) -> None:
        """Note that launcher and workers run."""
        self._change(RUNNING, "True", "MPIJobRunning", f"MPIJob {self.key} is running.", event="Normal")

    def succeeded(self, completion_time: str | None) -> None:
        """Note the good end."""
        self.completion_time = self.completion_time or completion_time or self.now
        self._never_ran()
        message = f"MPIJob {self.key} successfully completed."
        self._change(SUCCEEDED, "True", "MPIJobSucceeded", message, event="Normal")
        self.counts.append("successful")

    def failed(self, verdict: FailedCondition) -> None:
        """Note the bad end."""
        self.completion_time = self.completion_time or self.now
        self._never_ran()
        self._change(FAILED, "True", verdict.reason, verdict.message, event="Warning")
        self.counts.append("failed")

    def restarting(self, verdict: FailedCondition, limit: int) -> None:
        """Note that the whole gang is to be started again, and why."""
        self.restarts += 1
        message = f"{verdict.message}; the whole gang starts again ({self.restarts} of at most {limit} times)"
        # The condition may stand from the time before, and would keep that message.
        self.conditions = [condition for condition in self.conditions if condition.type != RESTARTING]
        self._change(RESTARTING, "True", "MPIJobRestarting", message, event="Warning")
        self.replicas = {role: ReplicaStatus() for role in self.replicas}
        self.counts.append("restarted")

    def blocked(self, reason: str, message: str) -> None:
        """Note that this cluster cannot run the job yet."""
        self._change(BLOCKED, "True", reason, message, event="Warning")

    def unblocked(self) -> None:
        """Take back that the job cannot be run."""
        if find_condition(self.conditions, BLOCKED):
            self.conditions = [condition for condition in self.conditions if condition.type != BLOCKED]

    def forget_failure(self) -> None:
        """Take a verdict back that the job's new spec has made void."""
        self.conditions = [
            condition for condition in self.conditions if condition.type not in (FAILED, RUNNING)
        ]
        self.completion_time = None

    def count_workers(self, pods: Iterable[Pod]) -> None:
        """Count the workers by phase."""
        phases = [pod.status.phase for pod in pods]
        self.replicas[WORKER] = ReplicaStatus(
            active=phases.count("Running"), succeeded=phases.count("Succeeded"), failed=phases.count("Failed")
        )

    def _never_ran(self) -> None:
        if find_condition(self.conditions, RUNNING) is None:
            message = f"MPIJob {self.key} is finished but Running condition was never set."
            at = self.completion_time
            self.conditions.append(
                Condition(
                    type=RUNNING,
                    status="False",
                    reason="MPIJobRunning",
                    message=message,
                    last_update_time=at,
                    last_transition_time=at,
                )
            )

    def _change(
        self,
        type_: str,
        status: str,
        reason: str,
        message: str,
        *,
        event: _EventType = "",
    ) -> bool:
        message = cut(message)
        before = self.conditions
        wanted = Condition(type=type_, status=status, reason=reason, message=message)
        self.conditions = set_condition(before, wanted, self.now)
        if self.conditions is before:
            return False
        if event:
            self.events.append(Emit(event, reason, message))
        return True

    def to_wire(self) -> dict[str, Any]:
        """Return the whole status as the API has it."""
        status = MPIJobStatus(
            conditions=true_last(self.conditions),
            replica_statuses=self.replicas,
            start_time=self.start_time,
            completion_time=self.completion_time,
            last_reconcile_time=self._last_reconcile_time,
            restarts=self.restarts,
            launcher_replacements=self.launcher_replacements,
            workers=self.workers,
        )
        wire: dict[str, Any] = msgspec.to_builtins(status)
        return wire

    def difference(self, old: Any) -> dict[str, Any]:
        """Return the merge patch from the status as it is written now; empty when nothing changed."""
        return merge_patch_between(old if isinstance(old, dict) else {}, self.to_wire())


def was_created(job: MPIJob) -> bool:
    """Whether the job was found good once."""
    return is_true(job.status.conditions, CREATED)
