"""Scalars by any name: reduced over ranks, written within a record's bound, given to trackers."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gangline.errors import UserError
from gangline.train.progress import Progress
from gangline.train.records import RECORD_BYTES_MAX, parse_record


def records(lines: list[str]) -> list[dict[str, Any]]:
    return [found for text in lines for line in text.splitlines() if (found := parse_record(line))]


def test_scalars_of_a_step_are_one_record() -> None:
    lines: list[str] = []
    found = Progress(0, 1, write=lines.append).log(240, {"val/loss": 0.5}, lr=1e-3)

    assert found == {"val/loss": 0.5, "lr": 1e-3}
    assert records(lines) == [{"kind": "scalars", "step": 240, "values": {"val/loss": 0.5, "lr": 1e-3}}]


def test_the_last_step_counted_is_meant_without_one() -> None:
    lines: list[str] = []
    progress = Progress(0, 1, write=lines.append)
    progress.step()
    progress.log(lr=0.1)

    assert records(lines)[-1]["step"] == 1


def test_values_of_all_ranks_come_together_and_rank_0_alone_writes_them() -> None:
    asked: list[tuple[list[float], str]] = []

    def reducer(values: list[float], how: str) -> list[float]:
        asked.append((values, how))
        return [7.0]

    lines: list[str] = []
    assert Progress(1, 2, write=lines.append, reducer=reducer).log(3, loss=1.0, reduce="max") == {"loss": 7.0}
    assert (asked, lines) == ([([1.0], "max")], [])
    assert Progress(0, 2, write=lines.append, reducer=reducer).log(3, loss=2.0, reduce=None) == {"loss": 2.0}
    assert len(asked) == 1
    assert records(lines)[0]["values"] == {"loss": 2.0}


def test_what_json_has_no_number_for_is_a_word() -> None:
    lines: list[str] = []
    Progress(0, 1, write=lines.append).log(1, a=float("nan"), b=float("inf"), c=-float("inf"))

    assert records(lines)[0]["values"] == {"a": "NaN", "b": "Infinity", "c": "-Infinity"}


def test_many_scalars_are_records_within_the_bound() -> None:
    lines: list[str] = []
    Progress(0, 1, write=lines.append).log(1, {f"a/long/name/of/a/scalar/{n}": 1 / 3 for n in range(300)})

    assert all(len(line.encode()) < RECORD_BYTES_MAX for line in lines[0].splitlines())
    assert sum(len(record["values"]) for record in records(lines)) == 300


@pytest.mark.parametrize(
    ("values", "reduce"), [({}, "mean"), ({"a": 1.0}, "median"), ({"n" * 129: 1.0}, "mean")]
)
def test_what_cannot_be_recorded_is_refused(values: dict[str, float], reduce: str) -> None:
    with pytest.raises(UserError, match="log"):
        Progress(0, 1, write=[].append).log(1, values, reduce=reduce)


class Stub(SimpleNamespace):
    """Stands in for the packages of others."""


def test_trackers_that_the_user_has_get_the_scalars(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    run = Stub(
        log=lambda values, step: told.append(("wandb", step, values)), finish=lambda: told.append("end")
    )
    wandb = Stub(run=None, init=lambda: run, __spec__=Stub())
    mlflow = Stub(
        active_run=lambda: "the script's own",
        log_metrics=lambda values, step: told.append(("mlflow", step, values)),
        end_run=lambda: told.append("never"),
        __spec__=Stub(),
    )
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setenv("GANGLINE_TRACK", "wandb,mlflow")
    progress = Progress(0, 1, write=[].append)
    progress.log(5, loss=0.5)
    progress.close()

    assert told == [("wandb", 5, {"loss": 0.5}), ("mlflow", 5, {"loss": 0.5}), "end"]


def test_a_tracker_that_fails_ends_no_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(values: dict[str, float], step: int) -> None:
        raise OSError("no network")

    monkeypatch.setitem(sys.modules, "wandb", Stub(run=Stub(log=fail), __spec__=Stub()))
    progress = Progress(0, 1, write=[].append, track="wandb")
    progress.log(1, loss=0.5)
    progress.log(2, loss=0.5)

    assert capsys.readouterr().err.count("wandb gets nothing any more: no network") == 1


def test_trackers_that_are_unknown_or_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no tracker is called `tensorboardx`"):
        Progress(0, 1, track="tensorboardx")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match="wandb is asked for and not installed"):
        Progress(0, 1, track=["wandb"])
