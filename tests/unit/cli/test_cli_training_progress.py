"""What a training reports in its log: the time of a step, and the end."""

from datetime import UTC, datetime

import pytest

from gangline.client.explain.training_progress import progress_of
from gangline.train.records import format_record


def line(seconds: float, step: int, tag: str = "", **fields: object) -> str:
    record = format_record("progress", step=step, steps=100, **fields).rstrip()
    return f"2026-01-01T00:00:{seconds:012.9f}Z {tag}{record}"


def test_the_step_time_is_the_mean_between_the_first_and_the_last_report():
    lines = ["2026-01-01T00:00:00Z begun", line(1, 1), line(3.5, 11), "noise", line(6, 21, eta_s=19.75)]

    found = progress_of(lines)

    assert found is not None
    assert (found.step, found.steps, found.over) == (21, 100, 20)
    assert found.step_s == pytest.approx(0.25)
    assert found.ends == datetime(2026, 1, 1, 0, 0, 25, 750000, UTC)


def test_a_launchers_tag_before_the_record_does_not_matter():
    found = progress_of([line(1, 1, "[1,0]<stdout>: "), line(2, 2, "[1,0]<stdout>: ")])
    assert found is not None
    assert found.step_s == 1


def test_steps_of_an_earlier_attempt_do_not_count():
    found = progress_of([line(1, 10), line(2, 50), line(30, 1), line(32, 5)])
    assert found is not None
    assert (found.step_s, found.over) == (0.5, 4)


def test_one_report_tells_no_step_time_and_other_lines_nothing():
    found = progress_of([line(1, 1)])
    assert found is not None
    assert (found.step_s, found.ends) == (None, None)
    assert progress_of(["", "2026-01-01T00:00:00Z @gangline {}", "step 3", line(1, 1)[21:]]) is None
