"""Gangs: whole or not at all, on the GPUs whose links serve them best."""

from datetime import timedelta

import msgspec
import pytest
from gang_scenes import NOW, decide, dgx, gpus_of, group, held, members, messages, pod, reasons

from gangline.api.core import Taint
from gangline.clock import format_time
from gangline.placement.gangs import Group
from gangline.placement.policy import Policy
from gangline.placement.snapshot import UNREACHABLE_TAINT, NodeView, PodView
from gangline.topology.known import known_machine

RACKS = Policy(levels=("rack",))
SMALL = {"cpu": 10_000, "memory": 1 << 40, "pods": 110, "nvidia.com/gpu": 8}


def test_a_gang_that_does_not_fit_whole_is_not_started():
    decisions = decide(
        [dgx("a"), dgx("b")], members("big", 12), group("big", 12), bound=[held("x", "a", *range(8))]
    )

    assert decisions.bindings == ()
    assert messages(decisions) == {
        "big": "needs room for 12 pods of 1 nvidia.com/gpu at once; there is room for 8"
    }
    assert len(decisions.unschedulable) == 12


def test_of_two_gangs_that_fit_only_alone_one_starts_whole():
    decisions = decide([dgx("a")], [*members("one", 6), *members("two", 6)], group("one", 6), group("two", 6))

    assert {binding.pod[:8] for binding in decisions.bindings} == {"team/one"}
    assert len(decisions.bindings) == 6
    assert reasons(decisions) == {"two": "NoRoom"}


def test_a_gang_waits_for_its_pods_and_for_its_group():
    assert messages(decide([dgx("a")], members("g", 3), group("g", 4))) == {
        "g": "has 3 of the 4 pods that must start together"
    }
    assert messages(decide([dgx("a")], members("g", 3))) == {"g": "PodGroup team/g does not exist"}


def test_a_gang_that_lacks_a_pod_which_a_lost_node_keeps_says_so():
    lost = msgspec.structs.replace(dgx("b"), taints=(Taint(key=UNREACHABLE_TAINT, effect="NoSchedule"),))
    kept = held("g-worker-3", "b", 0, gang="g", is_ending=True)
    going = held("g-worker-3", "a", 0, gang="g", is_ending=True)  # its node will say so

    found = messages(decide([dgx("a"), lost], members("g", 3), group("g", 4), bound=[kept]))["g"]
    other = messages(decide([dgx("a"), lost], members("g", 3), group("g", 4), bound=[going]))["g"]

    assert found.startswith("has 3 of the 4 pods that must start together; pod team/g-worker-3 was deleted")
    assert "`kubectl delete node b`" in found
    assert other == "has 3 of the 4 pods that must start together"


def test_pods_beyond_the_minimum_follow_as_far_as_there_is_room():
    decisions = decide([dgx("a")], members("g", 10), group("g", 6))

    assert len(decisions.bindings) == 8
    assert len(decisions.unschedulable) == 2


def test_a_light_gang_has_its_size_in_a_label():
    waiting = [msgspec.structs.replace(found, gang_size=3) for found in members("g", 2)]

    assert reasons(decide([dgx("a")], waiting)) == {"g": "Incomplete"}


@pytest.mark.parametrize("taken", [(), (0, 1), (0, 3), (2,)])
def test_four_gpus_come_from_a_quad_that_nvlink_joins_wholly(taken):
    # Of the 70 quads of a DGX-1 V100 only 0-3 and 4-7 have nine links inside (NVIDIA's allocator's fixture).
    bound = [held("x", "a", *taken)] if taken else []

    assert gpus_of(decide([dgx("a")], members("g", 4), group("g", 4), bound=bound))["a"] in (
        [[0, 1, 2, 3], [4, 5, 6, 7]] if not taken else [[4, 5, 6, 7]]
    )


def test_on_a_node_without_the_label_the_lowest_ids_go_first():
    node = dgx("a", wires=False)

    assert gpus_of(decide([node], members("g", 4), group("g", 4), bound=[held("x", "a", 0, 2)])) == {
        "a": [1, 3, 4, 5]
    }


def test_two_gpus_come_as_a_double_link_and_leave_pairs():
    # Double NVLinks of a DGX-1 V100: 0-3, 0-4, 1-2, 1-5, 2-3, 4-7, 5-6, 6-7.
    pair = gpus_of(decide([dgx("a")], [pod("p", 2)]))["a"]

    assert tuple(pair) in {(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)}


def test_a_single_gpu_comes_from_a_node_that_is_broken_already():
    assert gpus_of(decide([dgx("a"), dgx("b")], [pod("p")], bound=[held("x", "b", 0, 1, 2)])).keys() == {"b"}


def test_a_single_gpu_does_not_break_the_free_quad():
    # Free are 3 and the quad 4-7.
    assert gpus_of(decide([dgx("a")], [pod("p")], bound=[held("x", "a", 0, 1, 2)])) == {"a": [3]}


def test_a_gang_stays_on_one_node_where_one_can_hold_it():
    bound = [held("x", "a", 0, 1, 2, 3, 4, 5)]

    assert gpus_of(decide([dgx("a"), dgx("b")], members("g", 4), group("g", 4), bound=bound)).keys() == {"b"}


