"""Who goes first, who may pass, who gives way."""

from datetime import timedelta

from gang_scenes import EARLIER, NOW, decide, dgx, gpus_of, group, held, members, pod, reasons

from gangline.placement.allocations import Allocations
from gangline.placement.cycle import SchedulingCycle
from gangline.placement.groups.collect import collect_gangs
from gangline.placement.node_table import NodeTable
from gangline.placement.policy import Policy, Queue
from gangline.placement.snapshot import PodView

A, B = dgx("a"), dgx("b")
GPU = "nvidia.com/gpu"
LONG_AGO = "2026-01-01T10:00:00Z"


def test_higher_priority_goes_first_then_age():
    gangs = [*members("low", 8), *members("high", 8)]

    assert reasons(decide([A], gangs, group("low", 8, priority=1), group("high", 8, priority=9))) == {
        "low": "NoRoom"
    }
    young = group("high", 8, created="2026-01-01T11:59:30Z")
    assert reasons(decide([A], gangs, group("low", 8), young)) == {"high": "NoRoom"}


def test_a_gang_that_has_waited_too_long_goes_before_those_of_its_priority_alone():
    queues = {name: Queue(name=name, deserved={GPU: 16}) for name in ("one", "other")}
    gangs = [*members("old", 8), *members("new", 8), *members("high", 8)]
    busy = members("x", 4, 1, queue="one", node_name="b", gpu_uuids=("b-0",))
    old, new = group("old", 8, created=LONG_AGO, queue="one"), group("new", 8, queue="other")
    high = group("high", 8, priority=9, queue="one")

    def first(*groups, overdue_after_s):
        policy = Policy(overdue_after_s=overdue_after_s, queues=queues)
        names = {found.key.removeprefix("team/") for found in groups}
        pods = [one for one in gangs if one.gang.removeprefix("team/") in names]
        return names - reasons(decide([A], pods, *groups, bound=busy, policy=policy)).keys()

    assert first(old, new, overdue_after_s=3600) == {"old"}
    assert first(old, new, overdue_after_s=86_400) == {"new"}  # its queue has less of its share
    assert first(old, high, overdue_after_s=3600) == {"high"}


def test_a_gang_of_higher_priority_takes_from_one_that_was_overdue_when_it_started():
    old = [
        held(f"old-{index}", "a", index, gang="old", created=LONG_AGO, started=EARLIER) for index in range(8)
    ]
    groups = group("old", 8, created=LONG_AGO), group("high", 8, priority=9)

    found = decide([A], members("high", 8), *groups, bound=old, policy=Policy(overdue_after_s=60))

    assert [eviction.gang for eviction in found.evictions] == ["team/old"]


def test_those_give_way_that_lose_least_work_since_their_last_checkpoint():
    def running(name, node, saved="", **more):
        ids = range(8) if "small" not in name else range(int(name[-1]) * 4, int(name[-1]) * 4 + 4)
        started = more.get("started", LONG_AGO)
        return [held(f"{name}-{i}", node, i, gang=name, saved=saved, started=started) for i in ids]

    def victims(*bound):
        names = {one.gang.removeprefix("team/") for one in bound}
        groups = [group(name, 4 if "small" in name else 8) for name in names]
        high = group("high", 8, priority=9)
        found = decide([A, B], members("high", 8), high, *groups, bound=bound)
        return sorted(eviction.gang.removeprefix("team/") for eviction in found.evictions)

    large, saved = running("large", "a"), running("large", "a", saved=EARLIER)
    two = [*running("small-0", "b", started=EARLIER), *running("small-1", "b", started=EARLIER)]
    old_two = [*running("small-0", "b"), *running("small-1", "b", started="2026-01-01T11:00:00Z")]

    assert victims(*large, *two) == ["small-0", "small-1"]  # two gangs, of a minute each
    assert victims(*saved, *old_two) == ["large"]
    assert victims(*large, *old_two) == ["small-0", "small-1"]


def test_a_queue_keeps_to_its_capability():
    policy = Policy(queues={"team-a": Queue(name="team-a", capability={"nvidia.com/gpu": 6})})
    gangs = [*members("one", 4), *members("two", 4), *members("free", 4)]
    groups = [group("one", 4, queue="team-a"), group("two", 4, queue="team-a"), group("free", 4)]

    decisions = decide([A], gangs, *groups, policy=policy)
    assert reasons(decisions) == {"two": "Quota"}
    assert decisions.waits[0].message == (
        "queue team-a may use 6 nvidia.com/gpu, has 4 in use and the gang asks for 4"
    )


