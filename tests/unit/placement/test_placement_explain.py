"""Why a gang waits, and what would help: the same words wherever it is asked."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from gang_scenes import NOW, dgx, group, held, members, pod

from gangline.api.core import Taint
from gangline.placement.allocations import Allocations
from gangline.placement.explanation import Explanation, explain
from gangline.placement.gangs import Group
from gangline.placement.node_table import NodeTable
from gangline.placement.policy import Policy, Queue
from gangline.placement.prediction import Workload, compare
from gangline.placement.snapshot import NodeView, PodView, Snapshot
from gangline.placement.waiting.blockers import Blocker
from gangline.topology.network import NETWORK_LABEL, Level


def why(
    key: str,
    nodes: list[NodeView],
    waiting: list[PodView],
    *groups: Group,
    bound: list[PodView] | None = None,
    policy: Policy | None = None,
    **more: Any,
) -> Explanation:
    table = {found.key: found for found in groups}
    snapshot = Snapshot(nodes=tuple(nodes), pods=tuple(bound or ()))
    found = explain(snapshot, waiting, f"team/{key}", now=NOW, policy=policy, groups=table, **more)
    assert found is not None
    return found


def test_a_pod_of_eight_gpus_is_told_whose_end_helps_and_what_leftovers_are_worth():
    # Six GPUs are free on b and four on a. Only b's job is small enough to matter alone.
    bound = [held("x", "a", 0, 1, 2, 3, job="team/large"), held("y", "b", 0, 1, job="team/x")]

    slow = {NETWORK_LABEL: "10"}
    found = why("big", [dgx("a", **slow), dgx("b", **slow)], [pod("big", 8)], bound=bound)

    assert found.reason == "NoRoom"
    assert found.message == "needs 8 simulated nvidia.com/gpu on one node; best node b has 6 free"
    assert [fix.kind for fix in found.fixes] == ["ends", "split"]
    assert found.fixes[0].text == "when job team/x ends"
    assert found.fixes[1].text.startswith("as 2+6 over a, b at 0.")
    assert 0 < (found.fixes[1].speed or 0) < 1
    assert found.fix.startswith("fits when job team/x ends, or as 2+6 over a, b at 0.")


def test_where_room_is_kept_for_another_it_says_until_when_and_for_whom():
    # Eight GPUs are held until 12:30, and it is 12:00; `head` wants all 16.
    bound = [held("x", "a", *range(8), started="2026-01-01T11:30:00Z", limit_s=3600, priority=9)]
    waiting = [*members("head", 2, gpus=8), *members("long", 4)]
    groups = [group("head", 2, priority=9), group("long", 4)]

    found = why("long", [dgx("a"), dgx("b")], waiting, *groups, bound=bound)

    assert (found.reason, found.may_start) == ("Reserved", None)
    assert found.fix == (
        "fits if it ends by 12:30:00 UTC (activeDeadlineSeconds of at most 1800), "
        "or once team/head has started"
    )
    groups[1] = group("long", 4, limit_s=1800)
    assert why("long", [dgx("a"), dgx("b")], waiting, *groups, bound=bound).reason == "Fits"


def test_idle_pods_are_named_beside_several_jobs():
    bound = [
        held("done", "a", 0, 1, job="team/done"),
        held("x", "a", 2, 3, 4, 5, 6, 7, job="team/x"),
        held("y", "b", *range(8), job="team/y"),
    ]
    found = why(
        "g", [dgx("a"), dgx("b")], members("g", 2, gpus=8), group("g", 2), bound=bound, over={"team/done"}
    )

    assert found.fixes[0].text == (
        "when jobs team/x and team/y end, and the idle pod of finished job team/done goes: "
        "set its cleanPodPolicy: Running, or delete it"
    )


def test_a_closed_node_that_would_help_is_named_with_what_opens_it():
    full = held("x", "a", *range(8), job="team/x")
    away = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
    cordoned = msgspec.structs.replace(dgx("b"), unschedulable=True)
    gone = msgspec.structs.replace(dgx("c"), taints=(away,))
    sick = dgx("d", unhealthy=[3, 6])
    sick = msgspec.structs.replace(sick, allocatable=sick.allocatable | {"nvidia.com/gpu": 6})
    one, two = pod("big", 8), members("two", 2, gpus=8)

    def opened(nodes: list[NodeView], waiting: list[PodView], key: str, *groups: Group) -> list[str]:
        found = why(key, nodes, waiting, *groups, bound=[full])
        return [fix.text for fix in found.fixes if fix.kind == "node"]

    assert opened([dgx("a"), cordoned], [one], "big") == ["when node b is uncordoned"]
    assert opened([dgx("a"), gone], [one], "big") == ["when node c is ready again"]
    assert opened([dgx("a"), sick], [one], "big") == ["when GPUs 3, 6 of node d are healthy again"]
    assert opened([cordoned], [one], "big") == ["when node b is uncordoned"]
    assert opened([dgx("a"), cordoned, gone], two, "two", group("two", 2)) == [
        "when node b is uncordoned and node c is ready again"
    ]
    assert opened([dgx("a"), cordoned], two, "two", group("two", 2)) == []


def test_left_over_gpus_need_their_share_of_everything_else_too():
    # a has four GPUs left, and 5 of 80 cpus: not enough for half of a pod of 60.
    bound = [
        held("x", "a", 0, 1, 2, 3, job="t/x"),
        held("y", "b", 0, 1, 2, 3, job="t/y"),
        pod("c", 0, node_name="a", request={"cpu": 71_000}),
    ]

    found = why("big", [dgx("a"), dgx("b")], [pod("big", 8, request={"cpu": 60_000})], bound=bound)

    assert "split" not in [fix.kind for fix in found.fixes]


def test_left_over_gpus_of_one_rack_come_before_those_of_two():
    nodes = [dgx(name, rack=name[0]) for name in ("a1", "b1", "b2")]
    bound = [
        held("x", "a1", *range(2), job="t/x"),
        *(held(f"y{name}", name, *range(4), job="t/y") for name in ("b1", "b2")),
    ]

    found = why("big", nodes, [pod("big", 8)], bound=bound, policy=Policy(levels=("rack",)))

    assert next(fix.text for fix in found.fixes if fix.kind == "split").startswith("as 4+4 over b1, b2")


def test_left_over_gpus_that_are_only_counted_are_told_without_a_speed():
    nodes = [msgspec.structs.replace(dgx(name), gpus=None) for name in "ab"]
    bound = [pod(f"x{name}", 4, node_name=name, job=f"t/x{name}") for name in "ab"]

    found = why("big", nodes, [pod("big", 8)], bound=bound)

    assert found.fix == "fits when job t/xa ends, or as 4+4 over a, b (their links are not known)"


def test_the_end_of_a_job_with_a_limit_has_a_time():
    bound = [
        held("x", "a", *range(4), started="2026-01-01T11:00:00Z", limit_s=7200),
        held("y", "a", *range(4, 8)),
    ]

    found = why("g", [dgx("a")], members("g", 4), group("g", 4), bound=bound)

    assert found.may_start == datetime(2026, 1, 1, 13, 0, tzinfo=UTC)
    assert found.fix == "fits when pod team/x ends (by 13:00:00 UTC at the latest)"


def test_several_jobs_that_must_end_are_named():
    bound = [held("x", "a", *range(4), job="t/x"), held("y", "a", *range(4, 8), job="t/y")]

    found = why("g", [dgx("a")], members("g", 8), group("g", 8), bound=bound)

    assert found.fix == "fits when jobs t/x and t/y end"


def test_some_of_a_gang_that_fit_are_offered():
    bound = [held("x", "a", 0, 1, job="t/x")]

    found = why("g", [dgx("a")], members("g", 8, replica_type="worker"), group("g", 8), bound=bound)

    assert (
        found.fix == "fits when job t/x ends, or with 6 workers instead of 8, which changes the global batch"
    )


def test_one_of_a_gang_that_fits_is_offered_in_the_singular():
    bound = [held("x", "a", *range(7), job="t/x")]

    found = why("g", [dgx("a")], members("g", 2, replica_type="worker"), group("g", 2), bound=bound)

    assert (
        found.fix == "fits when job t/x ends, or with 1 worker instead of 2, which changes the global batch"
    )


def test_what_never_fits_is_said_to():
    found = why("g", [dgx("a")], members("g", 9), group("g", 9))

    assert found.fix == (
        "even with nothing else running there is room for 8 of its 9 pods; fits with 8 pods instead of 9"
    )


def test_a_gang_that_insists_on_one_rack_hears_what_two_racks_are_worth():
    nodes = [dgx("a", rack="1"), dgx("b", rack="2")]
    bound = [held("x", "a", *range(4), job="t/x"), held("y", "b", *range(4), job="t/y")]
    policy = Policy(levels=("rack",))
    workload = Workload(levels=(Level("rack", 32.0),))

    found = why(
        "g",
        nodes,
        members("g", 8),
        group("g", 8, required_level="rack"),
        bound=bound,
        policy=policy,
        workload=workload,
    )

    assert found.fixes[0].kind == "level"
    assert found.fixes[0].text.startswith("if it need not lie within one rack at 0.")
    assert found.fixes[1].text == "when job t/x ends"


def test_idle_workers_of_a_finished_job_are_told_from_a_running_one():
    bound = [held(f"x-{gpu}", "a", gpu, job="t/x", gang="x") for gpu in range(8)]

    found = why("g", [dgx("a")], members("g", 4), group("g", 4), bound=bound, over=["t/x"])

    assert found.fixes[0].kind == "idle"
    assert found.fix == (
        "fits when the 8 idle pods of finished job t/x go: set its cleanPodPolicy: Running, or delete it"
    )


def test_pods_of_a_finished_job_that_are_ending_need_nothing_done():
    bound = [msgspec.structs.replace(held("x", "a", *range(8), job="t/x"), is_ending=True)]

    found = why("g", [dgx("a")], members("g", 4), group("g", 4), bound=bound, over=["t/x"])

    assert found.fix == "fits when the idle pod of finished job t/x, now ending, goes"


def test_a_running_job_and_a_finished_one_that_are_both_in_the_way_are_both_named():
    bound = [held("x", "a", *range(4), job="t/x"), held("y", "a", *range(4, 8), job="t/y")]

    found = why("g", [dgx("a")], members("g", 8), group("g", 8), bound=bound, over=["t/y"])

    assert found.fix == (
        "fits when job t/x ends, and the idle pod of finished job t/y goes: set its cleanPodPolicy: Running, "
        "or delete it"
    )


def test_a_label_that_must_be_equal_counts_though_it_is_no_level_and_one_that_no_node_has_is_named():
    nodes = [dgx("a", rack="1"), dgx("b", rack="1"), dgx("c", rack="2")]

    assert why("g", nodes, members("g", 12), group("g", 12, required_level="rack")).reason == "Fits"

    found = why("g", nodes, members("g", 20), group("g", 20, required_level="rack"))
    assert found.message == "must lie within one rack; needs room for 20 pods, best is 1 with room for 16"

    found = why("g", nodes, members("g", 12), group("g", 12, required_level="block"))
    assert found.message == "must lie within one block, and no node has that label"
    assert found.fixes[0].text.startswith("if it need not lie within one block")


def test_a_quota_is_explained_by_what_has_to_come_back():
    policy = Policy(queues={"q": Queue(name="q", capability={"nvidia.com/gpu": 6})})

    found = why(
        "g",
        [dgx("a")],
        members("g", 4),
        group("g", 4, queue="q"),
        bound=[held("x", "a", *range(4), queue="q")],
        policy=policy,
    )

    assert (found.reason, found.queue, found.position) == ("Quota", "q", 1)
    assert found.fix == "waits until other jobs of queue q give back 2 simulated nvidia.com/gpu"


def test_the_place_in_the_queue_counts_those_before():
    bound = [held("x", "a", *range(8))]
    waiting = [*members("late", 8, created="2026-01-01T11:59:30Z"), *members("early", 8)]

    found = why(
        "late",
        [dgx("a")],
        waiting,
        group("late", 8, created="2026-01-01T11:59:30Z"),
        group("early", 8),
        bound=bound,
    )

    assert (found.position, found.waiting) == (2, 2)


def test_what_fits_is_said_to_fit_and_what_does_not_wait_has_no_answer():
    assert why("g", [dgx("a")], members("g", 8), group("g", 8)).reason == "Fits"
    assert explain(Snapshot(nodes=(dgx("a"),)), [], "team/g", now=NOW) is None


@pytest.mark.parametrize("gpus", [(0, 1, 4, 5), (0, 1, 2, 3)])
def test_a_placement_is_shown_beside_the_best_and_the_naive(gpus: tuple[int, ...]):
    pods = [held(f"g-{gpu}", "a", gpu, gang="g") for gpu in gpus]
    table = NodeTable.of([dgx("a"), dgx("b")], pods)

    found = compare(table, Allocations(pods, {"team/g": group("g", 4)}), pods, Workload())

    assert found.chosen and found.best and found.naive
    assert sorted(found.chosen.nodes[0][1]) == list(gpus)
    assert found.best.prediction.all_reduce.bus_gb_s == pytest.approx(80.0)  # three rings of NVLink
    assert found.naive.nodes == (("a", (0, 1, 2, 3)),) or sorted(found.naive.nodes[0][1]) == [0, 1, 2, 3]
    assert found.best.step_s <= found.chosen.step_s
    is_quad = gpus == (0, 1, 2, 3)
    assert (found.chosen.prediction.all_reduce.bus_gb_s == pytest.approx(80.0)) is is_quad


def test_the_network_of_a_label_counts():
    pods = [held("g-0", "a", *range(8), gang="g"), held("g-1", "b", *range(8), gang="g")]
    steps = []
    for rate in ("10", "200"):
        nodes = [dgx("a", **{NETWORK_LABEL: rate}), dgx("b", **{NETWORK_LABEL: rate})]
        chosen = compare(NodeTable.of(nodes, pods), Allocations(pods), pods, Workload()).chosen
        assert chosen is not None
        steps.append(chosen.step_s)

    assert steps[0] > steps[1]


def test_a_label_that_no_node_carries_is_named():
    waiting = [pod("g", 1, node_selector={"ack.node.gpu.schedule": "topology", "zone": "z"})]

    found = why("g", [dgx("a", zone="z")], waiting)

    assert found.reason == "NoNode"
    assert found.fix == "fits when a node gets the label ack.node.gpu.schedule=topology"


def test_only_those_are_named_that_must_end():
    """Two nodes of one rack are wanted; the job on the other rack, which is found first, may go on."""
    nodes = [dgx("a", rack="1"), dgx("b", rack="2"), dgx("c", rack="2")]
    places = {"x": "a", "y": "b", "z": "c"}
    bound = [held(f"{name}-0", on, *range(8), job=f"team/{name}") for name, on in places.items()]
    gang = group("g", 2, required_level="rack")

    found = why("g", nodes, members("g", 2, 8), gang, bound=bound, policy=Policy(levels=("rack",)))

    assert [fix.text for fix in found.fixes if fix.kind == "ends"] == ["when jobs team/y and team/z end"]


def test_who_holds_the_room_is_told_with_priority_and_age_and_who_may_pass_until_when():
    bound = [held("x", "a", *range(8), gang="x", priority=3, started="2026-01-01T11:00:00Z")]

    found = why("big", [dgx("a")], [pod("big", 8)], bound=bound)

    assert found.blockers == (Blocker("team/x", is_running=True, priority=3, since="2026-01-01T11:00:00Z"),)
    # It came at 11:59 and asks for 8 devices, each of which moves the bound by 12 minutes.
    assert found.may_pass == (
        "all that fit, until 2026-01-01T13:35:00Z; then room is kept for it before others of its priority"
    )


def test_for_whom_room_is_kept_is_told_with_priority_and_age_and_who_passes_whom():
    bound = [held("x", "a", *range(8), started="2026-01-01T11:30:00Z", limit_s=3600, priority=9)]
    waiting = [*members("head", 2, gpus=8), *members("long", 4)]
    groups = [group("head", 2, priority=9), group("long", 4)]

    behind = why("long", [dgx("a"), dgx("b")], waiting, *groups, bound=bound)
    head = why("head", [dgx("a"), dgx("b")], waiting, *groups, bound=bound)

    assert behind.blockers == (
        Blocker("team/head", is_running=False, priority=9, since="2026-01-01T11:59:00Z"),
    )
    assert head.may_pass == "those that end by 2026-01-01T12:30:00Z, and those that use other room"


def test_a_gang_that_is_overdue_says_whose_nodes_nobody_else_gets():
    bound = [held("x", "a", *range(8), started="2026-01-01T11:30:00Z")]

    late = group("late", 8, created="2026-01-01T10:00:00Z")
    found = why("late", [dgx("a")], members("late", 8), late, bound=bound)

    assert found.may_pass == "those that use other room than that of a, which is kept for it"


def test_the_first_of_a_strict_queue_is_who_others_of_it_wait_for():
    policy = Policy(queues={"q": Queue(name="q", is_strict=True)})
    bound = [held("x", "a", *range(8), priority=9)]
    groups = [group("one", 8, queue="q", priority=2), group("two", 1, queue="q")]

    found = why(
        "two", [dgx("a")], [*members("one", 8), *members("two", 1)], *groups, bound=bound, policy=policy
    )

    assert found.reason == "Behind"
    assert [(one.key, one.priority) for one in found.blockers] == [("team/one", 2)]