def test_ranks_on_one_node_follow_the_ring():
    decisions = decide([dgx("a")], members("g", 8), group("g", 8))
    order = [int(binding.gpus[0][1][0].rpartition("-")[2]) for binding in decisions.bindings]
    links = known_machine("dgx1-v100").links

    assert all(links[a][b].startswith("NV") for a, b in zip(order, [*order[1:], order[0]], strict=True))


def test_unhealthy_gpus_are_given_to_nobody():
    decisions = decide([dgx("a", unhealthy=[4])], members("g", 8), group("g", 8))

    assert decisions.bindings == ()
    assert gpus_of(decide([dgx("a", unhealthy=[4])], members("g", 7), group("g", 7))) == {
        "a": [0, 1, 2, 3, 5, 6, 7]
    }


def test_every_container_gets_its_own_gpus():
    waiting = pod("p", 3, gpu_shares=(("one", 0, 1), ("two", 1, 3)))

    [binding] = decide([dgx("a")], [waiting]).bindings
    assert [(name, len(uuids)) for name, uuids in binding.gpus] == [("one", 1), ("two", 2)]
    assert len({uuid for _, uuids in binding.gpus for uuid in uuids}) == 3


def test_a_launcher_without_gpus_goes_with_its_workers_or_elsewhere():
    launcher = pod("g-launcher", 0, gang="g")
    nodes = [dgx("a"), dgx("b")]

    decisions = decide(nodes, [*members("g", 8), launcher], group("g", 9))
    assert {binding.node for binding in decisions.bindings} == {"a"}

    full = held("x", "a", request={"cpu": 72_000})
    decisions = decide(nodes, [*members("g", 8), launcher], group("g", 9), bound=[full])
    assert len(decisions.bindings) == 9


LEVELS = Policy(levels=("block", "rack"))


def racked(*racks: str):
    return [dgx(f"n{index}", block=rack[0], rack=rack) for index, rack in enumerate(racks)]


def test_a_gang_over_nodes_stays_in_the_smallest_rack_that_holds_it():
    nodes = racked("A1", "A1", "A1", "A2", "A2", "B1")

    assert gpus_of(decide(nodes, members("g", 16), group("g", 16), policy=LEVELS)).keys() == {"n3", "n4"}


def test_a_gang_too_large_for_a_rack_stays_in_its_block():
    nodes = racked("A1", "A2", "B1", "B2", "B1")

    assert gpus_of(decide(nodes, members("g", 16), group("g", 16), policy=LEVELS)).keys() == {"n2", "n4"}
    assert gpus_of(decide(nodes, members("g", 24), group("g", 24), policy=LEVELS)).keys() == {
        "n2",
        "n3",
        "n4",
    }


def test_a_required_rack_is_kept_even_where_the_cluster_has_room():
    nodes = racked("A1", "A2", "B1")
    found = decide(nodes, members("g", 16), group("g", 16, required_level="rack"), policy=LEVELS)

    assert found.bindings == ()
    assert messages(found) == {
        "g": "must lie within one rack; needs room for 16 pods, best is A/A1 with room for 8"
    }


def test_gangs_fill_the_fewest_nodes_and_leave_whole_ones():
    bound = [held("x", "a", 0, 1, 2, 3), held("y", "b", 0, 1)]

    placed = gpus_of(decide([dgx("a"), dgx("b"), dgx("c")], members("g", 12), group("g", 12), bound=bound))
    assert {node: len(found) for node, found in placed.items()} == {"a": 4, "c": 8}


def test_pods_of_ack_ask_for_the_same_gpus():
    from gangline.api.core import Container, PodSpec, ResourceRequirements
    from gangline.placement.amounts import pod_request

    spec = PodSpec(
        containers=[Container(name="c", resources=ResourceRequirements(limits={"aliyun.com/gpu": 2}))]
    )

    assert pod_request(spec)["nvidia.com/gpu"] == 2


def test_why_one_pod_does_not_fit_names_the_best_node():
    bound = [held("x", "a", 0, 1, 2), held("y", "b", 0)]

    assert messages(decide([dgx("a"), dgx("b")], members("g", 1, 8), group("g", 1), bound=bound)) == {
        "g": "needs 8 nvidia.com/gpu on one node; best node b has 7 free"
    }


def test_in_a_required_rack_the_other_pods_of_a_gang_may_use_nodes_without_gpus():
    store = NodeView(name="c", labels={"rack": "1"}, allocatable={"cpu": 64_000, "pods": 110})
    gpus = dgx("a", rack="1")
    server = pod("g-ps-0", 0, gang="g", request={"cpu": 60_000})
    gang = [*members("g", 8, request={"cpu": 8_000}), server]

    found = decide([gpus, store], gang, group("g", 9, required_level="rack"), policy=RACKS)

    assert {b.pod: b.node for b in found.bindings}["team/g-ps-0"] == "c"
    assert len(found.bindings) == 9


