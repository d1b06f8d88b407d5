"""Gangs that have had much are suspended for those that have had little, within bounds."""

from typing import Any

import pytest
from gang_scenes import NOW, dgx, group, held, members, messages, reasons

from gangline.placement.affinity.terms import pods_of
from gangline.placement.cycle import schedule
from gangline.placement.decisions import Decisions
from gangline.placement.gangs import Group
from gangline.placement.policy import Policy, SuspensionBounds
from gangline.placement.preemption.disruption import DisruptionBudget
from gangline.placement.service import AttainedService
from gangline.placement.snapshot import PodView, Snapshot

A, B = dgx("a"), dgx("b")
SEVEN = "2026-01-01T07:00:00Z"
"""Five hours ago: 40 device-hours for a gang of eight."""

RESUMABLE = AttainedService(is_resumable=True)


def running(gang: str, node: str = "a", *, started: str = SEVEN, **more: Any) -> list[PodView]:
    return [held(f"{gang}-{i}", node, i, gang=gang, started=started, **more) for i in range(8)]


def decide(
    waiting: list[PodView],
    *groups: Group,
    bound: list[PodView],
    nodes: tuple[Any, ...] = (A,),
    services: dict[str, AttainedService] | None = None,
    leaving: tuple[str, ...] = (),
    budgets: tuple[DisruptionBudget, ...] = (),
    overdue_after_s: float = 86_400.0,
    **bounds: Any,
) -> Decisions:
    snapshot = Snapshot(
        nodes=nodes,
        pods=tuple(bound),
        services={"team/long": RESUMABLE} if services is None else services,
        leaving=frozenset(leaving),
        budgets=budgets,
    )
    known = {one.key: one for one in (group("long", 8), group("new", 8), *groups)}
    policy = Policy(
        overdue_after_s=overdue_after_s, overdue_per_device_s=0.0, suspension=SuspensionBounds(**bounds)
    )
    return schedule(snapshot, waiting, now=NOW, policy=policy, groups=known)


def suspended(found: Decisions) -> list[str]:
    return [one.gang.removeprefix("team/") for one in found.suspensions]


def test_a_gang_that_has_had_much_is_suspended_for_one_that_has_had_nothing():
    found = decide(members("new", 8), bound=running("long"))

    (suspension,) = found.suspensions
    assert (suspension.gang, suspension.beneficiary) == ("team/long", "team/new")
    assert suspension.device_s == 40 * 3600
    assert (suspension.number, suspension.number_max) == (1, 10)
    assert suspension.message == (
        "gives way to team/new, which has had less: team/long has had 40 device-hours; it goes on from its "
        "checkpoint when there is room (suspension 1 of at most 10)"
    )
    assert reasons(found) == {"new": "Suspending"}
    assert messages(found)["new"].endswith("suspended for it, since they have had more: team/long")
    assert found.reserved_for == "team/new"
    assert not found.evictions


@pytest.mark.parametrize(
    ("case", "more"),
    [
        ("cannot go on", {"services": {"team/long": AttainedService()}}),
        ("nobody says whether it can", {"services": {}}),
        ("was suspended as often as it may be", {"suspensions_max": 0}),
        ("has not run for its minimum time", {"min_run_s": 6 * 3600.0}),
        (
            "has had less than the boundary, for one that has just come",
            {"long_after_device_s": 41 * 3600.0, "short_wait_s": 24 * 3600.0},
        ),
        ("the administrator wants none", {"long_after_device_s": 0.0}),
    ],
)
def test_a_gang_is_not_suspended_that(case, more):
    assert suspended(decide(members("new", 8), bound=running("long"), **more)) == []


@pytest.mark.parametrize(("allowed", "expected"), [(8, ["long"]), (7, [])])
def test_no_disruption_budget_is_broken(allowed, expected):
    labelled = running("long", labels={"app": "x"})
    budget = DisruptionBudget(
        key="team/x", pods=pods_of({"matchLabels": {"app": "x"}}, "team"), allowed=allowed
    )

    found = decide(members("new", 8), bound=labelled, budgets=(budget,))

    assert suspended(found) == expected


def test_service_of_earlier_runs_counts_and_the_minimum_time_is_of_the_present_one():
    services = {"team/long": AttainedService(is_resumable=True, device_s=200 * 3600.0, suspensions=2)}
    half_an_hour = "2026-01-01T11:29:00Z"

    found = decide(members("new", 8), bound=running("long", started=half_an_hour), services=services)

    assert [one.number for one in found.suspensions] == [3]
    assert (
        suspended(
            decide(
                members("new", 8), bound=running("long", started="2026-01-01T11:51:00Z"), services=services
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("case", "created", "had_h", "expected"),
    [
        ("waits for its first start", "2026-01-01T11:54:00Z", 0.0, ["long"]),
        ("has had less", "2026-01-01T11:54:00Z", 7.0, ["long"]),
        ("has had as much", "2026-01-01T11:54:00Z", 8.0, []),
        ("has not waited long enough", "2026-01-01T11:56:00Z", 0.0, []),
    ],
)
def test_others_below_the_boundary_give_way_to_one_that_waits_and(case, created, had_h, expected):
    services = {
        "team/long": RESUMABLE,
        "team/new": AttainedService(is_resumable=True, device_s=had_h * 3600.0),
    }

    found = decide(
        members("new", 8),
        group("new", 8, created=created),
        bound=running("long", started="2026-01-01T11:00:00Z"),  # eight device-hours
        services=services,
        short_wait_s=300.0,
    )

    assert suspended(found) == expected


@pytest.mark.parametrize(("priority", "expected"), [(0, ["long"]), (1, ["long"]), (-1, [])])
def test_nobody_of_higher_priority_is_suspended(priority, expected):
    found = decide(
        members("new", 8, priority=priority), group("new", 8, priority=priority), bound=running("long")
    )

    assert suspended(found) == expected
    assert not found.evictions  # who can go on is not ended


def test_one_that_has_had_much_waits_and_has_nobody_suspended():
    services = {
        "team/long": RESUMABLE,
        "team/new": AttainedService(is_resumable=True, device_s=33 * 3600.0, suspensions=1),
    }
    found = decide(members("new", 8), bound=running("long"), services=services)

    assert suspended(found) == []
    assert reasons(found) == {"new": "NoRoom"}


def test_one_that_has_had_much_goes_after_one_that_has_had_little():
    services = {"team/long": AttainedService(is_resumable=True, device_s=33 * 3600.0, suspensions=1)}
    old = group("long", 8, created=SEVEN)

    found = decide([*members("long", 8), *members("new", 8)], old, bound=[], services=services)
    assert reasons(found).keys() == {"long"}

    high = group("long", 8, created=SEVEN, priority=1)
    found = decide([*members("long", 8), *members("new", 8)], high, bound=[], services=services)
    assert reasons(found).keys() == {"new"}

    both = [*members("long", 8), *members("new", 8)]
    found = decide(both, old, bound=[], services=services, overdue_after_s=3600.0)
    assert reasons(found).keys() == {"new"}


def test_nobody_else_is_suspended_while_one_leaves():
    bound = [*running("long"), *running("other", "b")]
    services = {"team/long": RESUMABLE, "team/other": RESUMABLE}

    found = decide(
        members("new", 8),
        group("other", 8),
        bound=bound,
        nodes=(A, B),
        services=services,
        leaving=("team/long",),
    )

    assert suspended(found) == []
    assert reasons(found) == {"new": "Suspending"}
    assert messages(found)["new"].endswith("team/long is being suspended")
    assert found.reserved_for == "team/new"


def test_no_more_are_suspended_than_must_be_and_those_that_lose_least():
    bound = [*running("long"), *running("other", "b", saved="2026-01-01T11:59:00Z")]
    services = {"team/long": RESUMABLE, "team/other": RESUMABLE}

    found = decide(members("new", 8), group("other", 8), bound=bound, nodes=(A, B), services=services)

    assert suspended(found) == ["other"]


def test_nobody_is_suspended_where_that_would_not_help():
    bound = [*running("long"), *running("fixed", "b")]

    found = decide(members("new", 16), group("fixed", 8), group("new", 16), bound=bound, nodes=(A, B))

    assert suspended(found) == []


def test_a_gang_has_others_suspended_for_a_node_of_its_own_rather_than_be_cut():
    half = [held(f"half-{i}", "b", i, gang="half", started=SEVEN) for i in range(4)]
    bound = [*running("long")[:4], *half]
    services = {"team/long": AttainedService(is_resumable=True, device_s=40 * 3600.0)}

    found = decide(members("new", 8), group("half", 4), bound=bound, nodes=(A, B), services=services)

    assert suspended(found) == ["long"]


@pytest.mark.parametrize(
    ("case", "overdue_after_s", "had_h", "expected"),
    [
        ("is overdue, and has had less", 3600.0, 39.0, ["long"]),
        ("is overdue, and has had as much", 3600.0, 40.0, []),
        ("is not overdue", 86_400.0, 39.0, []),
    ],
)
def test_one_that_has_had_much_has_others_suspended_once_it(case, overdue_after_s, had_h, expected):
    services = {
        "team/long": RESUMABLE,
        "team/new": AttainedService(is_resumable=True, device_s=had_h * 3600.0),
    }

    found = decide(
        members("new", 8),
        group("new", 8, created=SEVEN),
        bound=running("long"),
        services=services,
        overdue_after_s=overdue_after_s,
    )

    assert suspended(found) == expected
