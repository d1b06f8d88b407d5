"""Scalars of a run as columns, and in the forms that others read."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from gangline.cluster.runs.curves import ScalarPoint, best_of, curves_of
from gangline.cluster.runs.exports import as_csv, as_json, event_file
from gangline.train.records import format_record

TIME = "2026-11-25T03:00:{:02}.000000000Z"
BEGAN_S = 1795575600.0
"""2026-11-25 03:00 UTC."""


def line(second: int, kind: str, **fields: object) -> str:
    return f"{TIME.format(second)} [1,0]<stdout>: {format_record(kind, **fields)}"


LOG = [
    line(0, "scalars", step=1, values={"lr": 0.1, "val/loss": 2.0}),
    "2026-11-25T03:00:01.000000000Z epoch 1",
    line(1, "progress", step=1, loss=2.5, rate=100.0, unit="images"),
    line(2, "scalars", step=2, values={"lr": 0.01, "val/loss": "NaN"}),
    line(3, "scalars", step=3, values={"val/loss": 1.0}),
]


def test_curves_are_the_points_of_each_name() -> None:
    found = curves_of(LOG)

    assert found["lr"] == [ScalarPoint(1, BEGAN_S, 0.1), ScalarPoint(2, BEGAN_S + 2, 0.01)]
    assert found["loss"] == [ScalarPoint(1, BEGAN_S + 1, 2.5)]
    assert math.isnan(found["val/loss"][1].value)
    assert best_of(found["val/loss"]) == ScalarPoint(3, BEGAN_S + 3, 1.0)
    assert best_of(found["val/loss"], is_max=True) == ScalarPoint(1, BEGAN_S, 2.0)


def test_an_attempt_that_goes_on_takes_the_place_of_what_was_lost() -> None:
    again = [*LOG, line(9, "scalars", step=2, values={"val/loss": 1.5})]

    assert [(point.step, point.value) for point in curves_of(again)["val/loss"]] == [(1, 2.0), (2, 1.5)]


def test_what_log_says_of_the_loss_counts_before_the_lines_of_progress() -> None:
    both = [*LOG, line(4, "scalars", step=3, values={"loss": 0.5})]

    assert [point.value for point in curves_of(both)["loss"]] == [0.5]


def test_csv_has_a_row_for_each_point() -> None:
    rows = list(csv.DictReader(as_csv({"a": curves_of(LOG)}).splitlines()))

    assert len(rows) == 7
    assert rows[0] == {"run": "a", "name": "loss", "step": "1", "time": f"{BEGAN_S + 1:.3f}", "value": "2.5"}


def test_json_has_columns_and_null_for_what_is_no_number() -> None:
    found = json.loads(as_json({"a": curves_of(LOG)}))

    assert found["a"]["val/loss"]["steps"] == [1, 2, 3]
    assert found["a"]["val/loss"]["values"] == [2.0, None, 1.0]


def test_tensorboard_reads_the_event_file(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (tmp_path / "events.out.tfevents.1795575600.gangline").write_bytes(event_file(curves_of(LOG)))

    read = accumulator.EventAccumulator(str(tmp_path))
    read.Reload()

    assert sorted(read.Tags()["scalars"]) == ["loss", "lr", "rate", "val/loss"]
    assert [(one.wall_time, one.step, one.value) for one in read.Scalars("lr")] == [
        (BEGAN_S, 1, pytest.approx(0.1)),
        (BEGAN_S + 2, 2, pytest.approx(0.01)),
    ]
    assert math.isnan(read.Scalars("val/loss")[1].value)
