"""All rows of the list, and their orders: a row that changes without moving costs no sorting. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from gangline.page.rows import JobRow, Window, chosen, is_chosen, sort_value

ORDERS_MAX: Final = 16
WAITING: Final = "PENDING"


class _Order:
    """The rows of one filter in one order, and where each is."""

    def __init__(self, rows: list[JobRow]) -> None:
        self.rows = rows
        self._places: dict[str, int] | None = None

    def replace(self, row: JobRow) -> None:
        if self._places is None:
            self._places = {one.key: place for place, one in enumerate(self.rows)}
        self.rows[self._places[row.key]] = row


class JobList:
    """The rows by key.

    Attributes:
        version: grows with each change.
    """

    def __init__(self) -> None:
        self._rows: dict[str, JobRow] = {}
        self._orders: dict[Window, _Order] = {}
        self._counts: Counter[str] = Counter()
        self.version = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[JobRow]:
        return iter(self._rows.values())

    def get(self, key: str) -> JobRow | None:
        """Return a row."""
        return self._rows.get(key)

    def put(self, row: JobRow) -> None:
        """Take a new row, or another state of one. Cost: O(1) for each order in which it keeps its place."""
        before = self._rows.get(row.key)
        if before == row:
            return
        self._rows[row.key] = row
        self._count(before, -1)
        self._count(row, 1)
        self._moved(before, row)

    def drop(self, key: str) -> None:
        """Take a row away."""
        before = self._rows.pop(key, None)
        if before is not None:
            self._count(before, -1)
            self._moved(before, None)

    def chosen(self, window: Window) -> Sequence[JobRow]:
        """Return the rows that a window's filter leaves, in its order; equal windows share the work."""
        asked = Window(window.filter, window.states, window.sort, 0, 0)
        if asked not in self._orders:
            if len(self._orders) >= ORDERS_MAX:
                self._orders.pop(next(iter(self._orders)))
            self._orders[asked] = _Order(chosen(self._rows.values(), asked))
        return self._orders[asked].rows

    def counts(self) -> dict[str, int]:
        """Return how many jobs are in each state; waiting ones count together."""
        return {state: count for state, count in self._counts.items() if count}

    def _count(self, row: JobRow | None, by: int) -> None:
        if row is not None:
            self._counts[WAITING if row.state == "QUEUING" else row.state] += by

    def _moved(self, before: JobRow | None, after: JobRow | None) -> None:
        self.version += 1
        for window, order in list(self._orders.items()):
            was, is_now = (row is not None and is_chosen(row, window) for row in (before, after))
            if not was and not is_now:
                continue
            if (
                was
                and is_now
                and before
                and after
                and sort_value(before, window) == sort_value(after, window)
            ):
                order.replace(after)
            else:
                del self._orders[window]
