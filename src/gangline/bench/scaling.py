"""How images/s grow with the number of ranks: series of results, efficiency against the ideal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from gangline.errors import UserError


@dataclass(frozen=True, slots=True)
class Point:
    """One number of ranks.

    Attributes:
        ranks: how many.
        images_per_s: of all ranks; the median where there are several results.
    """

    ranks: int
    images_per_s: float


@dataclass(frozen=True, slots=True)
class Series:
    """One machine with one network.

    Attributes:
        label: for the legend.
        points: by number of ranks, at least one.
    """

    label: str
    points: tuple[Point, ...]

    @property
    def of_one_rank(self) -> float:
        """Images/s of one rank, by the smallest number of ranks that was measured."""
        return self.points[0].images_per_s / self.points[0].ranks

    def ideal(self, ranks: int) -> float:
        """Return what so many ranks would reach if none cost another anything."""
        return self.of_one_rank * ranks

    def efficiency(self, point: Point) -> float:
        """Return the share of the ideal that was reached; 1 is all of it."""
        return point.images_per_s / self.ideal(point.ranks)


def series_of(results: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Series]:
    """Return the series in some results, in the order in which their labels come first.

    Args:
        results: what the benchmarks write with ``--json``.
        names: where each came from, for messages.

    Raises:
        UserError: one is no result.
    """
    found: dict[str, dict[int, list[float]]] = {}
    for result, name in zip(results, names, strict=True):
        try:
            ranks, speed = int(result["ranks"]), float(result["images_per_s"])
            label = label_of(result)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"{name} is no result of a benchmark: {type(error).__name__}: {error}",
                hint="the benchmarks write one with --json FILE",
            ) from error
        if ranks < 1 or not speed > 0:
            raise UserError(f"{name} has {ranks} ranks and {speed} images/s: both must be above 0")
        found.setdefault(label, {}).setdefault(ranks, []).append(speed)
    return [
        Series(label, tuple(Point(ranks, median(speeds[ranks])) for ranks in sorted(speeds)))
        for label, speeds in found.items()
    ]


def label_of(result: Mapping[str, Any]) -> str:
    """Return the name of a machine and what it computed: results with the same one belong together."""
    machine = result.get("machine") or {}
    where = machine.get("gpu") or f"{machine.get('processor') or 'CPU'}, {machine.get('cores', '?')} cores"
    parts = [str(result.get("model", "unknown")), str(where), f"batch {result.get('batch_size', '?')}"]
    if (precision := result.get("precision", "fp32")) != "fp32":
        parts.append(str(precision))
    if str(result.get("data", "")).endswith(("synthetic", "(synthetic)")) is False:
        parts.append("data read")
    if result.get("limited"):
        parts.append("limited")
    return ", ".join(parts)


def table_lines(series: Series) -> Iterator[str]:
    """Yield a table of one series."""
    yield series.label
    yield f"{'ranks':>7} {'images/s':>12} {'ideal':>12} {'efficiency':>11}"
    for point in series.points:
        yield (
            f"{point.ranks:>7} {point.images_per_s:>12,.1f} {series.ideal(point.ranks):>12,.1f} "
            f"{100 * series.efficiency(point):>9.1f} %"
        )
