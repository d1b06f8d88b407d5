"""Curves drawn with characters, a mark for each run, so that colours are not needed. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

MARKS = "*o+x#@%&"
HEIGHT = 16
WIDTH_MIN = 20


def plot_lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    width: int,
    height: int = HEIGHT,
    is_log: bool = False,
) -> list[str]:
    """Return the lines of a plot.

    Args:
        series: (step, value) of each run; values that are no numbers, and with ``is_log`` those that are not
            above 0, are left out.
        width: characters of a line.
        height: lines of the plot itself.
        is_log: the values' axis is logarithmic.
    """
    kept = {
        name: [
            (step, math.log10(value) if is_log else value) for step, value in points if _fits(value, is_log)
        ]
        for name, points in series.items()
    }
    every = [point for points in kept.values() for point in points]
    if not every:
        return ["(no values)"]
    left, right = min(step for step, _ in every), max(step for step, _ in every)
    low, high = min(value for _, value in every), max(value for _, value in every)
    ends = [_label(value, is_log) for value in (high, low)]
    margin = max(map(len, ends))
    columns = max(WIDTH_MIN, width - margin - 2)
    grid = [[" "] * columns for _ in range(height)]
    for mark, points in zip(MARKS * (len(kept) // len(MARKS) + 1), kept.values(), strict=False):
        _draw(
            grid, [(_place(s, left, right, columns), _place(v, low, high, height)) for s, v in points], mark
        )
    labels = [ends[0], *[""] * (height - 2), ends[1]]
    rows = zip(labels, reversed(grid), strict=True)
    lines = [f"{label:>{margin}} |{''.join(cells).rstrip()}" for label, cells in rows]
    axis = f"{left:g}{f'{right:g}':>{columns - len(f'{left:g}')}}"
    lines += [" " * margin + " +" + "-" * columns, " " * (margin + 2) + axis]
    if len(kept) > 1:
        lines += [
            f"{' ' * margin}  {mark} {name}" for mark, name in zip(MARKS * len(kept), kept, strict=False)
        ]
    return lines


def _fits(value: float, is_log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not is_log)


def _label(value: float, is_log: bool) -> str:
    return f"{10**value if is_log else value:.4g}"


def _place(value: float, low: float, high: float, cells: int) -> int:
    return 0 if high == low else round((value - low) / (high - low) * (cells - 1))


def _draw(grid: list[list[str]], cells: Sequence[tuple[int, int]], mark: str) -> None:
    """Draw points and what lies between them."""
    for (column, row), (next_column, next_row) in pairwise([*cells, *cells[-1:]]):
        count = max(abs(next_column - column), abs(next_row - row), 1)
        for part in range(count + 1):
            at = round(column + (next_column - column) * part / count)
            grid[round(row + (next_row - row) * part / count)][at] = mark