def test_the_only_rack_that_fits_all_pods_of_a_gang_is_found_among_many_that_fit_most():
    """A parameter server fits on one rack alone, and twelve others are tighter for the workers."""
    small = [msgspec.structs.replace(dgx(f"n{i:02}", rack=f"r{i:02}"), allocatable=SMALL) for i in range(12)]
    gang = [*members("g", 8), pod("g-ps-0", 0, gang="g", request={"cpu": 40_000})]

    found = decide([*small, dgx("z", rack="z")], gang, group("g", 9, required_level="rack"), policy=RACKS)

    assert {binding.node for binding in found.bindings} == {"z"}


def test_a_port_that_keeps_a_gang_waiting_is_named():
    gang = members("g", 2, host_ports=frozenset({("TCP", 80)}))
    held_port = pod("web", 0, node_name="b", host_ports=frozenset({("TCP", 80)}))

    found = decide([dgx("a"), dgx("b")], gang, group("g", 2), bound=[held_port])

    assert messages(found) == {
        "g": "needs host port 80/TCP on 2 nodes, one for each pod; 1 with room have it free"
    }


def test_the_pods_that_are_short_are_told_and_not_those_that_fit():
    gang = [*members("g", 4), pod("g-ps-0", 0, gang="g", request={"cpu": 90_000})]

    found = decide([dgx("a")], gang, group("g", 5))

    assert messages(found) == {"g": "needs 90 cpu on one node; best node a has 80 free"}


def later(name: str, count: int, each: int, seconds: int) -> tuple[list[PodView], Group]:
    """A gang that came so many seconds ago."""
    created = format_time(NOW - timedelta(seconds=seconds))
    return members(name, count, each, created=created), group(name, count, created=created)


@pytest.mark.parametrize(("age_s", "reason"), [(60, {"g": "Cut"}), (3601, {})])
def test_a_gang_waits_an_hour_for_a_node_of_its_own_before_it_is_cut(age_s, reason):
    busy = [held("x", "a", *range(6)), held("y", "b", *range(6))]
    pods, its_group = later("g", 4, 1, age_s)
    policy = Policy(overdue_per_device_s=3600)

    found = decide([dgx("a"), dgx("b")], pods, its_group, bound=busy, policy=policy)

    assert reasons(found) == reason
    assert len(found.bindings) == (0 if reason else 4)
    if reason:
        assert messages(found)["g"] == (
            "fits on 2 nodes now; waits for room on one node, until 2026-01-01T12:59:00Z; "
            "then it takes what there is"
        )
        assert found.kept_nodes == ()  # others may pass


def test_a_gang_that_is_overdue_is_cut_at_once():
    busy = [held("x", "a", *range(6)), held("y", "b", *range(6))]
    pods, its_group = later("g", 4, 1, 100)

    found = decide(
        [dgx("a"), dgx("b")], pods, its_group, bound=busy,
        policy=Policy(overdue_after_s=50, overdue_per_device_s=20),
    )  # fmt: skip

    assert not found.waits


def test_a_gang_waits_for_a_rack_where_no_node_could_hold_it_and_not_where_no_rack_could():
    nodes = [dgx("a", rack="1"), dgx("b", rack="1"), dgx("c", rack="2"), dgx("d", rack="2")]
    busy = [held("x", "a", 0), held("y", "c", 0)]
    racks = Policy(levels=("rack",))
    two, three = later("g", 2, 8, 60), later("g", 3, 8, 60)

    assert messages(decide(nodes, two[0], two[1], bound=busy, policy=racks))["g"].startswith(
        "fits on 2 nodes now; waits for room in one rack, until "
    )
    assert reasons(decide(nodes, two[0], two[1], bound=busy, policy=Policy())) == {}
    assert len(decide(nodes, three[0], three[1], policy=racks).bindings) == 3


def test_nobody_gives_way_to_a_gang_that_could_be_cut():
    busy = [held("x", "a", *range(6), gang="x"), held("y", "b", *range(6), gang="y")]
    created = format_time(NOW - timedelta(seconds=60))
    pods = members("g", 4, 1, created=created, priority=9)

    found = decide([dgx("a"), dgx("b")], pods, group("g", 4, created=created, priority=9), bound=busy)

    assert reasons(found) == {"g": "Cut"}
    assert not found.evictions


def test_a_gang_waits_for_devices_of_one_model():
    nodes = [dgx(name, **{"nvidia.com/gpu.product": model}) for name, model in zip("abc", "HHA", strict=True)]
    busy = [held("x", "a", 0)]
    pods, its_group = later("g", 2, 8, 60)

    found = decide(nodes, pods, its_group, bound=busy)

    assert "waits for room with devices of one model, until" in messages(found)["g"]


def test_a_gang_on_several_nodes_sits_on_a_card_for_each_gpu():
    """A DGX-1 has a card for each two GPUs; of each node another GPU is taken."""
    nodes = [dgx("a"), dgx("b"), dgx("c")]
    bound = [held("x", "a", 0), held("y", "b", 2), held("z", "c", 5)]

    found = gpus_of(decide(nodes, members("g", 3, 4), group("g", 3), bound=bound), "g")

    assert [{gpu // 2 for gpu in found[node]} for node in "abc"] == [{0, 1, 2, 3}] * 3
