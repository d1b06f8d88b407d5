"""What a benchmark returns, how samples are taken, and how a table of medians is printed."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One line of a table: our samples, those of the bare tool beside them, and the goal.

    Attributes:
        name: what was measured.
        unit: unit of every sample (`ms`, `s`, `MB`, `images/s`, `jobs`).
        ours: one sample for each round, in the order taken.
        bare: the same of the bare tool, taken in turns with ours; empty where there is none.
        compare: `difference` (ours minus bare) or `ratio` (ours over bare).
        goal: for example `<= 0.7`; about the comparison where there is a bare tool, else about our median.
    """

    name: str
    unit: str
    ours: list[float]
    bare: list[float] = field(default_factory=list)
    compare: str = "ratio"
    goal: str = ""

    @property
    def result(self) -> float:
        """The number that the goal is about."""
        middle = statistics.median(self.ours)
        if not self.bare:
            return middle
        other = statistics.median(self.bare)
        return middle - other if self.compare == "difference" else middle / other

    @property
    def verdict(self) -> str:
        """`reached`, `missed`, or nothing without a goal."""
        if not self.goal:
            return ""
        sign, limit = self.goal.split()
        reached = self.result <= float(limit) if sign == "<=" else self.result >= float(limit)
        return "reached" if reached else "MISSED"

    def cells(self) -> list[str]:
        """The line's cells, in the order of HEADINGS."""
        bare = number(statistics.median(self.bare)) if self.bare else ""
        spread = f"{number(min(self.ours))} to {number(max(self.ours))}" if len(self.ours) > 1 else ""
        compared = f"{self.result:+.3g}" if self.compare == "difference" else f"{self.result:.3f} x"
        return [
            self.name,
            self.unit,
            number(statistics.median(self.ours)),
            spread,
            bare,
            compared if self.bare else "",
            self.goal,
            self.verdict,
        ]


HEADINGS = ["figure", "unit", "median", "range", "bare", "against bare", "goal", ""]


def number(value: float) -> str:
    """Format with three significant digits and no exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(figures: list[Figure]) -> str:
    """Return a Markdown table that is also readable as text."""
    rows = [HEADINGS, *(figure.cells() for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def in_turns(
    measures: dict[str, Callable[[], float]], rounds: int, *, warm_up: int = 1
) -> dict[str, list[float]]:
    """Take every measure once a round, so that a drift of the machine meets all of them alike."""
    for _ in range(warm_up):
        for measure in measures.values():
            measure()
    samples: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            samples[name].append(measure())
    return samples


def elapsed_s(action: Callable[[], object]) -> float:
    """Return the wall time that `action` takes. Unit: s."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def machine() -> str:
    """Return one line: processor, cores, memory, kernel, Python."""
    import os

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    model, memory = platform.processor() or platform.machine(), ""
    cpuinfo, meminfo = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip()
            for line in cpuinfo.read_text().splitlines()
            if line.startswith("model name")
        ]
        model = names[0] if names else model
        memory = f", {int(meminfo.read_text().split()[1]) / 2**20:.0f} GiB"
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{model}, {cores} cores{memory}, {system}"
