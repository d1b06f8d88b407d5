"""What a training reported, as columns."""

from __future__ import annotations

import sys

import pytest

from gangline.client.columns import columns_of
from gangline.errors import UserError

LINES = [
    '2026-05-01T10:00:00.5Z [1,0]<stdout>: @gangline {"kind":"progress","step":1,"loss":2.5}',
    "2026-05-01T10:00:01Z [1,0]<stdout>: a line for people",
    '2026-05-01T10:00:02Z @gangline {"kind":"progress","step":2,"rate":12.5}',
    '2026-05-01T10:00:03Z @gangline {"kind":"silence","rank":1}',
    'no time @gangline {"kind":"progress","step":3}',
]


def test_every_record_of_progress_is_a_row_with_its_time() -> None:
    columns = columns_of(LINES)

    assert list(columns) == ["time", "step", "loss", "rate"]
    assert columns["step"] == [1, 2]
    assert columns["loss"] == [2.5, None]
    assert columns["rate"] == [None, 12.5]
    assert [str(moment) for moment in columns["time"]] == [
        "2026-05-01 10:00:00.500000+00:00",
        "2026-05-01 10:00:02+00:00",
    ]


def test_nothing_reported_is_no_column() -> None:
    assert columns_of(["2026-05-01T10:00:01Z a line"]) == {}


def test_a_data_frame_is_made_where_its_library_is_there() -> None:
    pandas = pytest.importorskip("pandas")

    frame = columns_of(LINES).to_pandas()

    assert isinstance(frame, pandas.DataFrame)
    assert frame["step"].tolist() == [1, 2]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_missing_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(UserError, match=f"{library} is not installed"):
        getattr(columns_of(LINES), f"to_{library}")()