def test_a_queue_within_what_it_deserves_goes_before_one_that_borrows():
    queues = {name: Queue(name=name, deserved={"nvidia.com/gpu": 4}) for name in ("mine", "theirs")}
    bound = [held("x", "a", 0, 1, 2, 3, queue="mine", priority=9)]
    gangs = [*members("more", 4), *members("first", 4)]
    groups = [group("more", 4, queue="mine", priority=5), group("first", 4, queue="theirs")]

    decisions = decide([A], gangs, *groups, bound=bound, policy=Policy(queues=queues))
    assert reasons(decisions) == {"more": "NoRoom"}
    # Nobody else waits: what is not used may be borrowed.
    assert (
        reasons(decide([A], members("more", 4), groups[0], bound=bound, policy=Policy(queues=queues))) == {}
    )


def test_what_is_guaranteed_to_a_queue_nobody_else_uses():
    policy = Policy(queues={"vip": Queue(name="vip", guarantee={"nvidia.com/gpu": 4})})

    assert reasons(decide([A], members("g", 6), group("g", 6), policy=policy)) == {"g": "Quota"}
    assert reasons(decide([A], members("g", 4), group("g", 4), policy=policy)) == {}
    assert reasons(decide([A], members("g", 6), group("g", 6, queue="vip"), policy=policy)) == {}


def test_nothing_passes_the_first_gang_of_a_strict_queue():
    policy = Policy(queues={"q": Queue(name="q", is_strict=True)})
    gangs = [*members("big", 16), *members("small", 1)]
    groups = [group("big", 16, queue="q", priority=1), group("small", 1, queue="q")]

    assert reasons(decide([A], gangs, *groups, policy=policy)) == {"big": "NoRoom", "small": "Behind"}
    assert [wait.position for wait in decide([A], gangs, *groups, policy=policy).waits] == [1, 2]
    assert reasons(decide([A], gangs, *groups)) == {"big": "NoRoom"}


RUNNING = held("x", "a", 0, 1, 2, 3, started="2026-01-01T11:30:00Z", limit_s=3600, priority=9)
"""Four GPUs of a until 12:30; it is 12:00."""


def test_a_gang_may_pass_if_it_ends_before_the_first_one_can_start():
    big, short, long = members("big", 8), members("short", 4), members("long", 4)
    groups = [
        group("big", 8, priority=9),
        group("short", 4, limit_s=1200),
        group("long", 4, limit_s=7200),
    ]

    decisions = decide([A], [*big, *short, *long], *groups, bound=[RUNNING])
    assert decisions.reserved_for == "team/big"
    assert gpus_of(decisions).keys() == {"a"}
    assert {binding.pod[:10] for binding in decisions.bindings} == {"team/short"}
    assert reasons(decisions) == {"big": "NoRoom", "long": "Reserved"}

    assert reasons(decide([A], [*big, *long], *groups, bound=[RUNNING])) == {
        "big": "NoRoom",
        "long": "Reserved",
    }


def test_a_gang_may_run_beside_the_reservation():
    # b has four GPUs that the gang of twelve will not need.
    groups = [group("big", 12, priority=9), group("long", 4)]
    bound = [RUNNING]

    decisions = decide([A, B], [*members("big", 12), *members("long", 4)], *groups, bound=bound)
    assert decisions.bindings  # twelve fit now: 4 + 8
    groups = [group("big", 14, priority=9), group("long", 2), group("longer", 4)]
    decisions = decide(
        [A, B], [*members("big", 14), *members("long", 2), *members("longer", 4)], *groups, bound=bound
    )
    assert reasons(decisions) == {"big": "NoRoom", "longer": "Reserved"}
    assert len(decisions.bindings) == 2


def test_room_is_kept_from_the_moment_when_one_rack_holds_all_however_much_is_free_before():
    nodes = [dgx(name, rack=name[0]) for name in ("a1", "a2", "b1", "b2")] + [dgx("no-rack")]
    ends = {"a1": 10, "b1": 20, "a2": 30, "b2": 40}  # minutes after 12:00
    bound = [
        held(f"on-{node}", node, *range(8), started="2026-01-01T12:00:00Z", limit_s=60 * minutes)
        for node, minutes in ends.items()
    ]
    gang = collect_gangs(
        members("big", 16), {"team/big": group("big", 16, required_level="rack")}, placed=lambda key: 0
    )

    cycle = SchedulingCycle(
        NodeTable.of(nodes, bound, ("rack",)), Allocations(bound), Policy(levels=("rack",)), now=NOW
    )
    cycle.run(gang)

    assert cycle.reservation is not None
    assert cycle.reservation.at == NOW + timedelta(minutes=30)


