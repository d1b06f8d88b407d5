"""Groups of groups that are decided together: Kubernetes' CompositePodGroup.

Expected values come from the API types of ``scheduling.k8s.io/v1alpha3`` (v0.37.1) and kube-scheduler 1.37.1.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from gang_scenes import decide, dgx, group, held, members, pod, reasons

from gangline.api.pod_group import PodGroup, PriorityClass
from gangline.placement.affinity.terms import read_relations
from gangline.placement.decisions import Decisions
from gangline.placement.gangs import Group
from gangline.placement.groups.read_groups import read_composite, read_group

ALL = "team/compositepodgroup/all"


def composite(name: str = "all", least: int | None = 2, **spec: Any) -> Group:
    policy = {"basic": {}} if least is None else {"gang": {"minGroupCount": least}}
    wire = {"metadata": {"name": name, "namespace": "team"}, "spec": {"schedulingPolicy": policy, **spec}}
    return read_composite(msgspec.convert(wire, PodGroup), {"high": PriorityClass(value=100)})


def part(name: str, size: int, parent: str = ALL, **more: Any) -> Group:
    return group(name, size, parent=parent, **more)


def topology(label: str) -> dict[str, Any]:
    return {"topology": [{"key": label}]}


def nodes_of(found: Decisions) -> dict[str, str]:
    return {one.pod.removeprefix("team/"): one.node for one in found.bindings}


def said(found: Decisions) -> dict[str, str]:
    return {wait.gang.removeprefix("team/"): wait.message for wait in found.waits}


def two(least: int | None = 2, **spec: Any) -> Sequence[Group]:
    return composite(least=least, **spec), part("x", 2), part("y", 2)


def test_groups_of_one_composite_start_together_or_not_at_all():
    waiting = [*members("x", 2, 4), *members("y", 2, 4)]

    short = decide([dgx("a")], waiting, *two())
    assert short.bindings == ()
    assert list(said(short)) == ["compositepodgroup/all"]

    assert len(decide([dgx("a"), dgx("b")], waiting, *two()).bindings) == 4


def test_a_composite_lacks_groups_until_each_has_the_pods_that_it_needs():
    found = decide([dgx("a")], [*members("x", 2), *members("y", 1)], *two())

    assert found.bindings == ()
    assert said(found) == {
        "compositepodgroup/all": "all has 1 of the 2 groups that must start together; y has 1 of the 2 pods "
        "that it needs"
    }


def test_groups_of_a_basic_composite_start_each_for_itself():
    found = decide([dgx("a")], [*members("x", 2, 4), *members("y", 2, 4)], *two(least=None))

    assert len(found.bindings) == 2


def test_where_fewer_groups_suffice_the_others_start_afterwards():
    waiting = [*members("x", 2, 4), *members("y", 2, 4)]

    first = decide([dgx("a")], waiting, *two(least=1))
    assert set(nodes_of(first)) == {"x-worker-0", "x-worker-1"}

    running = [
        held("x-worker-0", "a", 0, 1, 2, 3, gang="x"),
        held("x-worker-1", "a", 4, 5, 6, 7, gang="x"),
    ]
    then = decide([dgx("a"), dgx("b")], members("y", 2, 4), *two(least=1), bound=running)
    assert set(nodes_of(then).values()) == {"b"}


def test_more_pods_than_a_group_needs_follow_where_there_is_room():
    found = decide([dgx("a"), dgx("b")], [*members("x", 3, 4), *members("y", 2, 4)], *two())

    assert len(found.bindings) == 4
    assert reasons(found) == {"x": "NoRoom"}


def test_all_groups_lie_in_one_domain_of_the_composite_and_each_in_one_of_its_own():
    racks = [dgx("a", zone="1", rack="1"), dgx("b", zone="2", rack="2"), dgx("c", zone="2", rack="3")]
    groups = [
        composite(schedulingConstraints=topology("zone")),
        part("x", 2, required_level="rack"),
        part("y", 2, required_level="rack"),
    ]

    found = nodes_of(decide(racks, [*members("x", 2, 4), *members("y", 2, 4)], *groups))

    assert {found["x-worker-0"], found["y-worker-0"]} == {"b", "c"}
    assert (found["x-worker-0"], found["y-worker-0"]) == (found["x-worker-1"], found["y-worker-1"])
    assert decide(racks[:2], [*members("x", 2, 4), *members("y", 2, 4)], *groups).bindings == ()


def test_no_group_starts_where_another_finds_no_domain_of_its_own():
    racks = [dgx(name, rack=name) for name in ("a", "b", "c")]
    busy = [held("p", "b", *range(4)), held("q", "c", *range(4))]  # room for all, and one whole rack
    groups = [composite(), part("x", 2, required_level="rack"), part("y", 2, required_level="rack")]
    waiting = [*members("x", 2, 4), *members("y", 2, 4)]

    assert decide(racks, waiting, *groups, bound=busy).bindings == ()
    assert len(decide(racks, waiting, *groups, bound=busy[:1]).bindings) == 4


def test_a_pod_that_is_made_anew_joins_the_domain_of_its_composite():
    zones = [dgx("a", zone="1"), dgx("b", zone="2"), dgx("c", zone="2")]
    groups = [composite(schedulingConstraints=topology("zone")), part("x", 1), part("y", 1)]
    running = [held("x-worker-0", "b", *range(8), gang="x")]

    found = decide(zones, members("y", 1, 8), *groups, bound=running)

    assert nodes_of(found) == {"y-worker-0": "c"}


def test_composites_in_a_composite_count_as_its_groups():
    inner = "team/compositepodgroup/inner"
    groups = [
        composite(),
        composite("inner", 2, parentCompositePodGroupName="all"),
        part("x", 2),
        part("y", 2, parent=inner),
        part("z", 2, parent=inner),
    ]
    waiting = [*members("x", 2, 2), *members("y", 2, 2), *members("z", 2, 2)]

    assert decide([dgx("a")], waiting, *groups).bindings == ()
    assert len(decide([dgx("a"), dgx("b")], waiting, *groups).bindings) == 6
    assert decide([dgx("a"), dgx("b")], waiting[:-1], *groups).bindings == ()


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ([part("x", 1)], "CompositePodGroup all does not exist"),
        (
            [
                part("x", 1, parent="team/compositepodgroup/loop"),
                composite("loop", parentCompositePodGroupName="loop"),
            ],
            "CompositePodGroup loop lies deeper than 4 groups, or in itself",
        ),
    ],
)
def test_a_group_whose_composite_is_missing_or_in_itself_waits(groups: list[Group], why: str):
    assert said(decide([dgx("a")], members("x", 1), *groups)) == {"x": why}


def test_a_composite_of_high_priority_goes_first():
    waiting = [*members("x", 1, 8), *members("other", 1, 8)]
    groups = [composite(least=1, priorityClassName="high"), part("x", 1), group("other", 1, priority=50)]

    assert nodes_of(decide([dgx("a")], waiting, *groups)) == {"x-worker-0": "a"}


def read(**spec: Any) -> Group:
    wire = {
        "metadata": {"name": "loose", "namespace": "team"},
        "spec": {"schedulingPolicy": {"basic": {}}, **spec},
    }
    return read_group(msgspec.convert(wire, PodGroup), {})


@pytest.mark.parametrize(
    ("mode", "gone"),
    [
        ({"disruptionMode": {"single": {}}}, {"loose-0"}),
        ({}, {"loose-0"}),
        ({"disruptionMode": {"all": {}}}, {"loose-0", "loose-1"}),
        ({"disruptionMode": "PodGroup"}, {"loose-0", "loose-1"}),  # v1alpha2
    ],
)
def test_a_loose_group_gives_way_pod_by_pod_unless_it_is_disrupted_as_a_whole(mode: Any, gone: set[str]):
    running = [
        held("loose-0", "a", *range(4), gang="loose"),
        held("loose-1", "a", *range(4, 8), gang="loose"),
    ]

    found = decide([dgx("a")], [pod("new", 4, priority=10)], read(**mode), bound=running)

    assert {name.removeprefix("team/") for one in found.evictions for name in one.pods} == gone


@pytest.mark.parametrize(("mode", "gone"), [("single", 1), ("all", 2)])
def test_a_composite_gives_way_as_a_whole_where_it_says_so(mode: str, gone: int):
    groups = [composite(disruptionMode={mode: {}}), part("x", 1), part("y", 1)]
    running = [held("x-0", "a", *range(4), gang="x"), held("y-0", "a", *range(4, 8), gang="y")]

    found = decide([dgx("a")], [pod("new", 4, priority=10)], *groups, bound=running)

    assert sum(len(one.pods) for one in found.evictions) == gone


def test_rules_about_neighbours_and_domains_of_groups_are_refused_together():
    racks = [dgx(name, rack=name, **{"kubernetes.io/hostname": name}) for name in ("a", "b")]
    term = {"labelSelector": {}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    rules, _ = read_relations(apart, [], "team", {})
    groups = [composite(), part("x", 1, required_level="rack"), part("y", 1)]

    found = decide(racks, [*members("x", 1, relations=rules), *members("y", 1, relations=rules)], *groups)

    assert found.bindings == ()
    assert reasons(found) == {"compositepodgroup/all": "Refused"}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}, "resourceClaims"),
        ({"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}}, "topology has 2 entries"),
        ({"schedulingPolicy": {"later": {}}}, "neither gang nor basic"),
    ],
)
def test_what_is_not_honoured_is_refused_with_the_field(spec: Any, why: str):
    found = decide([dgx("a")], members("loose", 1), read(**spec))

    assert found.bindings == ()
    assert reasons(found) == {"loose": "Refused"}
    assert why in found.waits[0].message
