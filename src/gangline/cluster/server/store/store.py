"""The store of the one-machine cluster: every object in memory, every acknowledged write on disk.

Reads never touch the disk. A write gets its revision and its place in the order at once, in the event loop;
it becomes visible (to reads, lists and watches) and is acknowledged when SQLite has flushed it. Between the
two, the next write of the same object builds on it: ``latest`` is what a compare-and-swap compares with.
There is no await between reading ``latest`` and ``put``, so writers cannot overtake one another.

One row for each object: nothing to compact. Changes are kept in memory only (events.py); after a restart a
watch from before is told so (410) and lists again. Reading order: events.py (states and watchers), this file,
writer.py (the thread and the file).
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gangline.cluster.server.store.events import Change, ChangeType, Entry, Ring, Watcher
from gangline.cluster.server.store.label_index import LabelIndex
from gangline.cluster.server.store.writer import Row, StoreError, StoreInUseError, StoreWriter

__all__ = [
    "Change",
    "ConflictError",
    "Entry",
    "ObjectTooLargeError",
    "Store",
    "StoreError",
    "StoreFullError",
    "StoreInUseError",
    "Watcher",
]

Key = tuple[str, str, str]
"""Collection (``GROUP/PLURAL``), namespace (empty when cluster-scoped), name."""

_encode = msgspec.json.Encoder().encode


OBJECT_BYTES_MAX = 3 << 20
"""JSON of one object: what a body may have; patches could make more of it."""


class ObjectTooLargeError(Exception):
    """An object is too long to be kept; ``found`` is its length in bytes."""

    def __init__(self, found: int) -> None:
        super().__init__(f"an object has at most {OBJECT_BYTES_MAX} bytes, found {found}")


UPDATE_SLACK = 0.25
"""Objects that are there may grow so far beyond the bound of a full store: their ends must be told."""


class StoreFullError(Exception):
    """The objects are as long altogether as they may be."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the store holds as much as the server's memory allows ({limit >> 20} MiB of JSON); "
            "delete objects that are no longer needed"
        )


class ConflictError(Exception):
    """Somebody else wrote the object since it was read."""


class _Pending:
    """One write on its way to the disk. ``entry=None`` while a removal is on its way."""

    __slots__ = ("change", "entry", "future", "grows_by")

    def __init__(
        self, entry: Entry | None, change: Change, grows_by: int, future: asyncio.Future[Entry]
    ) -> None:
        self.grows_by = grows_by
        self.entry = entry
        self.change = change
        self.future = future