def test_while_nobody_knows_an_end_others_pass_until_the_gang_is_overdue():
    endless = held("x", "a", 0, 1, 2, 3)
    gangs = [*members("big", 8), *members("small", 4)]
    groups = [group("big", 8, created=LONG_AGO), group("small", 4)]

    assert reasons(decide([A], gangs, *groups, bound=[endless], policy=Policy(overdue_after_s=1e9))) == {
        "big": "NoRoom"
    }
    decisions = decide([A], gangs, *groups, bound=[endless], policy=Policy(overdue_after_s=60))
    assert reasons(decisions) == {"big": "NoRoom", "small": "Reserved"}


def test_lower_priorities_give_way_as_whole_gangs_and_no_more_than_needed():
    bound = [
        held("one", "a", 0, 1, 2, 3, gang="one", priority=1),
        held("two", "a", 4, 5, 6, 7, gang="two", priority=2),
        held("three", "b", 0, 1, 2, 3, 4, 5, 6, 7, gang="three", priority=1),
    ]
    decisions = decide([A, B], members("vip", 4), group("vip", 4, priority=9), bound=bound)

    assert [(entry.gang, entry.beneficiary) for entry in decisions.evictions] == [("team/one", "team/vip")]
    assert reasons(decisions) == {"vip": "Preempting"}
    assert decisions.bindings == ()


def test_of_equal_priorities_the_fewest_gangs_give_way_then_those_that_lose_least():
    single = [held(f"single-{gpu}", "a", gpu, priority=1) for gpu in (4, 5, 6, 7)]
    quad = held("quad", "a", 0, 1, 2, 3, priority=1)
    vip = members("vip", 4), group("vip", 4, priority=9)

    def victims(*bound: PodView) -> list[str]:
        return [entry.gang for entry in decide([A], *vip, bound=bound).evictions]

    assert victims(quad, *single) == ["team/quad"]
    # A lower priority counts more than their number.
    assert victims(held("quad", "a", 0, 1, 2, 3, priority=2), *single) == [pod.key for pod in single]
    # Of two that are enough alone the younger one has less to lose.
    old = held("old", "a", 0, 1, 2, 3, priority=1, started="2026-01-01T10:00:00Z")
    young = held("young", "a", 4, 5, 6, 7, priority=1, started="2026-01-01T11:00:00Z")
    assert victims(old, young) == ["team/young"]
    pairs = [held(f"pair-{gpu}", "a", gpu, gpu + 1, priority=1) for gpu in (0, 2)]
    assert len(victims(*pairs, *single)) == 2


def test_nobody_gives_way_to_a_gang_whose_preemption_policy_is_never():
    bound = [held("low", "a", 0, 1, 2, 3, 4, 5, 6, 7, gang="low", priority=0)]
    shy = members("vip", 4, may_preempt=False)
    by_pods = decide([A], shy, group("vip", 4, priority=9), bound=bound)
    by_class = decide([A], members("vip", 4), group("vip", 4, priority=9, may_preempt=False), bound=bound)
    single = decide([A], [pod("p", 2, priority=9, may_preempt=False)], bound=bound)

    assert [one.evictions for one in (by_pods, by_class, single)] == [(), (), ()]
    assert reasons(by_pods) == {"vip": "NoRoom"}
    for one in (by_pods, by_class):
        assert one.waits[0].message.endswith("; preemption: not eligible due to preemptionPolicy=Never")
    # kube-scheduler's words
    assert single.unschedulable[0].message == (
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. "
        "preemption: not eligible due to preemptionPolicy=Never."
    )
    # The class of the PodGroup decides, as it does about the priority; and nothing is said without victims.
    assert decide([A], shy, group("vip", 4, priority=9, may_preempt=True), bound=bound).evictions
    assert "preemption" not in decide([A], shy, group("vip", 4), bound=bound).waits[0].message


def test_nobody_gives_way_when_that_would_not_help():
    bound = [held("low", "a", 0, 1, priority=0), held("high", "a", 2, 3, 4, 5, 6, 7, priority=9)]
    decisions = decide([A], members("vip", 4), group("vip", 4, priority=5), bound=bound)

    assert decisions.evictions == ()
    assert decide([A], members("vip", 4), group("vip", 4, priority=0), bound=bound).evictions == ()


def test_room_made_by_eviction_is_kept_for_the_gang_that_asked():
    bound = [held("low", "a", 0, 1, 2, 3, 4, 5, 6, 7, gang="low", priority=0)]
    decisions = decide(
        [A, B],
        [*members("vip", 16), *members("thief", 8)],
        group("vip", 16, priority=9),
        group("thief", 8, priority=1),
        bound=bound,
    )

    assert [entry.gang for entry in decisions.evictions] == ["team/low"]
    assert reasons(decisions) == {"vip": "Preempting", "thief": "Reserved"}


def test_a_pod_of_no_gang_keeps_the_words_of_kubernetes():
    decisions = decide([A], [pod("p", 9)])

    assert [entry.message for entry in decisions.unschedulable] == [
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    ]
