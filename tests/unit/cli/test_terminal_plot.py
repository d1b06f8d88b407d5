"""Curves drawn with characters."""

from __future__ import annotations

from gangline.cli.runs.terminal_plot import plot_lines


def test_a_falling_line_goes_from_the_upper_left_to_the_lower_right() -> None:
    lines = plot_lines({"a": [(0, 10.0), (20, 1.0)]}, width=25, height=3)

    assert lines == [
        "10 |******",
        "   |      *********",
        " 1 |               ******",
        "   +---------------------",
        "    0                  20",
    ]


def test_each_run_has_a_mark_that_is_told_below() -> None:
    lines = plot_lines({"a": [(0, 1.0)], "b": [(1, 2.0)]}, width=30)

    assert [line.strip() for line in lines[-2:]] == ["* a", "o b"]


def test_what_cannot_be_drawn_is_left_out() -> None:
    assert plot_lines({"a": [(0, float("nan")), (1, 0.0)]}, width=30, is_log=True) == ["(no values)"]
    assert "100" in plot_lines({"a": [(0, 1.0), (1, float("inf")), (2, 100.0)]}, width=30)[0]
