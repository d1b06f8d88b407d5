"""What a PodGroup's status says, in each dialect. Pure.

Sources: the status types of scheduler-plugins (phases Pending, Scheduling, Scheduled, Running, Finished,
Failed, by the rules of its controller) and Volcano (phases Pending, Inqueue, Running, Unknown, Completed;
conditions Unschedulable, Scheduled) and Kubernetes (condition PodGroupInitiallyScheduled, API types v0.37.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gangline.api.pod_group import INITIALLY_SCHEDULED
from gangline.placement import Wait
from gangline.scheduler.tally import GangProgress

REASON: Final = "reason"
"""Key of the one word for every reason to wait, in dialects that have only one."""

VOLCANO_WORDS: Final = {
    "Scheduling": "Pending",
    "Scheduled": "Inqueue",
    "Failed": "Unknown",
    "Finished": "Completed",
    REASON: "NotEnoughResources",
}
"""Volcano's words where they differ from those of scheduler-plugins."""

_NO_WORDS: Final[Mapping[str, str]] = {}


def group_status(
    *,
    wait: Wait | None,
    progress: GangProgress,
    min_member: int,
    now: str,
    known: Mapping[str, Any] | None = None,
    words: Mapping[str, str] = _NO_WORDS,
) -> dict[str, Any]:
    """Return the status fields that the scheduler owns.

    Args:
        wait: why the gang waits, if it does.
        progress: of its pods.
        min_member: pods that must start together.
        now: time of a condition's change.
        known: what the status says already; all of it is said anew.
        words: of a dialect, in place of those of scheduler-plugins.
    """
    del known
    phase = _phase(progress, wait, min_member)
    placed = progress.bound + progress.running
    status: dict[str, Any] = {
        "phase": words.get(phase, phase),
        "running": progress.running,
        "succeeded": progress.succeeded,
        "failed": progress.failed,
    }
    if wait is not None:
        reason = words.get(REASON, wait.reason)
        status["conditions"] = [_condition("Unschedulable", reason, wait.message, now)]
    elif placed:
        message = f"{placed} pods are placed"
        status["conditions"] = [_condition("Scheduled", "Scheduled", message, now)]
    return status


def kubernetes_status(
    *,
    wait: Wait | None,
    progress: GangProgress,
    min_member: int,
    now: str,
    known: Mapping[str, Any],
    type_: str = INITIALLY_SCHEDULED,
) -> dict[str, Any]:
    """Return the conditions of Kubernetes' own PodGroup; nothing while there is nothing new to say.

    ``PodGroupInitiallyScheduled`` is False with reason ``Unschedulable`` while the gang waits, and True for
    good once enough of its pods have had a node. Conditions of others stay.

    Args:
        wait: why the gang waits, if it does.
        progress: of its pods.
        min_member: pods that must start together.
        now: time of the condition's change.
        known: the status as it stands.
        type_: of the condition.
    """
    listed = known.get("conditions") or []
    before: dict[str, Any] = next((one for one in listed if one.get("type") == type_), {})
    placed = progress.bound + progress.running + progress.succeeded + progress.failed
    is_placed = placed >= max(min_member, 1)
    if before.get("status") == "True":
        return {}
    if is_placed:
        status, reason, message = "True", "Scheduled", f"{placed} pods are placed"
    elif wait is not None:
        status, reason, message = "False", "Unschedulable", wait.message
    else:
        return {}
    since = before.get("lastTransitionTime", now) if before.get("status") == status else now
    words = {"status": status, "reason": reason, "message": message, "lastTransitionTime": since}
    condition = {"type": type_, **words}
    return {"conditions": [*(one for one in listed if one is not before), condition]}


def is_same(status: dict[str, Any], known: dict[str, Any]) -> bool:
    """Return whether a status says nothing beyond what is known; times do not count, nor fields of others."""
    if any((status[name] or 0) != (known.get(name) or 0) for name in status if name != "conditions"):
        return False
    return "conditions" not in status or _words(status) == _words(known)


def _words(status: dict[str, Any]) -> list[tuple[Any, ...]]:
    found = status.get("conditions") or []
    return [tuple(one.get(key) for key in ("type", "status", "reason", "message")) for one in found]


def _phase(progress: GangProgress, wait: Wait | None, min_member: int) -> str:
    """Return the phase in the words of scheduler-plugins."""
    placed = progress.bound + progress.running
    if min_member and progress.succeeded >= min_member:
        return "Finished"
    if progress.failed and progress.failed + progress.running + progress.succeeded >= min_member:
        return "Failed"
    if progress.running and progress.running + progress.succeeded >= min_member:
        return "Running"
    if wait is None and placed >= max(min_member, 1):
        return "Scheduled"
    return "Scheduling" if placed or (wait is None and progress.pods >= max(min_member, 1)) else "Pending"


def _condition(kind: str, reason: str, message: str, now: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }
