"""When others give way for a gang that waits is known before it happens."""

from datetime import timedelta
from typing import Any

import pytest
from gang_scenes import NOW, dgx, group, held, members

from gangline.placement.explanation import Explanation, explain
from gangline.placement.policy import Policy, SuspensionBounds
from gangline.placement.service import AttainedService
from gangline.placement.snapshot import Snapshot

ELEVEN = "2026-01-01T11:00:00Z"
"""An hour ago: eight device-hours for a gang of eight."""


def explained(
    *, services: dict[str, AttainedService], leaving: tuple[str, ...] = (), **bounds: Any
) -> Explanation:
    pods = [held(f"long-{i}", "a", i, gang="long", started=ELEVEN) for i in range(8)]
    groups = {
        "team/long": group("long", 8),
        "team/new": group("new", 8, created="2026-01-01T11:59:00Z"),
    }
    found = explain(
        Snapshot(nodes=(dgx("a"),), pods=tuple(pods), services=services, leaving=frozenset(leaving)),
        members("new", 8),
        "team/new",
        now=NOW,
        policy=Policy(suspension=SuspensionBounds(**bounds)),
        groups=groups,
    )
    assert found is not None
    return found


RESUMABLE = {"team/long": AttainedService(is_resumable=True)}


@pytest.mark.parametrize(
    ("case", "after_s", "bounds"),
    [
        ("once it has waited long enough", 240, {"short_wait_s": 300.0, "min_run_s": 600.0}),
        ("once the other has run long enough", 1800, {"short_wait_s": 0.0, "min_run_s": 5400.0}),
        ("once the other has had enough", 10_800, {"short_wait_s": 1e6, "min_run_s": 600.0}),
    ],
)
def test_the_first_moment_is_told(case: str, after_s: int, bounds: dict[str, float]) -> None:
    found = explained(services=RESUMABLE, **bounds)
    moment = NOW + timedelta(seconds=after_s)

    assert found.reason == "NoRoom"
    assert found.fixes[0].kind == "suspends"
    assert (found.fixes[0].at, found.fixes[0].gangs) == (moment, ("team/long",))
    assert found.fixes[0].text == f"when team/long is suspended for it (from {moment:%H:%M:%S} UTC)"


@pytest.mark.parametrize(
    ("case", "services", "bounds"),
    [
        ("cannot go on", {}, {}),
        ("was suspended as often as it may be", RESUMABLE, {"suspensions_max": 0}),
        ("nobody is suspended", RESUMABLE, {"long_after_device_s": 0.0}),
    ],
)
def test_nothing_is_promised_of_one_that(
    case: str, services: dict[str, AttainedService], bounds: dict[str, float]
) -> None:
    assert [fix.kind for fix in explained(services=services, **bounds).fixes] == ["ends"]


def test_who_is_being_suspended_is_named() -> None:
    due = explained(services=RESUMABLE, short_wait_s=0.0)
    going = explained(services=RESUMABLE, leaving=("team/long",))

    assert (due.reason, due.suspended, due.is_begun) == ("Suspending", ("team/long",), False)
    assert (going.reason, going.suspended, going.is_begun) == ("Suspending", ("team/long",), True)
    assert going.message.endswith("team/long is being suspended")
