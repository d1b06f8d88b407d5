"""What trainings report of themselves in their logs: how long a step takes, and when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from gangline.clock import parse_time
from gangline.train.records import parse_record

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]

TAIL_LINES = 2_000
"""How much of a log is looked at, from its end."""

LOG_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """How a training goes.

    Attributes:
        step: the last that was reported.
        steps: of the whole training; 0 where unknown.
        step_s: measured seconds of a step; None before two reports.
        over: steps that this is the mean of.
        ends: when it ends if it goes on like this; None where unknown.
    """

    step: int
    steps: int
    step_s: float | None
    over: int
    ends: datetime | None


def progress_of(lines: Iterable[str]) -> TrainingProgress | None:
    """Return the progress in a log whose lines begin with their times; None where nothing is reported. Pure.

    A step that is lower than the one before is that of another attempt: what was before does not count.
    """
    found: list[tuple[datetime, Obj]] = []
    for line in lines:
        record = parse_record(line)
        if record is None or record.get("kind") != "progress" or not isinstance(record.get("step"), int):
            continue
        try:
            moment = parse_time(line.partition(" ")[0])
        except ValueError:
            continue
        if found and record["step"] <= found[-1][1]["step"]:
            found.clear()
        found.append((moment, record))
    if not found:
        return None
    (begun, first), (at, last) = found[0], found[-1]
    over = last["step"] - first["step"]
    eta_s = last.get("eta_s")
    return TrainingProgress(
        step=last["step"],
        steps=int(last.get("steps") or 0),
        step_s=(at - begun).total_seconds() / over if over else None,
        over=over,
        ends=at + timedelta(seconds=float(eta_s)) if isinstance(eta_s, int | float) else None,
    )


async def read_progress(client: ObjectClient, pods: Sequence[Obj]) -> TrainingProgress | None:
    """Return how the training of a job goes, by the log of its first pod (launchers first).

    A log that cannot be read counts for nothing said.
    """
    from gangline.errors import ClusterError

    if not pods:
        return None
    meta = pods[0]["metadata"]
    pieces = []
    try:
        async with asyncio.timeout(LOG_TIMEOUT_S):
            async for piece in client.logs(
                meta["name"], meta.get("namespace"), timestamps=True, tail_lines=TAIL_LINES
            ):
                pieces.append(piece)
    except (ClusterError, TimeoutError):
        return None
    return progress_of(b"".join(pieces).decode(errors="replace").splitlines())
