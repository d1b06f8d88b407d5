"""Draw the figures of a simulation as PNG or SVG. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from gangline.simulate.report import ReplayResult

WIDTH_IN, HEIGHT_IN, DOTS_PER_IN = 11.0, 9.6, 130
COLOURS = {"gangline": "#0b5fa5", "rack-only": "#2e8b57", "best-fit": "#e08e0b", "first-fit": "#d1495b"}
"""By policy; also the order in which they are drawn."""

HOUR_S = 3600.0
WIDE = "wait"
"""Figures with this word in their title reach from seconds to hours, and get a logarithmic scale."""

CUT_UNIT, BREAK = "hours", 3.0
"""A bar of this unit is cut off at so many times the median bar; its label says how far it goes."""

Value = Callable[[ReplayResult], float]

PANELS: tuple[tuple[str, str, Value, str], ...] = (
    ("mean time from arrival to end", "hours", lambda o: o.figures.completion_mean_s / HOUR_S, "{:.2f}"),
    ("the same, gangs alone", "hours", lambda o: o.figures.gang_completion_mean_s / HOUR_S, "{:.2f}"),
    ("mean wait", "minutes", lambda o: o.figures.wait_mean_s / 60, "{:.1f}"),
    ("GPUs held (pale) and goodput", "% of all GPUs", lambda o: 100 * o.figures.goodput, "{:.1f}"),
    ("fragmentation", "% of the free GPUs", lambda o: 100 * o.figures.fragmentation, "{:.0f}"),
    (
        "predicted training speed of gangs",
        "% of the best placement",
        lambda o: 100 * o.figures.speed_mean,
        "{:.1f}",
    ),
)
"""Title, unit, value and how it is written; lower is better in the first three and in fragmentation."""


def draw(outcomes: Sequence[ReplayResult], target: Path, *, title: str = "") -> None:
    """Draw all figures by load and policy, and the course of the day at the highest load.

    Args:
        outcomes: of every policy at every load.
        target: file, ``.png`` or ``.svg``.
        title: above the picture.

    Raises:
        OSError: the file cannot be written.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    style = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "axes.titlesize": 10,
        "svg.hashsalt": "gangline",
    }
    with mpl.rc_context(cast(Any, style)):
        figure = pyplot.figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
        grid = figure.add_gridspec(3, 6)
        for number, panel in enumerate(PANELS):
            axes = figure.add_subplot(grid[number // 3, 2 * (number % 3) : 2 * (number % 3) + 2])
            _bars(axes, outcomes, *panel, has_held=number == 3)
        left, right = figure.add_subplot(grid[2, :3]), figure.add_subplot(grid[2, 3:])
        _course(left, right, outcomes)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        figure.suptitle(title or "simulated day: policies by load", fontsize=12)
        figure.savefig(target, dpi=DOTS_PER_IN, metadata={"Date": None} if target.suffix == ".svg" else None)
        pyplot.close(figure)


def _policies(outcomes: Sequence[ReplayResult]) -> list[str]:
    found = {outcome.policy for outcome in outcomes}
    return [name for name in COLOURS if name in found]


def _bars(
    axes: Any,
    outcomes: Sequence[ReplayResult],
    title: str,
    unit: str,
    value: Value,
    text: str,
    *,
    has_held: bool,
) -> None:
    """Draw one figure: a group of bars for each load."""
    loads = list(dict.fromkeys(outcome.load_text for outcome in outcomes))
    policies = _policies(outcomes)
    by_key = {(outcome.load_text, outcome.policy): outcome for outcome in outcomes}
    values = sorted(value(outcome) for outcome in outcomes)
    top = values[-1]
    is_wide = WIDE in title
    usual = values[len(values) // 2]
    limit = BREAK * usual if unit == CUT_UNIT and 0 < BREAK * usual < top else top
    width = 0.84 / len(policies)
    for place, load in enumerate(loads):
        for number, policy in enumerate(policies):
            outcome = by_key.get((load, policy))
            if outcome is None:
                continue
            x = place + (number - (len(policies) - 1) / 2) * width
            if has_held:
                axes.bar(
                    x, 100 * outcome.figures.utilisation, width * 0.92, color=COLOURS[policy], alpha=0.35
                )
            height = min(value(outcome), limit)
            axes.bar(x, height, width * 0.92, color=COLOURS[policy])
            tallest = max(height, 100 * outcome.figures.utilisation) if has_held else height
            axes.annotate(
                text.format(value(outcome)) + (" ↑" if value(outcome) > limit else ""),
                (x, tallest),
                textcoords="offset points",
                xytext=(0, 3),
                ha="center",
                va="bottom",
                rotation=90,
                fontsize=7,
            )
    axes.set_xticks(range(len(loads)), [f"load {load}" if load != "trace" else load for load in loads])
    axes.set_ylabel(unit)
    axes.set_title(title)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
    held = [100 * outcome.figures.utilisation for outcome in outcomes] if has_held else []
    tall = max([limit, *held])
    axes.set_ylim(0, 1.25 * tall if tall > 0 else 1)
    if is_wide:
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(0, max(10.0, 10 * tall))


def _course(left: Any, right: Any, outcomes: Sequence[ReplayResult]) -> None:
    """Draw goodput and waiting GPUs over the day, at the highest load."""
    highest = max(outcomes, key=lambda outcome: outcome.load or 0.0).load_text
    chosen = {outcome.policy: outcome for outcome in outcomes if outcome.load_text == highest}
    for policy in _policies(outcomes):
        if policy not in chosen:
            continue
        samples = chosen[policy].samples
        hours = [sample.at_s / HOUR_S for sample in samples]
        order = 3 if policy == "gangline" else 2
        left.plot(
            hours,
            [sample.useful for sample in samples],
            color=COLOURS[policy],
            label=policy,
            linewidth=1.2,
            zorder=order,
        )
        right.plot(
            hours, [sample.waiting for sample in samples], color=COLOURS[policy], linewidth=1.2, zorder=order
        )
    left.set_title(f"GPUs held, weighted by speed, at {_at(highest)}")
    right.set_title(f"GPUs that waiting jobs ask for, at {_at(highest)}")
    right.set_yscale("symlog", linthresh=10)
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xlabel("hour of the day")
        axes.set_ylabel("GPUs")
        axes.grid(axis="y", alpha=0.25)
        axes.margins(x=0.01)


def _at(load: str) -> str:
    return "the load of the trace" if load == "trace" else f"{load} load"
