"""How often checkpoints are written: by Young's rule, from what is measured and what has failed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gangline.train.checkpoints.due import Due
from gangline.train.checkpoints.interval import (
    FIRST_STEPS,
    INTERVAL_S_MAX,
    PRIOR_RANK_HOURS,
    FailureHistory,
    failure_s,
    interval_s,
    interval_steps,
)


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_sixteen_thousand_ranks_fail_every_three_hours() -> None:
    assert failure_s(FailureHistory(), 16_384) == pytest.approx(3.1 * 3600, rel=0.01)


def test_failures_seen_count_beside_the_published_rate() -> None:
    seen = FailureHistory(rank_hours=PRIOR_RANK_HOURS, failures=3)

    assert failure_s(seen, 8) == pytest.approx(failure_s(FailureHistory(), 8) / 2)


def test_the_interval_is_the_root_of_twice_cost_times_time_between_failures() -> None:
    assert interval_s(30, 10_000) == math.sqrt(2 * 30 * 10_000)
    assert interval_s(30, 1e9) == INTERVAL_S_MAX
    assert interval_steps(30, 2.0, 10_000) == round(math.sqrt(600_000) / 2)
    assert interval_steps(1e-9, 100.0, 1.0) == 1


def trained(due: Due, clock: Clock, steps: range, *, step_s: float, cost_s: float) -> list[int]:
    """Train as one rank does, and return the steps that were saved."""
    saved = []
    for step in steps:
        clock.now += step_s
        if due(step):
            wanted = due.wanted_steps()
            clock.now += cost_s
            due.agree(wanted)
            due.saved(step, cost_s)
            saved.append(step)
    return saved


def test_two_saves_measure_and_the_third_comes_at_the_interval(tmp_path: Path) -> None:
    clock = Clock()
    due = Due(tmp_path, 0, 1000, clock)

    saved = trained(due, clock, range(1, 1200), step_s=2.0, cost_s=3.0)

    assert saved[:2] == [FIRST_STEPS, 2 * FIRST_STEPS]
    wanted = interval_s(3.0, failure_s(FailureHistory(), 1000)) / 2.0
    assert saved[2] - saved[1] == pytest.approx(wanted, rel=0.01)


def test_a_resumed_training_counts_from_where_it_goes_on(tmp_path: Path) -> None:
    clock = Clock()
    due = Due(tmp_path, 0, 2, clock)

    assert trained(due, clock, range(501, 521), step_s=1.0, cost_s=0.1) == [510, 520]


def test_a_start_that_was_not_closed_is_a_failure_and_one_that_was_is_none(tmp_path: Path) -> None:
    clock = Clock()
    for is_closed in (False, True, False):
        due = Due(tmp_path, 0, 4, clock)
        clock.now += 3600
        due.write_history(is_open=not is_closed)
    due = Due(tmp_path, 0, 4, clock)
    trained(due, clock, range(1, 11), step_s=1.0, cost_s=1.0)

    found = (tmp_path / ".history.json").read_text()
    assert '"failures": 2' in found
    assert '"rank_hours": 12.' in found


def test_a_damaged_history_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / ".history.json").write_text('{"rank_hours": "x"')

    Due(tmp_path, 0, 4, Clock())

    assert '"failures": 0' in (tmp_path / ".history.json").read_text()


def test_other_ranks_write_no_history(tmp_path: Path) -> None:
    Due(tmp_path, 1, 4, Clock()).write_history()

    assert list(tmp_path.iterdir()) == []
