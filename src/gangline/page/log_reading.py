"""Reads of a log what a training reports, without following it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gangline.client.jobs.log_text import LogText
from gangline.errors import GanglineError
from gangline.launch.rank_tags import ANNOTATION
from gangline.page.log_lines import Lines
from gangline.page.series import Columns, Curves
from gangline.train.records import parse_record

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]

TAIL_LINES: Final = 100
"""Records and empty lines among them."""
TAIL_BYTES_MAX: Final = 1 << 20
"""A bar that is drawn anew has no end of line for as long as it goes on."""
T = TypeVar("T")


async def read_together(reads: Iterable[Coroutine[Any, Any, T]], limit_s: float) -> list[asyncio.Task[T]]:
    """Carry reads out at once; what is not done in time is cancelled, and so is all when the caller is."""
    reading = [asyncio.create_task(read, name="end of a log") for read in reads]
    try:
        if reading:
            await asyncio.wait(reading, timeout=limit_s)
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    return reading


async def last_progress(client: ObjectClient, pod: Obj, lines: int) -> Obj | None:
    """Return the last record of progress among the last lines of a pod's log; None where there is none.

    Raises:
        ClusterError: the log cannot be read.
    """
    meta, data = pod["metadata"], b""
    async for piece in client.logs(meta["name"], meta["namespace"], tail_lines=lines):
        data = (data + piece)[-TAIL_BYTES_MAX:]
    for line in reversed(data.decode(errors="replace").splitlines()):
        record = parse_record(line)
        if record and record["kind"] == "progress":
            return record
    return None


async def last_lines(client: ObjectClient, pod: Obj) -> dict[int | None, str]:
    """Return what each rank wrote last among the last lines of a pod's log; records do not count.

    Raises:
        ClusterError: the log cannot be read.
    """
    meta, has_tags = pod["metadata"], ANNOTATION in (pod["metadata"].get("annotations") or {})
    text, lines = LogText(has_tags=has_tags), Lines(has_ranks=has_tags)
    async for piece in client.logs(meta["name"], meta["namespace"], tail_lines=TAIL_LINES):
        lines.feed(text.feed(piece)[0])
    lines.feed(text.flush()[0])
    lines.flush()
    return lines.last


async def read_curves(log: AsyncIterator[bytes], pod: Obj) -> Columns:
    """Return the curves of the records in a pod's log; a log that cannot be read has none.

    Cost: reads the whole log.
    """
    text = LogText(has_tags=ANNOTATION in (pod["metadata"].get("annotations") or {}))
    curves = Curves()
    with contextlib.suppress(GanglineError):
        async for piece in log:
            for record in text.feed(piece)[1]:
                curves.add(record)
        for record in text.flush()[1]:
            curves.add(record)
    return curves.columns()
