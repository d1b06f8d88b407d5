"""PodDisruptionBudgets tell who gives way last: best effort, as kube-scheduler has it."""

from typing import Any

from gang_scenes import NOW, dgx, group, held, members

from gangline.placement.cycle import schedule
from gangline.placement.preemption.disruption import DisruptionBudget
from gangline.placement.snapshot import NodeView, PodView, Snapshot

A, B = dgx("a"), dgx("b")
HALVES = (0, 1, 2, 3), (4, 5, 6, 7)


def budget(
    name: str, allowed: int, *, disrupted: tuple[str, ...] = (), **labels: str
) -> DisruptionBudget | None:
    status = {
        "disruptionsAllowed": allowed,
        "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T11:00:00Z"),
    }
    selector = {"matchLabels": labels} if labels else {}
    meta = {"name": name, "namespace": "team"}
    return DisruptionBudget.from_object({"metadata": meta, "spec": {"selector": selector}, "status": status})


def victims(
    bound: list[PodView], *budgets: DisruptionBudget | None, size: int = 4, nodes: tuple[NodeView, ...] = (A,)
) -> list[str]:
    snapshot = Snapshot(nodes=nodes, pods=tuple(bound), budgets=tuple(filter(None, budgets)))
    groups = {"team/vip": group("vip", size, priority=9)}
    decisions = schedule(snapshot, members("vip", size), now=NOW, groups=groups)
    return [entry.gang.removeprefix("team/") for entry in decisions.evictions]


def half(name: str, node: str, which: int, **more: Any) -> PodView:
    return held(name, node, *HALVES[which], labels={"app": name}, **more)


def test_whose_end_breaks_a_budget_gives_way_only_where_nobody_else_does():
    # The guarded one has the lower priority: budgets come before priorities.
    low, high = half("low", "a", 0, priority=1), half("high", "a", 1, priority=2)

    assert victims([low, high]) == ["low"]
    assert victims([low, high], budget("guard", 0, app="low")) == ["high"]
    assert victims([low, high], budget("guard", 1, app="low")) == ["low"]


def test_budgets_are_best_effort():
    bound = [half("low", "a", 0), half("high", "a", 1, priority=9)]

    assert victims(bound, budget("guard", 0, app="low")) == ["low"]


def test_of_those_that_break_budgets_the_fewest_pods_do():
    pairs = [held(f"one-{gpu}", "a", gpu, gpu + 1, gang="one", labels={"app": "x"}) for gpu in (0, 2)]
    single = held("two", "a", 4, 5, 6, 7, gang="two", priority=2, labels={"app": "x"})

    assert victims([*pairs, single], budget("guard", 0, app="x")) == ["two"]


def test_a_budget_is_used_up_by_the_victims_before():
    # One of the two may go. The other quarter is taken from the gang that no budget guards.
    guarded = [held(f"g{gpu}", "a", gpu, gpu + 1, labels={"app": "x"}) for gpu in (0, 2)]
    other = held("other", "a", 4, 5, 6, 7, priority=2)

    assert victims([*guarded, other], budget("guard", 2, app="x")) == ["g0", "g2"]
    assert victims([*guarded, other], budget("guard", 1, app="x")) == ["other"]


def test_a_place_without_violations_is_preferred_to_one_with_lower_priorities():
    bound = [
        half("a0", "a", 0),
        half("a1", "a", 1),
        half("b0", "b", 0, priority=3),
        half("b1", "b", 1, priority=3),
    ]
    guards = [budget("g0", 0, app="a0"), budget("g1", 0, app="a1")]

    assert victims(bound, size=8, nodes=(A, B)) == ["a0", "a1"]
    assert victims(bound, *guards, size=8, nodes=(A, B)) == ["b0", "b1"]


def test_what_budgets_do_not_count():
    low, high = half("low", "a", 0, priority=1), half("high", "a", 1, priority=2)

    # No selector and an empty one match no pod; a pod that is being disrupted is counted already.
    assert budget("all", 0) is None
    assert victims([low, high], budget("guard", 0, app="low", disrupted=("low",))) == ["low"]
    elsewhere = {
        "metadata": {"name": "x", "namespace": "other"},
        "spec": {"selector": {"matchLabels": {"app": "low"}}},
    }
    assert victims([low, high], DisruptionBudget.from_object(elsewhere)) == ["low"]


def test_expressions_select_too_and_a_budget_without_a_status_allows_nothing():
    low, high = half("low", "a", 0, priority=1), half("high", "a", 1, priority=2)
    rule = {"key": "app", "operator": "In", "values": ["low", "lower"]}
    guard = {
        "metadata": {"name": "x", "namespace": "team"},
        "spec": {"selector": {"matchExpressions": [rule]}},
    }

    assert victims([low, high], DisruptionBudget.from_object(guard)) == ["high"]
