"""The scalars of a run as columns, read from its records: by name, step by step. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gangline.clock import parse_time
from gangline.train.records import parse_record

PROGRESS_NAMES = ("loss", "rate")
"""What records of progress tell besides the step."""


class ScalarPoint(NamedTuple):
    """One value: of which step, when it was written (seconds since 1970), and what it is; may be NaN."""

    step: int
    at_s: float
    value: float


Curves = Mapping[str, list[ScalarPoint]]
"""Points by the name of the scalar, in the order of their steps."""


def curves_of(lines: Iterable[str]) -> Curves:
    """Return the curves in a log whose lines begin with their times.

    A step that comes again is of an attempt that went on from there: what was said of it and of later ones
    before no longer counts. A scalar of ``log`` takes the place of what records of progress say by its name.
    """
    told: dict[str, list[ScalarPoint]] = {}
    reported: dict[str, list[ScalarPoint]] = {}
    for line in lines:
        record = parse_record(line)
        if record is None or not isinstance(step := record.get("step"), int):
            continue
        values, into = _values(record), told if record["kind"] == "scalars" else reported
        try:
            at_s = parse_time(line.partition(" ")[0]).timestamp()
        except ValueError:
            continue
        for name, value in values.items():
            curve = into.setdefault(name, [])
            while curve and curve[-1].step >= step:
                curve.pop()
            curve.append(ScalarPoint(step, at_s, value))
    return {**reported, **told}


def _values(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the scalars of a record; of another kind of record none."""
    if record["kind"] == "progress":
        said = {name: record[name] for name in PROGRESS_NAMES if name in record}
    elif record["kind"] == "scalars" and isinstance(record.get("values"), dict):
        said = record["values"]
    else:
        return {}
    found = {}
    for name, value in said.items():
        try:
            found[str(name)] = float(value)
        except (TypeError, ValueError):
            continue
    return found


def best_of(curve: list[ScalarPoint], *, is_max: bool = False) -> ScalarPoint | None:
    """Return the lowest point, or the highest; the first of equal ones. None where every value is NaN."""
    finite = [point for point in curve if not math.isnan(point.value)]
    if not finite:
        return None
    return max(finite, key=lambda point: point.value) if is_max else min(finite, key=lambda p: p.value)
