"""Records: what a training says to programs, one line of JSON behind a mark in rank 0's output. Pure.

A log line is the one channel that every launcher, container runtime and cluster passes on. The mark may
stand behind a launcher's tag (``[1,0]<stdout>: ``). ``gangline run`` takes these lines out of the log that it
shows.
"""

from __future__ import annotations

import json
import re
from typing import Any

MARK = "@gangline "
RECORD_BYTES_MAX = 4096


def format_record(kind: str, **fields: Any) -> str:
    """Return one record as a line with its end; fields that are None are left out."""
    known = {name: value for name, value in fields.items() if value is not None}
    return f"{MARK}{json.dumps({'kind': kind, **known}, separators=(',', ':'))}\n"


def parse_record(line: str) -> dict[str, Any] | None:
    """Return the record that a line of a log carries, None when it carries none."""
    _, mark, text = line.partition(MARK)
    if not mark or not text.startswith("{"):
        return None
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("kind"), str) else None


class RecordFilter:
    """Takes records out of a log piece by piece; holds back only what may still become one."""

    def __init__(self) -> None:
        self._held = b""
        self._is_line_begun = False

    def feed(self, data: bytes) -> tuple[bytes, list[dict[str, Any]]]:
        """Return what is to be shown now, and the records that were complete."""
        *lines, rest = (self._held + data).split(b"\n")
        shown, records = bytearray(), []
        for line in lines:
            record = parse_record(line.decode(errors="replace"))
            if record is None:
                shown += line + b"\n"
                continue
            records.append(record)
            shown += _before_mark(line)
        if lines:
            self._is_line_begun = False
        keep = 0 if not self._is_line_begun and _is_beginning_of_tag(rest) else _beginning_of_mark(rest)
        self._held = rest[keep:]
        self._is_line_begun = self._is_line_begun or keep > 0
        return bytes(shown) + rest[:keep], records

    def flush(self) -> bytes:
        """Return what is still held at the end of the log."""
        shown, self._held = self._held, b""
        return shown


_MARK = MARK.encode() + b"{"
_TAG = re.compile(rb"\[\d*(?:,\d*)?(?:\](?:<[a-z]*>?:?)? ?)?")
"""What launchers put before a line, or its beginning: ``[1,0]<stdout>: `` or ``[1] ``."""
_TIME_AND_TAG = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-][\d:]+) " + b"(?:" + _TAG.pattern + b")?")
"""The same behind the time that an API server puts before it."""


def _before_mark(line: bytes) -> bytes:
    """Return what a program had written on the line before the mark; a tag or a time alone is not shown."""
    before = line[: line.index(_MARK)]
    return b"" if _TAG.fullmatch(before) or _TIME_AND_TAG.fullmatch(before) else before


def _is_beginning_of_tag(rest: bytes) -> bool:
    """Return whether a line so far is a launcher's tag, behind which a record may stand."""
    tag = _TAG.match(rest)
    return (
        tag is not None
        and _MARK.startswith(rest[tag.end() :][: len(_MARK)])
        and len(rest) <= RECORD_BYTES_MAX
    )


def _beginning_of_mark(rest: bytes) -> int:
    """Return from where an unfinished line may become a record; its length when it cannot."""
    found = rest.find(_MARK)
    if found >= 0:
        return found if len(rest) - found <= RECORD_BYTES_MAX else len(rest)
    for length in range(min(len(rest), len(_MARK) - 1), 0, -1):
        if _MARK.startswith(rest[len(rest) - length :]):
            return len(rest) - length
    return len(rest)
