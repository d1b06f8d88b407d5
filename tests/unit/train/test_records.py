"""Records in a log: taken out whole whatever the pieces, and never a byte of the program's own lost."""

from __future__ import annotations

import pytest

from gangline.train.records import RecordFilter, format_record, parse_record

RECORD = format_record("progress", step=3, loss=None, rate=1.5)


def test_record_reads_back_without_what_is_unknown() -> None:
    assert parse_record(RECORD) == {"kind": "progress", "step": 3, "rate": 1.5}


def test_record_stands_behind_a_launchers_tag() -> None:
    assert parse_record(f"[1,0]<stdout>: {RECORD}") == {"kind": "progress", "step": 3, "rate": 1.5}


@pytest.mark.parametrize(
    "line", ["", "step 3", "@gangline", "@gangline {", "@gangline []", '@gangline {"a":1}']
)
def test_other_lines_are_no_records(line: str) -> None:
    assert parse_record(line) is None


LOG = f"one\nme@gangline.dev\n{RECORD}two @gang\n[1,0]<stdout>: {RECORD}@gangline {{broken\nlast".encode()
SHOWN = b"one\nme@gangline.dev\ntwo @gang\n@gangline {broken\nlast"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 11, 50, 1000])
def test_records_vanish_from_the_log_in_pieces_of_any_size(size: int) -> None:
    reader = RecordFilter()
    shown, records = b"", []
    for start in range(0, len(LOG), size):
        part, found = reader.feed(LOG[start : start + size])
        shown += part
        records += found

    assert shown + reader.flush() == SHOWN.replace(b"[1,0]<stdout>: ", b"")
    assert [record["step"] for record in records] == [3, 3]


def test_progress_bar_without_line_end_is_shown_at_once() -> None:
    assert RecordFilter().feed(b"50 %\r60 %") == (b"50 %\r60 %", [])


def test_endless_line_behind_the_mark_is_let_go() -> None:
    reader = RecordFilter()
    shown, _ = reader.feed(b"@gangline {" + b"x" * 5000)

    assert len(shown) == 5011
