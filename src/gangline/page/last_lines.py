"""What the pods of a job wrote last, and its ranks where a launcher tags their lines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gangline.errors import GanglineError
from gangline.page.log_lines import RANKS_MAX
from gangline.page.log_reading import last_lines

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient
    from gangline.page.feeds import Feeds

Obj = dict[str, Any]

PODS_MAX: Final = 32
"""Pods of a job whose logs are asked for their ends, each by a request."""
READING_MAX: Final = 64
"""Requests under way at once, of all jobs that somebody looks at."""
KEPT_MAX: Final = 1_024
"""Pods whose last lines are remembered."""
CHARS_MAX: Final = 300
read_every_s: Final = 2.0
read_timeout_s: Final = 30.0
"""A node that is busy may take its time: nobody waits for it."""
_BEGUN: Final = ("Running", "Succeeded", "Failed")
_OVER: Final = ("Succeeded", "Failed")


class LastLine(msgspec.Struct, frozen=True):
    """What a rank wrote last, or a pod of which nobody knows the rank."""

    pod: str
    rank: int | None
    text: str


class _Known(msgspec.Struct, frozen=True):
    lines: dict[int | None, str]
    read_s: float
    is_final: bool
    """The pod was over when it was read."""


class LastLines:
    """Reads the ends of logs while nobody waits for them; of a log that is followed already they are known.

    Args:
        client: asks with the user's own rights.
        feeds: the logs that are followed.
        on_change: told when other lines are known.
    """

    def __init__(self, client: ObjectClient, feeds: Feeds, on_change: Callable[[], None]) -> None:
        self._client, self._feeds, self._on_change = client, feeds, on_change
        self._known: dict[str, _Known] = {}
        """By the pods' uids, as the reads."""
        self._reading: dict[str, asyncio.Task[None]] = {}

    def of(self, pods: Sequence[Obj]) -> list[LastLine]:
        """Return what is known of a job's pods, in their order, and begin to read what may have changed."""
        found: list[LastLine] = []
        begun = [pod for pod in pods if (pod.get("status") or {}).get("phase") in _BEGUN]
        for pod in begun[:PODS_MAX]:
            lines = sorted(self._lines(pod).items(), key=lambda one: -1 if one[0] is None else one[0])
            found += [LastLine(pod["metadata"]["name"], rank, text[:CHARS_MAX]) for rank, text in lines]
        return found[:RANKS_MAX]

    async def stop(self) -> None:
        """Read no more."""
        reading = list(self._reading.values())
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    def _lines(self, pod: Obj) -> dict[int | None, str]:
        uid = pod["metadata"]["uid"]
        if feed := self._feeds.find(uid):
            return feed.lines.last
        known = self._known.get(uid)
        is_due = known is None or (not known.is_final and time.monotonic() - known.read_s > read_every_s)
        if is_due and uid not in self._reading and len(self._reading) < READING_MAX:
            task = asyncio.create_task(self._read(pod), name="end of a log")
            self._reading[uid] = task
            task.add_done_callback(lambda _: self._reading.pop(uid))
        return known.lines if known else {}

    async def _read(self, pod: Obj) -> None:
        uid, is_over = pod["metadata"]["uid"], pod["status"]["phase"] in _OVER
        before = known.lines if (known := self._known.get(uid)) else {}
        try:
            async with asyncio.timeout(read_timeout_s):
                found, is_final = await last_lines(self._client, pod), is_over
        except (GanglineError, TimeoutError):  # not everybody may read logs
            found, is_final = before, False
        if len(self._known) >= KEPT_MAX:
            self._known.clear()
        self._known[uid] = _Known(found, time.monotonic(), is_final)
        if found != before:
            self._on_change()
