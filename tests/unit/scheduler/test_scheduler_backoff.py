"""Pauses of gangs that were taken back, and what is bound half."""

from typing import Any

import msgspec

from gangline.api.core import Pod
from gangline.placement.gangs import Group
from gangline.scheduler.gang_times import GangBackoff
from gangline.scheduler.state import SchedulerState

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"


def test_each_failure_doubles_the_pause_up_to_a_minute():
    pauses = GangBackoff()
    assert [pauses.fail("g", 0.0) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pauses.fail("other", 0.0) == 1


def test_a_gang_that_ran_for_two_minutes_begins_anew():
    pauses = GangBackoff()
    assert [pauses.fail("g", now_s) for now_s in (0.0, 10.0, 131.0, 260.0)] == [1, 2, 4, 1]


def pod(name: str, *, node: str = "", created: str = EARLY, bound: str = "", **meta: Any) -> Pod:
    labels = {"scheduling.x-k8s.io/pod-group": "g"}
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "labels": labels,
        "creationTimestamp": created,
    }
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}] if bound else []
    value = {
        "metadata": {**metadata, **meta},
        "spec": {"nodeName": node, "schedulerName": "gangline-scheduler", "containers": [{"name": "w"}]},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(value, Pod)


def state_of(*pods: Pod, size: int = 3) -> SchedulerState:
    state = SchedulerState(("gangline-scheduler",))
    state.take_group("team/g", Group(key="team/g", min_member=size))
    for one in pods:
        state.take_pod(None, one)
    return state


def half(state: SchedulerState) -> list[str]:
    [gang] = state.gangs()
    return sorted(pod.uid for pod in state.half_bound(gang))


def test_a_pod_that_was_there_when_the_others_were_bound_makes_them_a_half_gang():
    state = state_of(pod("0", node="a", bound=LATE), pod("1", node="a", bound=LATE), pod("2"))
    assert half(state) == ["0", "1"]


def test_a_pod_that_was_made_anew_beside_running_ones_does_not():
    state = state_of(pod("0", node="a", bound=EARLY), pod("1", node="a", bound=EARLY), pod("2", created=LATE))
    assert half(state) == []


def test_pods_beyond_those_that_must_start_together_may_wait_alone():
    state = state_of(pod("0", node="a", bound=LATE), pod("1", node="a", bound=LATE), pod("2"), size=2)
    assert half(state) == []


def test_pods_on_their_way_out_hold_room_and_are_no_part_of_the_gang_that_comes_anew():
    going = {"deletionTimestamp": LATE}
    state = state_of(pod("0", node="a", **going), pod("1", node="a", **going), pod("2", created=LATE))

    [gang] = state.gangs()
    assert (gang.placed, gang.needed) == (0, 3)
    assert len(state.allocations) == 2


def test_a_paused_gang_waits_with_the_pods_that_are_made_anew_for_it():
    state = state_of(pod("0"))
    state.pause("team/g")
    state.take_pod(None, pod("1"))
    assert state.gangs() == []

    state.resume("team/g")
    assert [len(gang.pods) for gang in state.gangs()] == [2]


def test_nodes_become_a_level_when_a_gang_requires_one_node():
    note = {"annotations": {"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"}}
    state = SchedulerState(("gangline-scheduler",), ("example.com/rack",))
    assert state.table().levels == ("example.com/rack",)
    state.take_pod(None, pod("0", **note))
    assert state.table().levels == ("example.com/rack", "kubernetes.io/hostname")


def test_a_level_that_pods_require_by_kueues_annotation_holds_for_their_gang():
    note = {"annotations": {"kueue.x-k8s.io/podset-required-topology": "example.com/rack"}}
    [gang] = state_of(pod("0", **note), pod("1", **note), pod("2", **note)).gangs()
    assert gang.group.required_level == "example.com/rack"


def test_the_level_of_the_pod_group_wins_over_that_of_its_pods():
    note = {"annotations": {"kueue.x-k8s.io/podset-required-topology": "example.com/rack"}}
    state = state_of(pod("0", **note))
    state.take_group("team/g", Group(key="team/g", required_level="example.com/block"))
    assert [gang.group.required_level for gang in state.gangs()] == ["example.com/block"]
