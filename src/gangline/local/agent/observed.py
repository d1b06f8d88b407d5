"""What the agent knows of the containers of one pod: values, from the shim's reports."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

State = Literal["waiting", "running", "exited"]
EXIT_KILLED = 137
BACK_OFF_RESET_S = 600.0
"""A container that ran this long starts its back-off anew."""


class Ended(msgspec.Struct, frozen=True):
    """How one attempt ended. Times are seconds since 1970."""

    exit_code: int
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: float = 0.0
    finished_at: float = 0.0
    attempt: int = 0


class Observed(msgspec.Struct, frozen=True):
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
    ended: Ended | None = None
    before: Ended | None = None
    ready: bool = False
    started: bool = False
    waiting_reason: str = "ContainerCreating"
    waiting_message: str = ""


def observe(
    before: Observed | None, report: dict[str, Any], *, message: str = "", oom: bool = False
) -> Observed:
    """Return what is known of a container after the shim's report about it (see the shim's protocol)."""
    name, attempt = report["name"], report["attempt"]
    known = before or Observed(name)
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
    ended = Ended(
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


def begin(known: Observed, attempt: int) -> Observed:
    """Return the container at the start of another attempt."""
    if known.ended is None:
        return msgspec.structs.replace(known, attempt=attempt)
    ran_s = known.ended.finished_at - known.ended.started_at
    return Observed(
        name=known.name,
        attempt=attempt,
        crashes=0 if ran_s >= BACK_OFF_RESET_S else known.crashes + max(1, attempt - known.attempt),
        before=known.ended,
        waiting_reason="ContainerCreating",
    )


def lost(known: Observed, *, now_s: float, message: str) -> Observed:
    """Return a container whose shim was killed: it ended with it."""
    if known.state == "exited":
        return known
    ended = Ended(
        exit_code=EXIT_KILLED,
        signal=9,
        reason="Error",
        message=message,
        started_at=known.started_at,
        finished_at=now_s,
        attempt=known.attempt,
    )
    return msgspec.structs.replace(known, state="exited", ended=ended, ready=False, started=False)
