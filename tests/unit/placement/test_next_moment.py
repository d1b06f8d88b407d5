"""When time alone may let a waiting gang in."""

from datetime import timedelta
from typing import Any

import pytest
from gang_scenes import NOW, group, held, members

from gangline.placement.allocations import Allocations
from gangline.placement.gangs import Gang
from gangline.placement.policy import Policy, SuspensionBounds
from gangline.placement.service import AttainedService
from gangline.placement.waiting.next_moment import next_moment

ELEVEN = "2026-01-01T11:00:00Z"
WAITS = Gang("team/new", members("new", 8), group("new", 8, created="2026-01-01T11:59:00Z"))
NEVER = {"short_wait_s": 1e6, "min_run_s": 1e6, "long_after_device_s": 1e12}


def after_s(
    *gangs: Gang, is_resumable: bool = False, policy: dict[str, Any], **bounds: float
) -> float | None:
    allocations = Allocations()
    for index in range(8):
        allocations.add(held(f"long-{index}", "a", index, gang="long", started=ELEVEN))
    allocations.services = {"team/long": AttainedService(is_resumable=is_resumable)}
    suspension = SuspensionBounds(**{**NEVER, **bounds})
    moment = next_moment(gangs, allocations, Policy(suspension=suspension, **policy), NOW)
    return moment and (moment - NOW) / timedelta(seconds=1)


@pytest.mark.parametrize(
    ("case", "expected_s", "is_resumable", "policy", "bounds"),
    [
        ("its short wait ends", 240, False, {}, {"short_wait_s": 300.0}),
        ("it may be cut", 30, False, {"whole_for_s": 90.0}, {}),
        ("it is overdue", 8 * 720 - 60, False, {"whole_for_s": 1e6}, {}),
        ("the other has run long enough", 1800, True, {}, {"min_run_s": 5400.0}),
        ("the other has had enough", 900, True, {}, {"min_run_s": 0.0, "long_after_device_s": 8 * 4500.0}),
    ],
)
def test_the_next_pass_is_due_when(
    case: str, expected_s: float, is_resumable: bool, policy: dict[str, float], bounds: dict[str, float]
) -> None:
    assert after_s(WAITS, is_resumable=is_resumable, policy=policy, **bounds) == expected_s


def test_bounds_that_are_meant_for_never_are_far_away() -> None:
    far = {"overdue_after_s": 1e12, "whole_for_s": 1e12}

    found = after_s(WAITS, is_resumable=True, policy=far, short_wait_s=float("inf"), min_run_s=float("inf"))

    assert found is not None and found > 1e9


def test_nothing_is_due_once_every_moment_has_passed() -> None:
    long_ago = Gang("team/new", members("new", 8), group("new", 8, created="2025-01-01T00:00:00Z"))

    assert after_s(long_ago, policy={}, short_wait_s=300.0) is None
