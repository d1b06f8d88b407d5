"""Curves from records: bounded, and of one attempt."""

from __future__ import annotations

from typing import Any

from gangline.page.series import POINTS_MAX, Columns, Curves


def curves_of(records: list[dict[str, Any]]) -> Columns:
    curves = Curves()
    for one in records:
        curves.add(one)
    return curves.columns()


def record(step: int, **more: Any) -> dict[str, Any]:
    return {"kind": "progress", "step": step, "steps": 100, **more}


def test_every_number_is_a_column_and_gaps_are_none() -> None:
    found = curves_of([record(1, loss=2.0, unit="images"), record(2, lr=0.1), {"kind": "silence", "rank": 1}])

    assert found == {"step": [1, 2], "steps": [100, 100], "loss": [2.0, None], "lr": [None, 0.1]}


def test_a_lower_step_begins_another_attempt() -> None:
    assert curves_of([record(5), record(6), record(3), record(4)])["step"] == [3, 4]


def test_a_long_training_keeps_its_whole_range_within_the_bound() -> None:
    curves = Curves()
    for step in range(10 * POINTS_MAX):
        curves.add(record(step, loss=1.0))
    steps = curves.columns()["step"]

    assert len(steps) <= POINTS_MAX
    assert steps[0] == 0
    assert steps[-1] is not None and steps[-1] > 9.9 * POINTS_MAX


def test_what_is_no_finite_number_is_no_point() -> None:
    found = curves_of([record(1, loss=float("nan"), ok=True), record(2, loss=1e999, n=10**400)])

    assert set(found) == {"step", "steps"}


def test_scalars_of_a_training_stand_beside_its_progress() -> None:
    scalars = {"kind": "scalars", "step": 1, "values": {"lr": 0.1, "note": "x"}}

    assert curves_of([record(1, loss=2.0), scalars, record(2, loss=1.0)]) == {
        "step": [1, 2],
        "steps": [100, 100],
        "loss": [2.0, 1.0],
        "lr": [0.1, None],
    }
