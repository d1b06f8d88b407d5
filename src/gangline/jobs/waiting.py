"""Why a job's pods do not start, for its own status: who may read the job alone is told, too. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

import msgspec

from gangline.api.core import Condition, Pod, find_condition, is_true
from gangline.jobs.conditions import WAITING, cut, set_waiting
from gangline.jobs.gang import UNSCHEDULABLE
from gangline.workloads.pending import PendingReason, pending_reason_of
from gangline.workloads.unconfirmed_end import UnconfirmedEnd, unconfirmed_end

NOT_MADE = "PodsNotMade"
"""Reason of a job whose pods the API server refuses for now, as a quota does."""


def why_waits(said: Condition | None, pods: Iterable[Pod], refused: str) -> PendingReason | None:
    """Return what holds a job up: its gang, else the first pod that says so, in the given order.

    Args:
        said: what the gang's scheduler said last.
        pods: of the job.
        refused: what the API server said to a pod that it did not take; empty when it took all.

    Cost: under a microsecond for a pod that says nothing.
    """
    if said is not None and said.type == UNSCHEDULABLE:
        return PendingReason(said.reason or UNSCHEDULABLE, said.message)
    for pod in pods:
        if said_of(pod) and (found := pending_reason_of(msgspec.to_builtins(pod))):
            return found
    return PendingReason(NOT_MADE, refused) if refused else None


class JobDraft(Protocol):
    """The status of a job of any kind while it is worked out."""

    kind: str
    key: str
    now: str
    conditions: list[Condition]


def note_waiting(draft: JobDraft, phase: str, why: PendingReason | None) -> None:
    """Say in a job's status what holds it up, or that nothing does any more.

    Args:
        draft: of the job's status.
        phase: of the job, of ``phases.TRANSITIONS``.
        why: what holds it up.
    """
    if phase == "Waiting" and why is not None:
        noted = Condition(type=WAITING, status="True", reason=why.kind, message=cut(str(why)))
    elif is_true(draft.conditions, WAITING):
        state = "Starting" if phase == "Waiting" else phase
        message = f"{draft.kind} {draft.key} waits for nothing: {state}."
        noted = Condition(type=WAITING, status="False", reason=f"{draft.kind}{state}", message=cut(message))
    else:
        return
    draft.conditions = set_waiting(draft.conditions, noted, draft.now)


def late_end(pods: Iterable[Pod], now: datetime) -> tuple[PendingReason | None, float | None]:
    """Return which pods of a job should have ended by now, if any, and when to look again, in seconds."""
    ends = [
        UnconfirmedEnd(pod.metadata.name, pod.spec.node_name, pod.metadata.deletion_timestamp)
        for pod in pods
        if pod.metadata.deletion_timestamp and pod.spec.node_name and not pod.is_finished
    ]
    return unconfirmed_end(ends, now)


def said_of(pod: Pod) -> tuple[str, ...]:
    """Return what was said of a pod that does not start; another value is worth a look at its job."""
    if pod.status.phase != "Pending" or pod.metadata.deletion_timestamp:
        return ()
    placed = find_condition(pod.status.conditions, "PodScheduled")
    said = [placed.message] if placed is not None and placed.status == "False" else []
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if (waiting := status.state.waiting) and waiting.message:
            said.append(f"{waiting.reason}: {waiting.message}")
    return tuple(said)
