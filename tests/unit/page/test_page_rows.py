"""The list of jobs on the page: what a filter leaves, its order, the part in sight."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangline.page.rows import JobRow, Window, chosen, part, progress_of


def row(name: str, state: str = "RUNNING", **more: object) -> JobRow:
    found = JobRow(f"mpijob/ns/{name}", "MPIJob", "ns", name, state)
    return replace(found, **more)


ROWS = [
    row("b", created="2026-01-02", gpus=8, node="n1"),
    row("a", "QUEUING", created="2026-01-03", gpus=2, reason="needs 2 GPUs"),
    row("c", "FAILED", created="2026-01-01", gpus=4, node="n2", reason="rank 3 failed"),
]


def names(window: Window) -> list[str]:
    return [one.name for one in chosen(ROWS, window)]


@pytest.mark.parametrize(
    ("window", "left"),
    [
        (Window(), ["a", "b", "c"]),  # the newest first
        (Window(sort="created"), ["c", "b", "a"]),
        (Window(sort="-gpus"), ["b", "c", "a"]),
        (Window(sort="name"), ["a", "b", "c"]),
        (Window(sort="no such column"), ["c", "b", "a"]),
        (Window(filter="N1"), ["b"]),
        (Window(filter="rank mpijob"), ["c"]),  # every word
        (Window(states=("PENDING",)), ["a"]),  # who queues is pending
        (Window(states=("FAILED", "RUNNING")), ["b", "c"]),
        (Window(filter="nothing"), []),
    ],
)
def test_a_filter_leaves_what_it_names_in_the_order_asked_for(window: Window, left: list[str]) -> None:
    assert names(window) == left


@pytest.mark.parametrize(
    ("first", "count", "seen"),
    [(0, 2, (0, ["a", "b"])), (2, 2, (1, ["b", "c"])), (-5, 1, (0, ["a"])), (99, 99, (0, ["a", "b", "c"]))],
)
def test_a_place_past_the_end_is_the_last_full_part(
    first: int, count: int, seen: tuple[int, list[str]]
) -> None:
    place, rows = part(chosen(ROWS, Window()), Window(first=first, count=count))

    assert (place, [one.name for one in rows]) == seen


def test_a_record_that_says_nothing_of_progress_is_none() -> None:
    assert progress_of({"kind": "progress", "step": 3, "steps": 9, "loss": 0.5, "more": []}).step == 3  # type: ignore[union-attr]
    assert progress_of({"kind": "silence", "rank": 1}) is None
