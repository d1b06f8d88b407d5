"""Gangs whose pods are being created: no pass for each pod, and no word of it for a moment."""

from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.placement import Binding, Group
from gangline.scheduler.gang_times import FORMING_MAX_S, FORMING_S, Forming
from gangline.scheduler.state import SchedulerState

NAMES = ("gangline-scheduler",)
GROUP = "scheduling.x-k8s.io/pod-group"


def member(name: str, gang: str = "g", **spec: Any) -> Pod:
    metadata = {"name": name, "namespace": "team", "uid": name, "labels": {GROUP: gang}}
    body = {"metadata": metadata, "spec": {"schedulerName": NAMES[0], **spec}, "status": {"phase": "Pending"}}
    return msgspec.convert(body, Pod)


def state_with(least: int) -> SchedulerState:
    state = SchedulerState(NAMES)
    state.take_group("team/g", Group(key="team/g", min_member=least))
    return state


def test_of_the_pods_of_a_gang_the_last_makes_a_pass_due():
    state = state_with(3)

    assert [state.take_pod(None, member(name)) for name in "abc"] == [False, False, True]
    assert state.growing == {"team/g"}
    assert state.take_pod(None, member("d"))  # more than must start together


def test_pods_make_no_pass_due_before_their_group_is_there():
    state = SchedulerState(NAMES)

    assert not state.take_pod(None, member("a"))
    assert state.growing == {"team/g"}
    assert state.take_group("team/g", Group(key="team/g", min_member=1))


def test_a_pod_with_a_gate_completes_no_gang():
    state = state_with(2)
    gated = member("b", schedulingGates=[{"name": "hold"}])
    state.take_pod(None, member("a"))

    assert not state.take_pod(None, gated)
    assert state.take_pod(gated, member("b"))


def test_pods_that_hold_room_count():
    state = state_with(2)
    state.take_pod(None, member("a"))
    state.take_pod(None, member("b"))
    state.assume(Binding("team/a", "a", "node"))
    state.assume(Binding("team/b", "b", "node"))
    state.take_pod(member("b"), None)

    assert state.take_pod(None, member("made-anew"))


def test_a_pod_that_goes_is_counted_no_more():
    state = state_with(2)
    state.take_pod(None, member("a"))
    state.take_pod(member("a"), None)

    assert not state.take_pod(None, member("b"))


@pytest.mark.parametrize(
    ("grown_s", "until_s"),
    [
        ([0.0], FORMING_S),
        ([0.0, 1.5, 3.0], 3.0 + FORMING_S),
        ([float(second) for second in range(100)], FORMING_MAX_S),
    ],
    ids=["after its only pod", "after its last pod", "at most so long"],
)
def test_a_gang_is_forming_while_its_pods_come(grown_s: list[float], until_s: float):
    forming = Forming()
    for now_s in grown_s:
        forming.grow(["team/g"], now_s)

    assert forming.among(["team/g"], until_s - 0.1) == {"team/g"}
    assert forming.next_s(until_s - 0.1) == until_s
    assert forming.among(["team/g"], until_s) == set()
    assert forming.next_s(until_s) is None


def test_a_gang_that_loses_a_pod_is_forming_from_then_on():
    forming = Forming()
    assert forming.among(["team/g"], 50.0) == {"team/g"}
    assert forming.among([], 51.0) == set()
    assert forming.among(["team/g"], 50.0 + FORMING_S) == {"team/g"}  # it was complete meanwhile
