"""The recent past of the store: a bounded ring of changes, and the watchers that are fed from it.

A watcher starts at a revision of the ring and then gets every later change of its collection once, in order.
It has a bounded queue: a watcher that does not keep up is closed, never thinned out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import msgspec

RING_CHANGES_MAX = 10_000
RING_BYTES_MAX = 8 << 20
WATCHER_CHANGES_MAX = 4096
WATCHER_BYTES_MAX = 8 << 20
"""Of changes that wait for one watcher: as much as the ring keeps, so that one that is ended can come back.
All watchers share the changes; the slowest of them decides how much is held."""
WATCHER_TAKES_BYTES = 256 << 10
"""Of changes that a reader takes at once."""
PARSED_CHANGES_MAX = 256
"""So many of the newest changes keep the parsed form of the old state, for the selectors of watchers."""

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

_decode = msgspec.json.Decoder().decode


class Entry:
    """One state of one object: immutable by agreement, its dict is parsed on first use.

    Attributes:
        revision: the store's revision at which it was written.
        data: JSON, as sent to clients.
        written_s: seconds since the epoch of the write.
    """

    __slots__ = ("_obj", "data", "revision", "written_s")

    def __init__(self, revision: int, data: bytes, written_s: int, obj: dict[str, Any] | None = None) -> None:
        self.revision = revision
        self.data = data
        self.written_s = written_s
        self._obj = obj

    @property
    def obj(self) -> dict[str, Any]:
        """The object in wire form; must not be changed."""
        obj = self._obj
        if obj is None:
            obj = self._obj = _decode(self.data)
        return obj

    def forget(self) -> None:
        """Drop the parsed form; it comes back when needed."""
        self._obj = None


class Change:
    """One committed write. ``old`` and ``new`` let a selector tell who sees it appear or go.

    For ``DELETED`` ``new`` is the last state with the deletion's own revision.
    """

    __slots__ = ("collection", "lines", "name", "namespace", "new", "old", "revision", "type")

    def __init__(
        self,
        type_: ChangeType,
        collection: str,
        namespace: str,
        name: str,
        old: Entry | None,
        new: Entry,
    ) -> None:
        self.type = type_
        self.collection = collection
        self.namespace = namespace
        self.name = name
        self.old = old
        self.new = new
        self.revision = new.revision
        self.lines: dict[Any, bytes] = {}
        """Rendered watch lines, shared by the watchers that ask for the same form."""

    def slim(self) -> None:
        """Drop what can be made again: parsed forms of states that are no more, rendered lines."""
        if self.old is not None:
            self.old.forget()
        if self.type == "DELETED":
            self.new.forget()
        self.lines.clear()


class Watcher:
    """A bounded queue of the changes of one collection; made by ``Ring.watch``."""

    def __init__(self, collection: str, namespace: str | None, name: str | None, revision: int) -> None:
        self.collection = collection
        self.namespace = namespace
        self.name = name
        self.revision = revision
        """Everything up to this revision has been handed out."""
        self.closed = False
        """Closed by the ring: it fell too far behind, or the server ends."""
        self._changes: deque[Change] = deque()
        self._bytes = 0
        self._wakeup: asyncio.Future[None] | None = None

    def matches(self, change: Change) -> bool:
        """Whether the change is in the watched part of the collection."""
        return (self.namespace is None or change.namespace == self.namespace) and (
            self.name is None or change.name == self.name
        )

    def deliver(self, change: Change) -> None:
        """Queue one change and wake the reader; closes the watcher, and drops its queue, when it is full."""
        self._bytes += len(change.new.data)
        if len(self._changes) >= WATCHER_CHANGES_MAX or self._bytes > max(
            WATCHER_BYTES_MAX, len(change.new.data)
        ):
            self._changes.clear()
            self._bytes = 0
            self.close()
        if self.closed:
            return
        self._changes.append(change)
        self.wake()

    def wake(self) -> None:
        """Wake the reader."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    def close(self) -> None:
        """End the watch after what is queued."""
        self.closed = True
        self.wake()

    async def next_changes(self, timeout_s: float) -> list[Change]:
        """Return what is queued, up to some bytes; an empty list after the timeout or when closed."""
        if not self._changes and not self.closed:
            self._wakeup = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._wakeup,), timeout=timeout_s)
            self._wakeup = None
        changes: list[Change] = []
        taken = 0
        while self._changes and taken < WATCHER_TAKES_BYTES:
            change = self._changes.popleft()
            taken += len(change.new.data)
            changes.append(change)
        self._bytes = max(0, self._bytes - taken)
        if changes:
            self.revision = changes[-1].revision
        return changes


class ExpiredError(Exception):
    """The revision asked for is older than what the ring keeps; ``oldest`` can still be watched."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {revision} ({oldest})")


class Ring:
    """The last changes, oldest first, and the watchers of each collection.

    Args:
        revision: the store's revision now; changes before it are unknown.
    """

    def __init__(self, revision: int) -> None:
        self._changes: deque[Change] = deque()
        self._bytes = 0
        self._floor = revision
        self._watchers: dict[str, set[Watcher]] = {}
        self._listeners: dict[str, list[Callable[[Change], None]]] = {}

    def listen(self, collection: str, listener: Callable[[Change], None]) -> None:
        """Call ``listener`` with every change of a collection, before any watcher gets it."""
        self._listeners.setdefault(collection, []).append(listener)

    def publish(self, change: Change) -> None:
        """Keep one change and hand it to every watcher that it concerns. O(watchers of the collection)."""
        self._changes.append(change)
        self._bytes += len(change.new.data)
        while len(self._changes) > RING_CHANGES_MAX or self._bytes > RING_BYTES_MAX:
            dropped = self._changes.popleft()
            self._bytes -= len(dropped.new.data)
            self._floor = dropped.revision
        if len(self._changes) > PARSED_CHANGES_MAX:
            self._changes[-PARSED_CHANGES_MAX].slim()
        for listener in self._listeners.get(change.collection, ()):
            listener(change)
        for watcher in self._watchers.get(change.collection, ()):
            if watcher.matches(change):
                watcher.deliver(change)

    def watch(self, collection: str, namespace: str | None, name: str | None, since: int) -> Watcher:
        """Return a watcher that sees every change after revision ``since``.

        Raises:
            ExpiredError: the ring no longer knows what came after ``since``.
        """
        if since < self._floor:
            raise ExpiredError(since, self._floor)
        watcher = Watcher(collection, namespace, name, since)
        missed: list[Change] = []
        for change in reversed(self._changes):
            if change.revision <= since:
                break
            if change.collection == collection and watcher.matches(change):
                missed.append(change)
        for change in reversed(missed):
            watcher._changes.append(change)
        self._watchers.setdefault(collection, set()).add(watcher)
        return watcher

    def knows(self, revision: int) -> bool:
        """Whether a watch can start at the revision."""
        return revision >= self._floor

    def unwatch(self, watcher: Watcher) -> None:
        """Take a watcher out."""
        watchers = self._watchers.get(watcher.collection)
        if watchers is not None:
            watchers.discard(watcher)
            if not watchers:
                del self._watchers[watcher.collection]

    def close_collection(self, collection: str) -> None:
        """End every watch of a collection that is no longer served."""
        for watcher in self._watchers.get(collection, set()):
            watcher.close()

    def close(self) -> None:
        """End every watch."""
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.close()

    @property
    def watcher_count(self) -> int:
        """How many watches are open."""
        return sum(len(watchers) for watchers in self._watchers.values())
