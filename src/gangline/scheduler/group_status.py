"""What a PodGroup's status says, in each dialect. Pure.

Sources: the status types of scheduler-plugins (phases Pending, Scheduling, Scheduled, Running, Finished,
Failed, by the rules of its controller) and Volcano (phases Pending, Inqueue, Running, Unknown, Completed;
conditions Unschedulable, Scheduled) and Kubernetes (condition PodGroupInitiallyScheduled, API types v0.37.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gangline.api.pod_group import DISRUPTION_TARGET, INITIALLY_SCHEDULED, PREEMPTION
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

NOT_DECIDED: Final = ("Refused", "BackOff")
"""Reasons to wait that have nothing to do with room: a spec that is not honoured, a failed binding."""

_NO_WORDS: Final[Mapping[str, str]] = {}


def group_status(
    *,
    wait: Wait | None,
    progress: GangProgress,
    min_member: int,
    now: str,
    known: Mapping[str, Any] | None = None,
    disruption: str | None = None,
    generation: int = 0,
    words: Mapping[str, str] = _NO_WORDS,
) -> dict[str, Any]:
    """Return the status fields that the scheduler owns.

    Args:
        wait: why the gang waits, if it does.
        progress: of its pods.
        min_member: pods that must start together.
        now: time of a condition's change.
        known: what the status says already; all of it is said anew.
        disruption: of no use, for these dialects do not say it.
        generation: as well.
        words: of a dialect, in place of those of scheduler-plugins.
    """
    del known, disruption, generation
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
    disruption: str | None = None,
    generation: int = 0,
    type_: str = INITIALLY_SCHEDULED,
) -> dict[str, Any]:
    """Return the conditions of Kubernetes' own PodGroup; nothing while there is nothing new to say.

    ``PodGroupInitiallyScheduled`` is False with reason ``Unschedulable`` while the gang waits, or
    ``SchedulerError`` where it cannot be decided about or bound; it is True for good once enough of its pods
    have had a node. ``DisruptionTarget`` is True from the moment it gives way until it is placed again.
    Conditions of others stay.

    Args:
        wait: why the gang waits, if it does.
        progress: of its pods.
        min_member: pods that must start together.
        now: time of the condition's change.
        known: the status as it stands.
        disruption: that it gives way, and to whom; empty once it has been placed again, None before.
        generation: of the spec that was looked at.
        type_: of the condition.
    """
    listed = list(known.get("conditions") or [])
    placed = progress.placed
    said = {one.get("type"): one for one in listed}
    wanted: dict[str, tuple[str, str, str]] = {}
    if said.get(type_, {}).get("status") == "True":
        pass
    elif placed >= max(min_member, 1):
        wanted[type_] = "True", "Scheduled", f"{placed} pods are placed"
    elif wait is not None:
        reason = "SchedulerError" if wait.reason in NOT_DECIDED else "Unschedulable"
        wanted[type_] = "False", reason, wait.message
    if disruption:
        wanted[DISRUPTION_TARGET] = "True", PREEMPTION, disruption
    if disruption == "" and DISRUPTION_TARGET in said:
        listed.remove(said[DISRUPTION_TARGET])
    elif not wanted:
        return {}
    return {"conditions": _changed(listed, wanted, now, generation)}


def _changed(
    listed: list[dict[str, Any]], wanted: Mapping[str, tuple[str, str, str]], now: str, generation: int
) -> list[dict[str, Any]]:
    """Return conditions with some as they are wanted; the time is that of the last change of the status."""
    before = {one.get("type"): one for one in listed}
    found = [one for one in listed if one.get("type") not in wanted]
    for type_, (status, reason, message) in wanted.items():
        known = before.get(type_, {})
        since = known.get("lastTransitionTime", now) if known.get("status") == status else now
        words = {"status": status, "reason": reason, "message": message, "lastTransitionTime": since}
        found.append({"type": type_, **words, **({"observedGeneration": generation} if generation else {})})
    return found


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
