"""Curves from the records of a training: columns of numbers over steps, of bounded length. Pure."""

from __future__ import annotations

from typing import Any, Final

POINTS_MAX: Final = 2_000
COLUMNS_MAX: Final = 40
NUMBER_MAX: Final = 1e300

Columns = dict[str, list[float | None]]


class Curves:
    """The numbers of ``progress`` and ``scalars`` records, a column for each name; ``step`` is the first.

    Past the bound every second point goes, so that a curve keeps its whole range. A step that is not above
    the one before begins another attempt: what was before does not count.
    """

    def __init__(self) -> None:
        self._points: list[dict[str, float]] = []
        self._stride = 1
        self._skipped = 0
        self.version = 0

    def add(self, record: dict[str, Any]) -> bool:
        """Take a record; return whether it was one of these."""
        step, said = record.get("step"), _said(record)
        if said is None or not isinstance(step, int):
            return False
        values = {name: float(value) for name, value in said.items() if _is_number(value)}
        last = self._points[-1] if self._points else {}
        if step == last.get("step") and not last.keys() & values.keys() - {"step"}:
            last |= values  # the other record of the same step
            self.version += 1
            return True
        if last and step <= last["step"]:
            self._points.clear()
            self._stride = 1
        self._skipped += 1
        if self._points and self._skipped < self._stride:
            return True
        self._skipped = 0
        self._points.append({"step": float(step), **values})
        if len(self._points) > POINTS_MAX:
            self._points = self._points[::2]
            self._stride *= 2
        self.version += 1
        return True

    def columns(self) -> Columns:
        """Return the columns; a point without a number of that name has None there."""
        names = list(dict.fromkeys(name for point in self._points for name in point))[:COLUMNS_MAX]
        return {name: [point.get(name) for point in self._points] for name in names}


def _said(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a record says by name: of progress its own fields, of scalars its values."""
    if record.get("kind") == "progress":
        return record
    values = record.get("values")
    return values if record.get("kind") == "scalars" and isinstance(values, dict) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < NUMBER_MAX
