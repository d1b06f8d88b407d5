"""The status of a training job while it is worked out: upstream's conditions, reasons and messages."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from gangline.api.core import Condition, find_condition, is_true
from gangline.api.training.job import TrainingJob, TrainingJobStatus, TrainingReplicaStatus
from gangline.api.training.kinds import TrainingKind
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
from gangline.jobs.plan import Emit, merge_patch_between

EventType = Literal["Normal", "Warning", ""]


class TrainingStatusDraft:
    """A copy of a job's status that takes the changes of one reconcile.

    Attributes:
        events: what is to be told once the status is written.
        counts: counters that grow then.
        restarts: pods that were made again.
        restarting_pods: uids of the pods that go for it and are not gone yet.
    """

    def __init__(self, kind: TrainingKind, job: TrainingJob, now: datetime) -> None:
        status = job.status
        self.kind = kind.name
        self.key = job.metadata.key
        self._name = job.metadata.name
        self.now = format_time(now)
        self.conditions = list(status.conditions)
        self.replicas = dict(status.replica_statuses)
        self.start_time = status.start_time
        self.completion_time = status.completion_time
        self.restarts = status.restarts
        self.restarting_pods = list(status.restarting_pods)
        self.last_restart_time = status.last_restart_time
        self.events: list[Emit] = []
        self.counts: list[str] = []
        self.wanted = {type_: job.count(type_) for type_ in job.roles}
        self._last_reconcile_time = status.last_reconcile_time

    @property
    def is_finished(self) -> bool:
        """Whether the job has come to its end."""
        return has_finished(self.conditions)

    def created(self) -> None:
        """Note that the job has been seen."""
        if find_condition(self.conditions, CREATED) is None:
            self._change(CREATED, f"{self.kind} {self._name} is created.")
            self.counts.append("created")

    def suspended(self, why: str) -> None:
        """Note that the job holds no pods by wish, and why."""
        message = f"{self.kind} {self._name} is suspended{f': {why}' if why else '.'}"
        if is_true(self.conditions, RUNNING):
            self._change(RUNNING, message, status="False", suffix=SUSPENDED)
        self._change(SUSPENDED, message, event="Normal")
        self.replicas = {type_: replace(found, active=0) for type_, found in self.replicas.items()}

    def resumed(self) -> None:
        """Note that a job that was suspended is so no more; any other job has now started."""
        if is_true(self.conditions, SUSPENDED):
            message = f"{self.kind} {self._name} is resumed."
            self._change(SUSPENDED, message, status="False", suffix="Resumed", event="Normal")
            self.start_time = self.now
        self.start_time = self.start_time or self.now

    def running(self, message: str) -> None:
        """Note that the job runs."""
        self._change(RUNNING, message)

    def restarting(self, message: str, count: int, uids: list[str]) -> None:
        """Note which pods are to be made again, and as how many restarts that counts."""
        self._change(RESTARTING, message)
        self._restarted(message, count, uids)

    def _restarted(self, message: str, count: int, uids: list[str]) -> None:
        self.events.append(Emit("Warning", f"{self.kind}Restarting", message))
        self.last_restart_time = self.now
        self.restarts += count
        self.counts += ["restarted"] * count
        self.restarting_pods = [*self.restarting_pods, *uids]

    def succeeded(self, message: str) -> None:
        """Note the good end: what still runs counts as done."""
        self.completion_time = self.completion_time or self.now
        self._change(SUCCEEDED, message, event="Normal")
        self.counts.append("successful")
        self.replicas = {
            type_: replace(found, succeeded=found.succeeded + found.active, active=0)
            for type_, found in self.replicas.items()
        }

    def failed(self, message: str, *, event: EventType = "Normal", reason: str = "") -> None:
        """Note the bad end."""
        self.completion_time = self.completion_time or self.now
        self._change(FAILED, message, event=event, reason=reason)
        self.counts.append("failed")

    def past_deadline(self, message: str) -> None:
        """Note that the job ran too long."""
        self.failed(message)

    def removed(self) -> None:
        """Note that pods that still ran are deleted."""
        self.replicas = {type_: replace(found, active=0) for type_, found in self.replicas.items()}

    def blocked(self, reason: str, message: str) -> None:
        """Note that this cluster cannot run the job yet."""
        self._change(BLOCKED, message, event="Warning", reason=reason)

    def unblocked(self) -> None:
        """Take back that the job cannot be run."""
        self.conditions = [condition for condition in self.conditions if condition.type != BLOCKED]

    def forget_failure(self) -> None:
        """Take a verdict back that the job's new spec has made void."""
        self.conditions = [condition for condition in self.conditions if condition.type != FAILED]
        self.completion_time = None

    def _change(
        self,
        type_: str,
        message: str,
        *,
        status: str = "True",
        suffix: str = "",
        reason: str = "",
        event: EventType = "",
    ) -> None:
        if is_true(self.conditions, FAILED):
            return
        message, reason = cut(message), reason or f"{self.kind}{suffix or type_}"
        before = self.conditions
        wanted = Condition(type=type_, status=status, reason=reason, message=message)
        self.conditions = set_condition(before, wanted, self.now)
        if event and self.conditions is not before:
            self.events.append(Emit(event, reason, message))

    def to_wire(self) -> dict[str, Any]:
        """Return the whole status as the API has it."""
        status = TrainingJobStatus(
            conditions=true_last(self.conditions),
            replica_statuses=self.replicas,
            start_time=self.start_time,
            completion_time=self.completion_time,
            last_reconcile_time=self._last_reconcile_time,
            restarts=self.restarts,
            last_restart_time=self.last_restart_time,
            restarting_pods=self.restarting_pods,
        )
        wire: dict[str, Any] = msgspec.to_builtins(status)
        return wire

    def difference(self, old: Any) -> dict[str, Any]:
        """Return the merge patch from the status as it is written now; empty when nothing changed."""
        return merge_patch_between(old if isinstance(old, dict) else {}, self.to_wire())

    def count(self, counted: dict[str, TrainingReplicaStatus]) -> None:
        """Take the pods by type as they are now."""
        self.replicas = counted
