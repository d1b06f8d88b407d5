"""Draw how images/s grow with the number of ranks, and curves of runs. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from gangline.bench.scaling import Series

SUFFIXES = (".png", ".svg")
WIDTH_IN, HEIGHT_IN, DOTS_PER_IN = 10.0, 4.6, 150
_COLOURS = ("#0b5fa5", "#d1495b", "#2e8b57", "#8e5ea2", "#e08e0b", "#4a4e69")
_MARKERS = "osD^vP"


def draw(series: Sequence[Series], target: Path, *, title: str = "") -> list[Path]:
    """Draw images/s and efficiency beside the ideal, and return the files written.

    Args:
        series: one line each.
        target: file; its suffix is replaced by each of ``SUFFIXES``.
        title: above both figures.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    style = {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "gangline",
    }
    with mpl.rc_context(cast(Any, style)):
        figure, (speed, efficiency) = pyplot.subplots(
            1, 2, figsize=(WIDTH_IN, HEIGHT_IN), width_ratios=(3, 2), layout="constrained"
        )
        for number, line in enumerate(series):
            colour = _COLOURS[number % len(_COLOURS)]
            _draw_line(speed, efficiency, line, colour, _MARKERS[number % len(_MARKERS)])
            _write_figures(speed, line, colour, only_last=len(series) > 1)
        counts = sorted({point.ranks for line in series for point in line.points})
        for axes in (speed, efficiency):
            axes.set_xticks(counts)
            axes.set_xlabel("ranks")
            axes.grid(axis="y", alpha=0.25)
            axes.margins(x=0.08)
        speed.set_ylabel("images/s")
        speed.yaxis.set_major_formatter("{x:,g}")
        speed.set_ylim(bottom=0)
        speed.set_title("speed (dashed: ideal)", loc="left", fontsize=10)
        top = max(line.efficiency(point) for line in series for point in line.points)
        efficiency.axhline(100, color="#888888", linestyle="--", linewidth=1)
        efficiency.set_ylim(0, max(110, 108 * top))
        efficiency.set_ylabel("% of the ideal")
        efficiency.set_title("efficiency", loc="left", fontsize=10)
        figure.legend(
            *speed.get_legend_handles_labels(), loc="outside lower center", ncols=1, frameon=False, fontsize=9
        )
        if title:
            figure.suptitle(title, fontsize=12)
        paths = [target.with_suffix(suffix) for suffix in SUFFIXES]
        for path in paths:
            figure.savefig(path, dpi=DOTS_PER_IN, metadata={"Date": None} if path.suffix == ".svg" else None)
        pyplot.close(figure)
    return paths


def _draw_line(speed: Any, efficiency: Any, line: Series, colour: str, marker: str) -> None:
    ranks = [point.ranks for point in line.points]
    speed.plot(
        ranks, [line.ideal(count) for count in ranks], color=colour, linestyle="--", linewidth=1, alpha=0.6
    )
    speed.plot(
        ranks, [point.images_per_s for point in line.points], color=colour, marker=marker, label=line.label
    )
    shares = [100 * line.efficiency(point) for point in line.points]
    efficiency.plot(ranks, shares, color=colour, marker=marker)


def _write_figures(speed: Any, line: Series, colour: str, *, only_last: bool) -> None:
    """Write the figure of each point below it; of several lines only the last one, beside it."""
    for point in line.points[-1:] if only_last else line.points:
        text = f"{point.images_per_s:,.0f}" if point.images_per_s >= 100 else f"{point.images_per_s:.3g}"
        is_low = point.images_per_s < speed.get_ylim()[1] / 6  # the axis is near
        speed.annotate(
            text,
            (point.ranks, point.images_per_s),
            textcoords="offset points",
            xytext=(7, -3) if only_last else (0, 7 if is_low else -14),
            ha="left" if only_last else "center",
            fontsize=8,
            color=colour,
        )


def draw_curves(
    series: Mapping[str, Sequence[tuple[float, float]]], target: Path, *, label: str, is_log: bool = False
) -> None:
    """Draw values over steps, a line for each run, into a file of the kind that its suffix says.

    Raises:
        ValueError: the suffix is none that can be drawn.
        OSError: the file cannot be written.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    with mpl.rc_context(cast(Any, {"axes.spines.top": False, "axes.spines.right": False})):
        figure, axes = pyplot.subplots(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
        try:
            for number, (name, points) in enumerate(series.items()):
                steps, values = [step for step, _ in points], [value for _, value in points]
                axes.plot(steps, values, color=_COLOURS[number % len(_COLOURS)], label=name)
            axes.set_xlabel("step")
            axes.set_ylabel(label)
            axes.set_yscale("log" if is_log else "linear")
            axes.grid(axis="y", alpha=0.25)
            figure.legend(loc="outside right upper", frameon=False, fontsize=9)
            figure.savefig(target, dpi=DOTS_PER_IN)
        finally:
            pyplot.close(figure)
