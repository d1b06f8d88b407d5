"""How the list of a job's conditions changes.

The order of the list is the order of the last changes, which readers rely on: the last condition tells what
the job is doing. Source: mpi-operator's setCondition and filterOutCondition.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gangline.api.core import Condition, find_condition, is_true

CREATED = "Created"
RUNNING = "Running"
RESTARTING = "Restarting"
SUSPENDED = "Suspended"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
BLOCKED = "Blocked"
"""Ours: the job is good, but this cluster cannot run it yet."""
WAITING = "Waiting"
"""Ours: what its pods wait for, in the words of the gang's scheduler, of a pod, or of the API server."""

MESSAGE_CHARACTERS_MAX = 1024


def standing(status: Any) -> str:
    """Return the type of the last condition that holds in a status as it is sent; empty where none does."""
    conditions = status.get("conditions") if isinstance(status, dict) else None
    for one in reversed(conditions if isinstance(conditions, list) else []):
        if isinstance(one, dict) and one.get("status") == "True":
            return str(one.get("type", ""))
    return ""


_EXCLUDES = {RUNNING: RESTARTING, RESTARTING: RUNNING}


def set_condition(conditions: list[Condition], new: Condition, now: str) -> list[Condition]:
    """Return the list with the condition set; the very same list where status and reason stay.

    The transition time is kept when only the reason changes. Setting Failed or Succeeded turns an existing
    Running, Restarting or Failed to False in place; Running and Restarting take each other's place.

    Args:
        conditions: the list so far.
        new: type, status, reason and message; its times are set here.
        now: the time of the change, RFC 3339.
    """
    old = find_condition(conditions, new.type)
    if old and (old.status, old.reason) == (new.status, new.reason):
        return conditions
    kept = []
    for condition in conditions:
        if condition.type in (new.type, _EXCLUDES.get(new.type)):
            continue
        ends = new.type in (FAILED, SUCCEEDED) and condition.type in (RUNNING, RESTARTING, FAILED)
        kept.append(replace(condition, status="False") if ends and condition.status != "False" else condition)
    changed = old is None or old.status != new.status
    transition = now if changed or old is None else old.last_transition_time
    return [*kept, replace(new, last_update_time=now, last_transition_time=transition)]


def set_waiting(conditions: list[Condition], new: Condition, now: str) -> list[Condition]:
    """Return the list with Waiting set; the very same list where status, reason and message stay.

    It stands first: clients of upstream take the last condition for the state of the job, and do not know it.
    """
    old = find_condition(conditions, WAITING)
    if old and (old.status, old.reason, old.message) == (new.status, new.reason, new.message):
        return conditions
    since = old.last_transition_time if old and old.status == new.status else now
    kept = [condition for condition in conditions if condition.type != WAITING]
    return [replace(new, last_update_time=now, last_transition_time=since), *kept]


def true_last(conditions: list[Condition]) -> list[Condition]:
    """Return the list with one at its end that holds: the column STATE shows the type of the last."""
    holding = [condition for condition in conditions if condition.status == "True"]
    if not holding or holding[-1] is conditions[-1]:
        return conditions
    return [*(condition for condition in conditions if condition is not holding[-1]), holding[-1]]


def has_finished(conditions: list[Condition]) -> bool:
    """Whether the job has succeeded or failed."""
    return is_true(conditions, SUCCEEDED) or is_true(conditions, FAILED)


def cut(message: str) -> str:
    """Return the message in the length that the API allows."""
    if len(message) <= MESSAGE_CHARACTERS_MAX:
        return message
    return message[: MESSAGE_CHARACTERS_MAX - 3] + "..."
