"""A watch's bytes turned into events. Knows nothing of connections."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gangline.kube.deep_json import decode_json
from gangline.kube.errors import ServerError, error_from_body

watch_line_bytes_max = 64 << 20
"""Largest event taken; etcd's default limit for an object is 1.5 MB."""

_quoted_line_bytes_max = 200


class WatchEvent(NamedTuple):
    """One change.

    Attributes:
        type: ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``.
        object: the object as raw JSON; a bookmark's has a resource version and nothing else.
    """

    type: str
    object: bytes


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decode_line = msgspec.json.Decoder(_Line).decode


class LineSplitter:
    """Cuts chunks into lines, whatever their length; what follows the last newline waits for the next chunk.

    Cost: linear in the bytes, also when one line comes in many chunks.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that the chunk completes, without newline and without empty ones.

        Raises:
            ServerError: a line is longer than ``watch_line_bytes_max``.
        """
        head, newline, tail = chunk.partition(b"\n")
        if not newline:
            self._keep(chunk)
            return []
        self._parts.append(head)
        *lines, rest = tail.split(b"\n")
        lines.insert(0, b"".join(self._parts))
        self._parts, self._size_bytes = [], 0
        self._keep(rest)
        return [line for line in lines if line.strip()]

    def rest(self) -> bytes:
        """Return the line without an end, for a stream that ended."""
        return b"".join(self._parts).strip()

    def _keep(self, part: bytes) -> None:
        if not part:
            return
        self._parts.append(part)
        self._size_bytes += len(part)
        if self._size_bytes > watch_line_bytes_max:
            raise ServerError(0, "", f"an event of a watch has more than {watch_line_bytes_max} bytes")


def read_event(line: bytes) -> WatchEvent:
    """Return the event on a line.

    Raises:
        Gone: the server says that the resource version is too old.
        ApiError: the server says anything else that ends the watch, or the line is no event.
    """
    try:
        event = decode_json(_decode_line, line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        text = line[:_quoted_line_bytes_max].decode("utf-8", "replace")
        raise ServerError(0, "", f"a watch sent a line that is no event ({error}): {text}") from error
    if event.type == "ERROR":
        raise error_from_body(0, event.object, doing="the watch")
    return WatchEvent(event.type, bytes(event.object))
