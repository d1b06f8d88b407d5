"""Logs that somebody looks at: followed once, whoever many look, with the curves of the records in them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gangline.api.resources import PODS
from gangline.client.jobs.log_text import LogText
from gangline.errors import GanglineError
from gangline.kube.errors import NotFound
from gangline.launch.rank_tags import ANNOTATION
from gangline.page.log_lines import Lines
from gangline.page.series import Curves

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]

retry_s: Final = 2.0
KEPT_S: Final = 30.0
"""How long a log is followed that nobody looks at any more: somebody may come back."""


class LogFeed:
    """The log of one pod while somebody looks at it.

    Attributes:
        lines: its last ones.
        curves: of the records in it.
        ended: whether nothing more comes.
        error: why it cannot be read, in words; empty while it can.
    """

    def __init__(self, client: ObjectClient, pod: Obj, on_change: Callable[[], None]) -> None:
        self._client, self._on_change = client, on_change
        self._has_ranks = ANNOTATION in (pod["metadata"].get("annotations") or {})
        self._name, self._namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self.lines = Lines(has_ranks=self._has_ranks)
        self.curves = Curves()
        self.ended = False
        self.error = ""
        self.watchers = 0
        self._task = asyncio.create_task(self._follow(), name=f"log of {self._name}")

    async def stop(self) -> None:
        """Follow it no more."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _follow(self) -> None:
        """Follow the log, of a container that is started again too, until its pod is over."""
        while True:
            text, is_new = LogText(has_tags=self._has_ranks), True
            try:
                async for piece in self._client.logs(self._name, self._namespace, follow=True):
                    if is_new:  # what was read before a failure is kept until more comes
                        self.lines, self.curves = Lines(has_ranks=self._has_ranks), Curves()
                        is_new = False
                    self.error = ""
                    self._take(*text.feed(piece))
                self._take(*text.flush())
                self.lines.flush()
                self.error = ""
                if await self._is_over():
                    self.ended = True
                    self._on_change()
                    return
            except GanglineError as error:
                self.error = error.message
            self._on_change()
            await asyncio.sleep(retry_s)

    async def _is_over(self) -> bool:
        try:
            pod = await self._client.get(PODS, self._name, self._namespace)
        except NotFound:
            return True
        return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    def _take(self, shown: bytes, records: list[Obj]) -> None:
        self.lines.feed(shown)
        for record in records:
            self.curves.add(record)
        if shown or records:
            self._on_change()


class Feeds:
    """The logs that are followed now, by the uid of their pods."""

    def __init__(self, client: ObjectClient) -> None:
        self._client = client
        self._feeds: dict[str, LogFeed] = {}
        self._endings: set[asyncio.Task[None]] = set()
        self.on_change: Callable[[], None] = lambda: None

    def open(self, pod: Obj) -> LogFeed:
        """Return the feed of a pod for one more watcher."""
        uid = pod["metadata"]["uid"]
        if uid not in self._feeds:
            self._feeds[uid] = LogFeed(self._client, pod, lambda: self.on_change())
        self._feeds[uid].watchers += 1
        return self._feeds[uid]

    def find(self, uid: str) -> LogFeed | None:
        """Return the feed of a pod that is followed."""
        return self._feeds.get(uid)

    def close(self, uid: str) -> None:
        """Take a watcher back; the last one's log is followed a while longer."""
        feed = self._feeds.get(uid)
        if feed is None:
            return
        feed.watchers -= 1
        if feed.watchers <= 0:
            task = asyncio.create_task(self._end_later(uid, feed))
            self._endings.add(task)
            task.add_done_callback(self._endings.discard)

    async def _end_later(self, uid: str, feed: LogFeed) -> None:
        await asyncio.sleep(KEPT_S)
        if feed.watchers <= 0 and self._feeds.get(uid) is feed:
            del self._feeds[uid]
            await feed.stop()

    async def stop(self) -> None:
        """Follow none any more."""
        for task in list(self._endings):
            task.cancel()
        for feed in list(self._feeds.values()):
            await feed.stop()
        self._feeds.clear()
