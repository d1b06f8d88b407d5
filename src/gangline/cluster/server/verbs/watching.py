"""WATCH: changes as a stream of JSON lines.

Each change is rendered once for all watchers that want the same form. An object that starts or stops matching
a selector appears as ADDED or DELETED. Lines go out in pieces, and what is not sent yet waits as changes that
all watchers share: a client that does not read holds one piece and its place in the queue. One that cannot
keep up, or takes nothing for half a minute, is disconnected and resumes from its last revision.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from aiohttp import HttpVersion11, web

from gangline.cluster.server import status_errors
from gangline.cluster.server.http.load import PIECE_BYTES
from gangline.cluster.server.http.request_context import JSON, RequestContext, encode_json
from gangline.cluster.server.resources import ServedResource
from gangline.cluster.server.store.events import Change, Entry, ExpiredError, Watcher
from gangline.cluster.server.store.store import Store
from gangline.cluster.server.verbs.reading import include_object, namespace_of, select
from gangline.cluster.server.wire import rendering
from gangline.cluster.server.wire.selectors import FieldSelector, LabelTerms

BOOKMARK_PERIOD_S = 60.0
WATCH_TIMEOUT_MIN_S = 1800.0
"""Watches without ``timeoutSeconds`` last this long up to twice as long, at random."""
BOOKMARK_BEFORE_END_S = 2.0
TIMEOUT_MAX_S = 24 * 3600.0
SEND_TIMEOUT_S = 30.0
"""A client that takes no byte for so long is gone."""


class WatchStream:
    """One watch: what is selected and how it is rendered."""

    def __init__(self, store: Store, context: RequestContext) -> None:
        self._store = store
        self._context = context
        self._served: ServedResource = context.target.served
        self._form = context.form
        self._include_object = include_object(context)
        self._labels: LabelTerms | None
        self._fields: FieldSelector | None
        self._labels, self._fields = context.selectors()
        self._columns_sent = False
        self._bookmarks = context.flag("allowWatchBookmarks")

    def _start(self) -> tuple[Watcher, Iterator[bytes]]:
        """Return the watcher and the lines to send first, which are rendered one by one.

        Raises:
            StatusError: 410, 422 or 504.
        """
        context, store = self._context, self._store
        revision = context.revision()
        match = context.query.get("resourceVersionMatch", "")
        initial = context.query.get("sendInitialEvents")
        if initial is not None and match != "NotOlderThan":
            raise status_errors.unprocessable(
                "sendInitialEvents: Forbidden: resourceVersionMatch=NotOlderThan is required with it"
            )
        if initial is None and match:
            raise status_errors.unprocessable(
                "resourceVersionMatch: Forbidden: forbidden for watch unless sendInitialEvents is provided"
            )
        send_list = context.flag("sendInitialEvents")
        if revision is not None and revision > store.revision:
            raise status_errors.too_large_revision(revision, store.revision)
        collection, namespace = context.target.collection, namespace_of(context)
        name = context.target.name or (self._fields.exact("metadata.name") if self._fields else None)
        everything = send_list or (not revision and initial is None)
        since = store.revision if everything or not revision else revision
        try:
            watcher = store.ring.watch(collection, namespace, name or None, since)
        except ExpiredError as error:
            raise status_errors.expired(str(error)) from None
        entries = []
        if everything:
            entries = select(store, collection, namespace, self._labels, self._fields)
        last = self._bookmark(store.revision, initial_end=True) if send_list and self._bookmarks else b""
        return watcher, chain((self._line("ADDED", entry) for entry in entries), [last] if last else [])

    async def run(self) -> web.StreamResponse:
        """Send the stream until it times out, the client leaves or the server ends."""
        watcher, first = self._start()
        asked_s = self._context.number("timeoutSeconds")
        timeout_s = min(asked_s, TIMEOUT_MAX_S) if asked_s else WATCH_TIMEOUT_MIN_S * (1 + random.random())
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"})
        if self._context.request.version >= HttpVersion11:  # an older client reads until the end
            response.enable_chunked_encoding()
        try:
            await response.prepare(self._context.request)
            await self._send(response, first)
            bookmark_at = self._next_bookmark(loop.time(), end)
            while (now := loop.time()) < end:
                changes = await watcher.next_changes(max(0.0, min(end, bookmark_at) - now))
                if changes:
                    await self._send(response, self._lines(changes))
                elif watcher.closed:
                    break
                elif loop.time() >= bookmark_at:
                    await self._send(response, [self._bookmark(self._store.revision)])
                    bookmark_at = self._next_bookmark(loop.time(), end)
            await response.write_eof()
        except ConnectionError:
            pass
        except TimeoutError:
            if self._context.request.transport is not None:
                self._context.request.transport.abort()
        finally:
            self._store.ring.unwatch(watcher)
        return response

    async def _send(self, response: web.StreamResponse, lines: Iterable[bytes]) -> None:
        """Write lines in pieces; the next is rendered when the one before has left.

        Raises:
            TimeoutError: the client takes nothing.
        """
        for piece in _pieces(lines):
            transport = self._context.request.transport
            if transport is None or (transport.get_write_buffer_size() == 0 and len(piece) < PIECE_BYTES):
                await response.write(piece)  # fits into what is free: does not wait
                continue
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await response.write(piece)

    def _next_bookmark(self, now: float, end: float) -> float:
        """Return when the next bookmark is due: once a minute, and shortly before the end."""
        last = end - BOOKMARK_BEFORE_END_S
        if not self._bookmarks or now >= last:
            return math.inf
        return min(now + BOOKMARK_PERIOD_S, last)

    def _lines(self, changes: list[Change]) -> Iterable[bytes]:
        for change in changes:
            type_ = self._visible_as(change)
            if type_ is None:
                continue
            if self._form != "object":
                yield self._line(type_, change.new)
                continue
            form = (type_, self._served.resource.version)
            line = change.lines.get(form)
            if line is None:
                line = change.lines[form] = self._line(type_, change.new)
            yield line

    def _visible_as(self, change: Change) -> str | None:
        """Return the type under which the change is seen through the selectors; None when it is not."""
        if self._labels is None and self._fields is None:
            return change.type
        before = change.old is not None and self._selects(change.old.obj)
        if change.type == "DELETED":
            return "DELETED" if before else None
        after = self._selects(change.new.obj)
        if after:
            return "MODIFIED" if before else "ADDED"
        return "DELETED" if before else None

    def _selects(self, obj: dict[str, Any]) -> bool:
        return (self._labels is None or self._labels.matches(obj["metadata"].get("labels"))) and (
            self._fields is None or self._fields.matches(obj)
        )

    def _line(self, type_: str, entry: Entry) -> bytes:
        if self._form == "table":
            table = rendering.table_of([entry], self._served, self._include_object)
            table["metadata"] = {"resourceVersion": str(entry.revision)}
            if self._columns_sent:
                table["columnDefinitions"] = None
            self._columns_sent = True
            body = encode_json(table)
        elif self._form == "metadata":
            body = encode_json(rendering.metadata_only(entry.obj))
        else:
            body = rendering.object_bytes(entry, self._served)
        return b"".join((b'{"type":"', type_.encode(), b'","object":', body, b"}\n"))

    def _bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj: dict[str, Any] = {
            "kind": self._served.resource.kind,
            "apiVersion": self._served.resource.api_version,
            "metadata": metadata,
        }
        if self._form == "table":
            obj = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": str(revision)},
                "columnDefinitions": None,
                "rows": [{"cells": [], "object": obj}],
            }
        elif self._form == "metadata":
            obj |= {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        return b'{"type":"BOOKMARK","object":' + encode_json(obj) + b"}\n"


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines joined to pieces of some size; a longer line is a piece of its own."""
    piece: list[bytes] = []
    size = 0
    for line in lines:
        piece.append(line)
        size += len(line)
        if size >= PIECE_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)
