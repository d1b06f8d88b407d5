"""The list of jobs as the page shows it: rows, what a filter leaves, their order, the part in sight. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from gangline.workloads.job_view import JobView

ROWS_MAX: Final = 500
"""Of one window: more than any screen shows at once."""
RUNS_MAX: Final = 200
"""Past runs that are shown, the newest."""
SORTED_BY: Final = ("name", "state", "gpus", "node", "created")
REASON_CHARS_MAX: Final = 400


class RowProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a training is, by its own last record."""

    step: int
    steps: int
    rate: float | None = None
    unit: str = ""
    loss: float | None = None
    eta_s: float | None = None


class JobRow(msgspec.Struct, frozen=True):
    """One job in one line; ``key`` is ``KIND/NAMESPACE/NAME`` in small letters."""

    key: str
    kind: str
    namespace: str
    name: str
    state: str
    reason: str = ""
    created: str = ""
    ended: str = ""
    gpus: int = 0
    allocated: int = 0
    node: str = ""
    progress: RowProgress | None = None


class RunRow(msgspec.Struct, frozen=True):
    """One run of the past in one line.

    Attributes:
        id: uid of its job.
        key: of its job, while that is there; empty afterwards.
        lacks: why nobody knows what it reported last; empty where that is known, or nothing was reported.
    """

    id: str
    key: str
    name: str
    namespace: str
    status: str
    command: str
    started: str
    duration_s: float
    last: str
    reason: str
    lacks: str = ""


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What part of the list somebody looks at."""

    filter: str = ""
    states: tuple[str, ...] = ()
    sort: str = "-created"
    first: int = 0
    count: int = 60


def row_of(view: JobView) -> JobRow:
    """Return the row of a job."""
    return JobRow(
        key=job_key(view.kind, view.namespace, view.name),
        kind=view.kind,
        namespace=view.namespace,
        name=view.name,
        state=view.status,
        reason=view.reason[:REASON_CHARS_MAX],
        created=view.created,
        ended=view.ended,
        gpus=view.gpus,
        allocated=view.gpus_allocated or 0,
        node=view.node,
    )


def job_key(kind: str, namespace: str, name: str) -> str:
    """Return the name by which the page knows a job."""
    return f"{kind.lower()}/{namespace}/{name}"


def chosen(rows: Iterable[JobRow], window: Window) -> list[JobRow]:
    """Return the rows that a window's filter and states leave, in its order. Cost: O(n log n)."""
    found = [row for row in rows if is_chosen(row, window)]
    found.sort(key=lambda row: row.key)
    found.sort(key=lambda row: sort_value(row, window), reverse=window.sort.startswith("-"))
    return found


def is_chosen(row: JobRow, window: Window) -> bool:
    """Return whether a window's filter and states leave a row; of waiting jobs some queue."""
    state = "PENDING" if row.state == "QUEUING" else row.state
    if window.states and state not in window.states:
        return False
    if not window.filter:
        return True
    text = f"{row.key} {row.node} {row.reason}".lower()
    return all(word in text for word in window.filter.lower().split())


def sort_value(row: JobRow, window: Window) -> str | int:
    """Return what a window sorts by; an unknown column is the time of creation."""
    field = window.sort.removeprefix("-")
    value: str | int = getattr(row, field if field in SORTED_BY else "created")
    return value


def part(found: Sequence[JobRow], window: Window) -> tuple[int, Sequence[JobRow]]:
    """Return the rows in sight and the place of the first; a place past the end is the last full part."""
    count = min(max(window.count, 1), ROWS_MAX)
    first = min(max(window.first, 0), max(len(found) - count, 0))
    return first, found[first : first + count]


def progress_of(record: dict[str, Any]) -> RowProgress | None:
    """Return how far a training is by a record of it; None for one that says nothing of it."""
    try:
        return msgspec.convert(record, RowProgress, strict=False)
    except msgspec.ValidationError:
        return None
