"""What the agent knows of the containers of one pod: values, from the shim's reports or the pod's status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from gangline.api.core import ContainerStateTerminated, Pod
from gangline.clock import parse_time

State = Literal["waiting", "running", "exited"]
EXIT_KILLED = 137
BACK_OFF_RESET_S = 600.0
"""A container that ran this long starts its back-off anew."""


class AttemptEnd(msgspec.Struct, frozen=True):
    """How one attempt ended. Times are seconds since 1970."""

    exit_code: int
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: float = 0.0
    finished_at: float = 0.0
    attempt: int = 0


class ObservedContainer(msgspec.Struct, frozen=True):
    """One container as last seen.

    Attributes:
        state: waiting until its first attempt runs, and between attempts when it has ``waiting_reason``.
        attempt: number of the attempt, from 0; the restart count.
        crashes: restarts without a run of ``BACK_OFF_RESET_S`` in between; decides the back-off.
        ended: how this attempt ended.
        before: how the attempt before it ended.
        ready: passes its readiness probe, or has none and runs.
        started: passes its startup probe, or has none and runs.
    """

    name: str
    state: State = "waiting"
    attempt: int = 0
    crashes: int = 0
    started_at: float = 0.0
    ended: AttemptEnd | None = None
    before: AttemptEnd | None = None
    ready: bool = False
    started: bool = False
    waiting_reason: str = "ContainerCreating"
    waiting_message: str = ""


def observe(
    before: ObservedContainer | None, report: dict[str, Any], *, message: str = "", oom: bool = False
) -> ObservedContainer:
    """Return what is known of a container after the shim's report about it (see the shim's protocol)."""
    name, attempt = report["name"], report["attempt"]
    known = before or ObservedContainer(name)
    if attempt != known.attempt or (known.ended is not None and report["state"] != "exited"):
        known = begin(known, attempt)
    if report["state"] == "starting":
        return known
    if report["state"] == "running":
        running = (
            known if known.state == "running" else msgspec.structs.replace(known, ready=False, started=False)
        )
        return msgspec.structs.replace(running, state="running", started_at=report["started_at"])
    code = report["exit_code"]
    reason = report["reason"] or ("OOMKilled" if oom else "Completed" if code == 0 else "Error")
    ended = AttemptEnd(
        exit_code=code,
        signal=report["signal"],
        reason=reason,
        message=report["message"] or message,
        started_at=report["started_at"],
        finished_at=report["finished_at"],
        attempt=attempt,
    )
    return msgspec.structs.replace(
        known, state="exited", started_at=report["started_at"], ended=ended, ready=False, started=False
    )


def begin(known: ObservedContainer, attempt: int) -> ObservedContainer:
    """Return the container at the start of another attempt."""
    if known.ended is None:
        return msgspec.structs.replace(known, attempt=attempt)
    ran_s = known.ended.finished_at - known.ended.started_at
    return ObservedContainer(
        name=known.name,
        attempt=attempt,
        crashes=0 if ran_s >= BACK_OFF_RESET_S else known.crashes + max(1, attempt - known.attempt),
        before=known.ended,
        waiting_reason="ContainerCreating",
    )


def lost(known: ObservedContainer, *, now_s: float, message: str) -> ObservedContainer:
    """Return a container that nobody watches over any more: it has ended."""
    if known.state == "exited":
        return known
    ended = AttemptEnd(
        exit_code=EXIT_KILLED,
        signal=9,
        reason="Error",
        message=message,
        started_at=known.started_at,
        finished_at=now_s,
        attempt=known.attempt,
    )
    return msgspec.structs.replace(known, state="exited", ended=ended, ready=False, started=False)


def conclude(
    known: Mapping[str, ObservedContainer],
    reports: Mapping[str, dict[str, Any]],
    *,
    now_s: float,
    message: str,
    read: Callable[[ObservedContainer | None, dict[str, Any]], ObservedContainer] = observe,
) -> dict[str, ObservedContainer]:
    """Return what became of containers that nobody watches over any more.

    What had ended keeps its end, what had begun is lost, and what was not written down never began.

    Args:
        known: what was seen of them.
        reports: the last ones that were written down; newer than what was seen.
        now_s: seconds since 1970.
        message: why containers are lost.
        read: how a report is taken in.
    """
    found = dict(known)
    for name, report in reports.items():
        before = known.get(name)
        if before is None or report["attempt"] >= before.attempt:
            fresh = read(before, report)
            is_over = report["state"] == "exited"
            found[name] = fresh if is_over else lost(fresh, now_s=now_s, message=message)
    return {
        name: lost(one, now_s=now_s, message=message) if one.state == "running" else one
        for name, one in found.items()
    }


def as_report(known: ObservedContainer) -> dict[str, Any] | None:
    """Return a container's last end as a shim reports it, None while it has none."""
    ended = known.ended or known.before
    if ended is None:
        return None
    fields = msgspec.structs.asdict(ended)
    return fields | {"name": known.name, "state": "exited", "pid": 0, "notes": []}


def as_before(known: ObservedContainer) -> ObservedContainer:
    """Return what is still true of a container when only the attempts before its last report are believed."""
    return ObservedContainer(known.name, attempt=known.attempt, crashes=known.crashes, before=known.before)


def observed_in_status(pod: Pod) -> dict[str, ObservedContainer]:
    """Return what a pod's status says of the containers that have run, for an agent without a record of them.

    One that it says to be running, or to be starting again, is one that was begun.
    """
    found = {}
    statuses = pod.status
    for status in (
        *statuses.init_container_statuses,
        *statuses.container_statuses,
        *statuses.ephemeral_container_statuses,
    ):
        now, before = status.state, _ended(status.last_state.terminated, status.restart_count - 1)
        known = ObservedContainer(
            status.name, attempt=status.restart_count, crashes=status.restart_count, before=before
        )
        if now.running is not None:
            known = msgspec.structs.replace(
                known, state="running", started_at=_seconds(now.running.started_at)
            )
        elif (ended := now.terminated or status.last_state.terminated) is not None:
            known = msgspec.structs.replace(known, state="exited", ended=_ended(ended, known.attempt))
        else:
            continue
        found[status.name] = known
    return found


def _ended(state: ContainerStateTerminated | None, attempt: int) -> AttemptEnd | None:
    if state is None:
        return None
    return AttemptEnd(
        exit_code=state.exit_code,
        signal=state.signal,
        reason=state.reason,
        message=state.message,
        started_at=_seconds(state.started_at),
        finished_at=_seconds(state.finished_at),
        attempt=attempt,
    )


def _seconds(text: str | None) -> float:
    try:
        return parse_time(text).timestamp() if text else 0.0
    except ValueError:  # a status may be written by anybody
        return 0.0
