"""What `gangline logs` shows of a log: the program's lines, and no records for programs."""

from __future__ import annotations

import pytest

from gangline.client.jobs.log_text import LogText, lines_to_ask_for
from gangline.train.records import format_record

RECORD = format_record("progress", step=3)
TIME = "2026-11-21T18:04:14.251493556Z "


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize(
    ("log", "shown", "tags", "timestamps"),
    [
        (f"a\n{RECORD}b\n", "a\nb\n", False, False),
        (f"[1,0]<stdout>: a\n[1,0]<stdout>: {RECORD}[1,0]<stdout>: b\n", "a\nb\n", True, False),
        (f"{TIME}a\n{TIME}{RECORD}{TIME}b\n", f"{TIME}a\n{TIME}b\n", False, True),
        (f"{TIME}[1,0]<stdout>: {RECORD}{TIME}last", f"{TIME}last", True, True),
    ],
    ids=["plain", "with tags", "with times", "with tags and times"],
)
def test_records_are_not_shown(log: str, shown: str, tags: bool, timestamps: bool, size: int) -> None:
    text, found, records = LogText(has_tags=tags, has_timestamps=timestamps), b"", []
    for start in range(0, len(log), size):
        part, some = text.feed(log.encode()[start : start + size])
        found, records = found + part, records + some
    part, some = text.flush()

    assert found + part == shown.encode()
    assert records + some == [{"kind": "progress", "step": 3}]


@pytest.mark.parametrize(
    ("log", "wanted", "asked"),
    [
        (f"a\nb\n{RECORD}", 1, 2),
        (f"a\n{RECORD}b\n{RECORD}{RECORD}", 2, 5),
        ("a\nb\n", 2, 2),
        ("a\nb\n", 3, None),
        (RECORD, 1, None),
    ],
)
def test_the_last_lines_are_counted_without_records(log: str, wanted: int, asked: int | None) -> None:
    assert lines_to_ask_for(log.encode(), wanted) == asked
