"""Sweeps: which runs there are, and what each of them is called with."""

from __future__ import annotations

import pytest

from gangline.client.run.sweep import SweepPoint, filled, new_sweep, own_words, read_axis, resumed
from gangline.errors import UserError

PROGRAM = ("python", "train.py", "--lr={lr}", "{seed}", "{other}")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("lr=1e-3,1e-2", ("1e-3", "1e-2")),
        ("seed=0..4", ("0", "1", "2", "3", "4")),
        ("seed=2..0,7", ("2", "1", "0", "7")),
        ("n=-1..1", ("-1", "0", "1")),
        ("path=a=b", ("a=b",)),
        ("version=1.2.3", ("1.2.3",)),
    ],
)
def test_values_of_an_axis(text: str, values: tuple[str, ...]) -> None:
    assert read_axis(text).values == values


@pytest.mark.parametrize("text", ["lr", "lr=", "=1", "1r=2", "lr=1,1", "lr=1,,2", "n=0..100000"])
def test_what_is_no_axis_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--sweep"):
        read_axis(text)


def test_a_sweep_has_a_run_for_each_combination_the_first_axis_varies_slowest() -> None:
    sweep = new_sweep("train", PROGRAM, ["lr=1e-3,1e-2", "seed=0..1"])

    assert [point.words for point in sweep.points] == [
        "lr=1e-3 seed=0",
        "lr=1e-3 seed=1",
        "lr=1e-2 seed=0",
        "lr=1e-2 seed=1",
    ]
    assert filled(PROGRAM, sweep.points[2].values) == ["python", "train.py", "--lr=1e-2", "0", "{other}"]


def test_a_value_that_looks_like_a_place_stays() -> None:
    assert filled(["{a}{b}"], {"a": "{b}", "b": "x"}) == ["{b}x"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["momentum=1,2"], "the program has no `{momentum}`"),
        (["lr=1", "lr=2"], "is there twice"),
        (["lr=0..99", "seed=0..99"], "at most 1000 runs"),
    ],
)
def test_sweeps_that_cannot_be_run_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        new_sweep("train", PROGRAM, texts)


def test_a_sweep_is_resumed_by_the_same_line_alone() -> None:
    asked = new_sweep("train", PROGRAM, ["lr=1,2"])
    kept = asked.with_point(0, SweepPoint({"lr": "1"}, run="train-3", exit_code=0))

    assert resumed(kept, asked) is kept
    with pytest.raises(UserError, match="another program or other values"):
        resumed(kept, new_sweep("train", PROGRAM, ["lr=1,3"]))


def test_runs_get_the_options_that_are_not_of_the_sweep() -> None:
    words = ["-n", "2", "--sweep", "lr=1,2", "--sweep=seed=0..1", "--parallel", "2", "--resume", "-e", "A=1"]

    assert own_words(words, {"--sweep": True, "--parallel": True, "--resume": False}) == [
        "-n",
        "2",
        "-e",
        "A=1",
    ]
