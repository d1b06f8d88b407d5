"""What a PodGroup's status says, in each dialect. Pure.

Sources: the status types of scheduler-plugins (phases Pending, Scheduling, Scheduled, Running, Finished,
Failed) and Volcano (phases Pending, Inqueue, Running; condition Unschedulable).
"""

from __future__ import annotations

from typing import Any

from gangline.placement.decisions import Wait

NOT_ENOUGH = "NotEnoughResources"


def group_status(
    *, is_volcano: bool, wait: Wait | None, bound: int, running: int, now: str
) -> dict[str, Any]:
    """Return the status fields that the scheduler owns.

    Args:
        is_volcano: which dialect.
        wait: why the gang waits, if it does.
        bound: pods of it that hold room.
        running: pods of it that run.
        now: time of a condition's change.
    """
    if is_volcano:
        phase = "Running" if running and not wait else "Inqueue" if not wait else "Pending"
        kind = "Unschedulable" if wait else "Scheduled"
    else:
        phase = "Pending" if wait and not bound else "Scheduling" if wait else "Scheduled"
        phase = "Running" if running and not wait else phase
        kind = "Unschedulable" if wait else "Scheduled"
    condition = {
        "type": kind,
        "status": "True",
        "reason": wait.reason if wait and not is_volcano else NOT_ENOUGH if wait else "Scheduled",
        "message": wait.message if wait else f"{bound} pods are placed",
        "lastTransitionTime": now,
    }
    return {"phase": phase, "running": running, "conditions": [condition]}