class Store:
    """All objects of one cluster. Made inside a running event loop, used only from it.

    Args:
        path: the SQLite file; created when absent.
        bytes_max: JSON of all objects together; what would make it more is refused.

    Raises:
        StoreInUseError: another process has it open.
        StoreError: it cannot be opened, or is damaged.

    Cost: 0.2 ms a lone write on a fast disk, 15,000 writes/s in groups; memory 2 to 6 times the JSON.
    """

    def __init__(self, path: Path, *, bytes_max: int = 1 << 62) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._loop = asyncio.get_running_loop()
        self._writer = StoreWriter(path, self._from_thread)
        found = self._writer.revision()
        self.revision = max(found, time.time_ns() // 1000) if found else 0
        """The newest committed revision.

        At a start with objects that of the clock, in microseconds: an older state of the file may have been
        put back. Whoever watched the newer one is told to list again (410), and takes no new revision for one
        that it knows.
        """
        self._assigned = self.revision
        self._batch = 0
        self._collections: dict[str, dict[str, dict[str, Entry]]] = {}
        self._label_indexes: defaultdict[str, LabelIndex] = defaultdict(LabelIndex)
        self._on_first: list[Callable[[str], None]] = []
        self._pending: dict[Key, list[_Pending]] = {}
        self._waiting: dict[int, _Pending] = {}
        self._outbox: list[Row] = []
        try:
            self._load()
        except BaseException:
            self._writer.close()
            raise
        self.ring = Ring(self.revision)
        self._writer.start()

    def _load(self) -> None:
        for row in self._writer.rows():
            assert row.value is not None
            entry = Entry(row.revision, row.value, row.written_s)
            self._bytes += len(row.value)
            self._collections.setdefault(row.collection, {}).setdefault(row.namespace, {})[row.name] = entry

    async def close(self) -> None:
        """Commit what is on its way, end every watch and let go of the file."""
        self.ring.close()
        self._flush()
        await asyncio.to_thread(self._writer.close)

    def get(self, collection: str, namespace: str, name: str) -> Entry | None:
        """Return the committed state of an object."""
        return self._collections.get(collection, {}).get(namespace, {}).get(name)

    def latest(self, collection: str, namespace: str, name: str) -> Entry | None:
        """Return the newest state of an object, committed or on its way: what the next write builds on."""
        pending = self._pending.get((collection, namespace, name))
        return pending[-1].entry if pending else self.get(collection, namespace, name)

    def entries(self, collection: str, namespace: str | None = None) -> list[Entry]:
        """Return the committed objects ordered by namespace and name; ``None`` is every namespace."""
        spaces = self._collections.get(collection, {})
        if namespace is not None:
            names = spaces.get(namespace, {})
            return [names[name] for name in sorted(names)]
        return [spaces[space][name] for space in sorted(spaces) for name in sorted(spaces[space])]

    def labelled(self, collection: str, namespace: str | None, key: str, value: str) -> list[Entry] | None:
        """Return the committed objects with a label, ordered as :meth:`entries`.

        ``None`` when no index is kept of this label. Cost: the first time O(objects), then O(found).
        """
        index = self._label_indexes[collection]
        if not index.has(key):
            spaces = self._collections.get(collection, {})
            places = (((space, name), e) for space, names in spaces.items() for name, e in names.items())
            if not index.begin(key, places):
                return None
        return index.find(key, value, namespace)

    def count(self, collection: str) -> int:
        """Return how many objects a collection has."""
        return sum(len(names) for names in self._collections.get(collection, {}).values())

    def counts(self) -> dict[str, int]:
        """Return how many committed objects each collection has."""
        return {name: self.count(name) for name in sorted(self._collections)}

    def on_first(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with each collection that has had an object, and with every later one."""
        self._on_first.append(listener)
        for collection in list(self._collections):
            listener(collection)

    def put(self, key: Key, obj: dict[str, Any], previous: Entry | None) -> asyncio.Future[Entry]:
        """Write an object; the future is done when it is on disk and visible.

        Args:
            key: where it lies.
            obj: the new state; the store owns it from now on and sets ``metadata.resourceVersion``.
            previous: what ``latest`` returned, ``None`` to create.

        Raises:
            ConflictError: ``previous`` is not the newest state any more.
            ObjectTooLargeError: it is longer than an object may be, and not about to go.
            StoreFullError: all objects together would be longer than they may be.
        """
        if self.latest(*key) is not previous:
            raise ConflictError
        type_: ChangeType = "ADDED" if previous is None else "MODIFIED"
        return self._submit(key, type_, obj, previous)

    def remove(self, key: Key, last: dict[str, Any], previous: Entry) -> asyncio.Future[Entry]:
        """Remove an object; the result is its last state with the revision of the removal.

        Args:
            key: where it lies.
            last: the last state, owned by the store from now on.
            previous: what ``latest`` returned.

        Raises:
            ConflictError: ``previous`` is not the newest state any more.
        """
        if self.latest(*key) is not previous:
            raise ConflictError
        return self._submit(key, "DELETED", last, previous)

    async def settled(self, key: Key) -> None:
        """Wait until the newest state of an object is on disk: for writes that turn out to change nothing."""
        if pending := self._pending.get(key):
            await asyncio.shield(pending[-1].future)

    def _submit(
        self, key: Key, type_: ChangeType, obj: dict[str, Any], previous: Entry | None
    ) -> asyncio.Future[Entry]:
        self._assigned += 1
        revision = self._assigned
        obj["metadata"]["resourceVersion"] = str(revision)
        data = _encode(obj)
        if len(data) > OBJECT_BYTES_MAX and "deletionTimestamp" not in obj["metadata"]:
            raise ObjectTooLargeError(len(data))
        grows_by = (0 if type_ == "DELETED" else len(data)) - (len(previous.data) if previous else 0)
        most = self._bytes_max * (1 if previous is None else 1 + UPDATE_SLACK)
        if grows_by > 0 and self._bytes + grows_by > most:
            raise StoreFullError(self._bytes_max)
        self._bytes += grows_by
        entry = Entry(revision, data, int(time.time()), obj)
        change = Change(type_, *key, previous, entry)
        gone = type_ == "DELETED"
        pending = _Pending(None if gone else entry, change, grows_by, self._loop.create_future())
        self._pending.setdefault(key, []).append(pending)
        self._waiting[revision] = pending
        value = None if gone else entry.data
        if not self._outbox:
            # What one turn of the event loop writes goes to the thread, and to the disk, together.
            self._loop.call_soon(self._flush)
        self._outbox.append(Row(*key, revision, entry.written_s, value, self._batch))
        return pending.future

    def _flush(self) -> None:
        rows, self._outbox = self._outbox, []
        if rows:
            self._writer.submit(rows)

    def _from_thread(self, rows: list[Row], error: Exception | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._outcome, rows, error)
        except RuntimeError:  # the loop is closed: nobody waits any more
            pass

    def _outcome(self, rows: list[Row], error: Exception | None) -> None:
        if error is not None:
            # Whatever is on its way builds on states that never came to be; the writer refuses it too.
            self._batch = max(self._batch, rows[-1].batch + 1)
            lost, self._waiting, self._pending = self._waiting, {}, {}
            for pending in lost.values():
                self._bytes -= pending.grows_by
                if not pending.future.done():
                    pending.future.set_exception(error)
            return
        for row in rows:
            pending = self._waiting.pop(row.revision)
            key = (row.collection, row.namespace, row.name)
            queued = self._pending[key]
            queued.remove(pending)
            if not queued:
                del self._pending[key]
            self._apply(key, pending)

    def _apply(self, key: Key, pending: _Pending) -> None:
        collection, namespace, name = key
        change = pending.change
        if collection in self._label_indexes:
            known = self._collections.get(collection, {}).get(namespace, {}).get(name)
            self._label_indexes[collection].change((namespace, name), known, pending.entry)
        if pending.entry is None:
            names = self._collections[collection][namespace]
            del names[name]
            if not names:
                del self._collections[collection][namespace]
        else:
            is_first = collection not in self._collections
            self._collections.setdefault(collection, {}).setdefault(namespace, {})[name] = pending.entry
            for listener in self._on_first if is_first else ():
                listener(collection)
        self.revision = change.revision
        self.ring.publish(change)
        if not pending.future.done():
            pending.future.set_result(change.new)
