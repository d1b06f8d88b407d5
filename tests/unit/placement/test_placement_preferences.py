"""Preferred affinity: decides between nodes that are equally fast for the gang, and refuses none."""

from typing import Any

import msgspec
import pytest
from gang_scenes import decide, dgx, group, held, members, pod

from gangline.api.core import Pod
from gangline.placement.affinity.terms import Relations, Term
from gangline.placement.policy import Policy
from gangline.placement.snapshot import PodView


def liking(value: str, weight: int = 1, label: str = "pool") -> dict[str, Any]:
    rule = {"key": label, "operator": "In", "values": [value]}
    return {
        "node_preferences": ((weight, {"matchExpressions": [rule]}),),
        "shape": f"preferences {value} {weight}".encode(),
    }


def nodes_of(*args: Any, **more: Any) -> set[str]:
    return {binding.node for binding in decide(*args, **more).bindings}


POOLS = [dgx("a", pool="x"), dgx("b", pool="y"), dgx("c", pool="y")]


def test_a_pod_goes_to_the_first_node_that_it_prefers():
    assert nodes_of(POOLS, [pod("p", **liking("y"))]) == {"b"}
    assert nodes_of(POOLS, [pod("p", **liking("nowhere"))]) == nodes_of(POOLS, [pod("p")]) == {"a"}


def test_weights_add_up():
    both = (*liking("x", 1)["node_preferences"], *liking("y", 2)["node_preferences"])
    assert nodes_of(POOLS, [pod("p", node_preferences=both, shape=b"both")]) == {"b"}


def test_a_pod_without_gpus_goes_where_it_prefers_too():
    assert nodes_of(POOLS, [pod("p", 0, **liking("y"))]) == {"b"}


def test_preferences_count_before_fullness_and_after_speed():
    taken = [held("h", "a", 0, 1, 2)]
    assert nodes_of(POOLS, [pod("p")], bound=taken) == {"a"}
    assert nodes_of(POOLS, [pod("p", **liking("y"))], bound=taken) == {"b"}
    # GPUs 0 and 7 of a DGX-1 have no NVLink between them: a pair on `a` is faster.
    slow = [held("h", "b", 1, 2, 3, 4, 5, 6), held("i", "c", 1, 2, 3, 4, 5, 6)]
    assert nodes_of(POOLS, [pod("p", 2, **liking("y"))], bound=slow) == {"a"}


def test_a_gang_over_several_nodes_takes_the_ones_that_it_prefers():
    on = [dgx(name, pool=pool) for name, pool in zip("abcd", "xyxy", strict=True)]
    assert nodes_of(on, members("g", 4, 4, **liking("y")), group("g", 4)) == {"b", "d"}


def test_a_gang_prefers_a_rack_by_its_nodes():
    on = [dgx(name, rack=rack) for name, rack in zip("abcd", "1122", strict=True)]
    policy = Policy(levels=("rack",))
    workers = members("g", 4, 4, **liking("2", label="rack"))
    assert nodes_of(on, workers, group("g", 4), policy=policy) == {"c", "d"}


@pytest.mark.parametrize(("weight", "where"), [(1, "b"), (-1, "a")])
def test_a_pod_with_gpus_goes_near_pods_that_it_prefers_and_away_from_others(weight: int, where: str):
    term = Term("pool", ("team",), (("app", "x"),))
    there = [held("x", "c", 0, labels={"app": "x"}), held("full", "a", 0), held("full-b", "b", 0)]
    asks = pod("p", relations=Relations(preferred=((weight, term),)))
    assert nodes_of(POOLS, [asks], bound=there) == {where}


def test_preferred_node_affinity_is_read_from_the_pod():
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    rule = {"key": "pool", "operator": "In", "values": ["y"]}
    entry = {"weight": 7, "preference": {"matchExpressions": [rule]}}
    spec = {"containers": [{"name": "c"}], "affinity": {"nodeAffinity": {preferred: [entry]}}}
    found = PodView.from_pod(
        msgspec.convert({"metadata": {"name": "p", "namespace": "n"}, "spec": spec}, Pod)
    )
    assert found.node_preferences == ((7, {"matchExpressions": [rule]}),)
