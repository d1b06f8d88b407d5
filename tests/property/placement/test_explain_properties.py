"""What an explanation promises is so: the jobs that it names are enough, and so are fewer pods."""

import re
from typing import Any

from drawn_scenes import Draws, drawn, many
from gang_scenes import NOW, dgx, group, held, members, pod
from hypothesis import given

from gangline.placement.cycle import schedule
from gangline.placement.explanation import Explanation, explain
from gangline.placement.gangs import Group
from gangline.placement.policy import Policy
from gangline.placement.snapshot import NodeView, PodView, Snapshot

AT_ONCE = Policy(whole_for_s=0.0)


def scene(draws: Draws) -> tuple[list[NodeView], list[PodView], list[PodView], Group]:
    nodes = [dgx(name, wires=draws.rarely(2)) for name in "abc"[: 1 + draws.below(3)]]
    bound = []
    for node in nodes:
        for job, gpus in (("x", (0, 1, 2)), ("y", (3, 4)), ("z", (5, 6, 7))):
            if draws.rarely(2):
                name = f"{job}{node.name}"
                bound.append(held(name, node.name, *gpus, job=f"team/{name}"))
    count, each = 1 + draws.below(12), draws.one_of([1, 2, 4, 8])
    return nodes, bound, members("g", count, each), group("g", count)


scenes = drawn(scene, 24)


def places(nodes: list[NodeView], bound: list[PodView], waiting: list[PodView], gang: Group) -> bool:
    found = schedule(
        Snapshot(nodes=tuple(nodes), pods=tuple(bound)),
        waiting,
        now=NOW,
        policy=AT_ONCE,
        groups={gang.key: gang},
    )
    return len(found.bindings) == len(waiting)


def why(scene: Any) -> Explanation:
    nodes, bound, waiting, gang = scene
    snapshot = Snapshot(nodes=tuple(nodes), pods=tuple(bound))
    found = explain(snapshot, waiting, "team/g", now=NOW, policy=AT_ONCE, groups={gang.key: gang})
    assert found is not None
    return found


@many
@given(scenes)
def test_it_says_fits_exactly_when_the_gang_is_placed(scene: Any) -> None:
    assert (why(scene).reason == "Fits") == places(*scene)


@many
@given(scenes)
def test_when_the_jobs_that_it_names_are_gone_the_gang_is_placed(scene: Any) -> None:
    nodes, bound, waiting, gang = scene
    fix = next((fix for fix in why(scene).fixes if fix.kind == "ends"), None)
    if fix is None or "running jobs" in fix.text:
        return
    named = set(re.findall(r"team/\w+", fix.text))

    assert named
    assert places(nodes, [pod for pod in bound if pod.job not in named], waiting, gang)


@many
@given(scenes)
def test_it_says_never_exactly_when_an_empty_cluster_is_too_small(scene: Any) -> None:
    nodes, _, waiting, gang = scene
    found = why(scene)

    if found.reason != "Fits":
        says_never = any(fix.kind == "never" for fix in found.fixes)
        assert says_never == (not places(nodes, [], waiting, gang))


@many
@given(scenes)
def test_the_smaller_gang_that_it_offers_is_placed_now(scene: Any) -> None:
    nodes, bound, waiting, gang = scene
    fix = next((fix for fix in why(scene).fixes if fix.kind == "fewer"), None)
    if fix is None:
        return
    count = int(re.findall(r"\d+", fix.text)[0])

    assert places(nodes, bound, waiting[:count], group("g", count))


@many
@given(scenes)
def test_the_split_that_it_offers_is_placed_now_as_pods_of_one_gpu(scene: Any) -> None:
    nodes, bound, waiting, _ = scene
    fix = next((fix for fix in why(scene).fixes if fix.kind == "split"), None)
    if fix is None:
        return
    total = sum(one.request["nvidia.com/gpu"] for one in waiting)
    small = [pod(f"g-{index}", 1, gang="g") for index in range(total)]

    assert 0 < (fix.speed if fix.speed is not None else 1) <= 1.0 + 1e-9
    assert places(nodes, bound, small, group("g", total))
