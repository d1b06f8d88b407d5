"""What makes pods a gang, and nodes racks, in words of others: arena, scheduler-plugins, Volcano, Kueue."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gangline.api.core import Node, Pod
from gangline.api.pod_group import PodGroup, PriorityClass
from gangline.placement.cycle import SchedulingCycle
from gangline.placement.decisions import Decisions
from gangline.placement.gangs import Gang
from gangline.placement.groups.read_groups import read_group
from gangline.placement.policy import Policy
from gangline.placement.snapshot import NodeView
from gangline.scheduler.state import SchedulerState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RACK = "example.com/rack"


def pod(name: str, *, cpu: str = "1", policy: str = "", **metadata: Any) -> Pod:
    meta = {"name": name, "namespace": "team", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    container = {"name": "w", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": "gangline-scheduler", "containers": [container], "preemptionPolicy": policy}
    return msgspec.convert({"metadata": meta | metadata, "spec": spec}, Pod)


def node(name: str, cpu: str = "4", **labels: str) -> Node:
    ready = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": {"cpu": cpu, "pods": "100"}, "conditions": ready}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": status}, Node)


def state_of(*objects: Node | Pod, levels: tuple[str, ...] = (RACK,)) -> SchedulerState:
    state = SchedulerState(("gangline-scheduler",), levels)
    for one in objects:
        if isinstance(one, Node):
            state.take_node(None, one)
        else:
            state.take_pod(None, one)
    return state


def only(state: SchedulerState) -> Gang:
    [gang] = state.gangs()
    return gang


def decide(state: SchedulerState) -> Decisions:
    return SchedulingCycle(state.table(), state.allocations, Policy(levels=(RACK,)), now=NOW).run(
        state.gangs()
    )


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"gpu-topology": "g", "gpu-topology-replica": "3"}},
        {
            "labels": {
                "pod-group.scheduling.sigs.k8s.io/name": "g",
                "pod-group.scheduling.sigs.k8s.io/min-available": "3",
            }
        },
    ],
    ids=["gpu-topology", "pod-group"],
)
def test_arenas_labels_make_a_gang_with_its_size_and_no_object(metadata: dict[str, Any]) -> None:
    state = state_of(node("a"), *(pod(f"g-{index}", **metadata) for index in range(2)))
    gang = only(state)
    assert (gang.key, gang.is_known, gang.needed, len(gang.pods)) == ("team/g", True, 3, 2)
    assert decide(state).bindings == ()

    state.take_pod(None, pod("g-2", **metadata))
    assert len(decide(state).bindings) == 3


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
        {"annotations": {"scheduling.k8s.io/group-name": "g"}},
        {"annotations": {"scheduling.volcano.sh/group-name": "g"}},
    ],
    ids=["scheduler-plugins", "volcano", "volcano-new"],
)
def test_a_pod_that_names_a_pod_group_waits_until_the_group_says_how_many(metadata: dict[str, Any]) -> None:
    state = state_of(pod("g-0", **metadata))
    assert not only(state).is_known

    group = PodGroup(
        metadata=pod("g").metadata, spec={"minMember": 2, "queue": "q", "priorityClassName": "high"}
    )
    state.take_group("team/g", read_group(group, {"high": PriorityClass(value=7)}))
    gang = only(state)
    assert (gang.is_known, gang.needed, gang.group.queue, gang.priority) == (True, 2, "q", 7)


def test_who_makes_others_give_way_is_read_from_the_pod_and_from_the_class_of_its_pod_group() -> None:
    state = state_of(pod("p", policy="Never"), pod("q", policy="PreemptLowerPriority"))
    assert [gang.may_preempt for gang in state.gangs()] == [False, True]

    classes = {"shy": PriorityClass(value=7, preemption_policy="Never"), "bold": PriorityClass(value=7)}
    spec = [{"priorityClassName": name} for name in ("shy", "bold", "nowhere")]
    groups = [PodGroup(metadata=pod("g").metadata, spec=one) for one in (*spec, {})]
    assert [read_group(group, classes).may_preempt for group in groups] == [False, True, True, None]


def test_a_pod_group_without_a_field_for_its_queue_names_it_in_an_annotation() -> None:
    meta = msgspec.structs.replace(pod("g").metadata, annotations={"scheduling.volcano.sh/queue-name": "q"})

    assert read_group(PodGroup(metadata=meta, spec={"minMember": 2}), {}).queue == "q"


@pytest.mark.parametrize("key", ["gangline.dev/required-topology", "kueue.x-k8s.io/podset-required-topology"])
def test_a_pod_group_may_require_a_level_in_our_words_or_kueues(key: str) -> None:
    metadata = msgspec.structs.replace(pod("g").metadata, annotations={key: RACK})
    assert read_group(PodGroup(metadata=metadata), {}).required_level == RACK


def test_how_long_a_job_may_run_is_read_from_its_pod_group() -> None:
    for text, seconds in (("600", 600.0), ("soon", None)):
        notes = {"gangline.dev/limit-seconds": text}
        metadata = msgspec.structs.replace(pod("g").metadata, annotations=notes)
        assert read_group(PodGroup(metadata=metadata), {}).limit_s == seconds


def gang_in_racks(key: str) -> list[Pod]:
    labels = {"gpu-topology": "g", "gpu-topology-replica": "4"}
    return [pod(f"g-{index}", cpu="2", labels=labels, annotations={key: RACK}) for index in range(4)]


def test_kueues_required_level_holds_and_a_rack_counts_from_the_moment_it_is_labelled() -> None:
    pods = gang_in_racks("kueue.x-k8s.io/podset-required-topology")
    state = state_of(node("a", **{RACK: "r1"}), node("b", **{RACK: "r2"}), node("c"), *pods)
    [wait] = decide(state).waits
    assert wait.message == f"must lie within one {RACK}; needs room for 4 pods, best is r1 with room for 2"

    state.take_node(node("c"), node("c", **{RACK: "r2"}))
    assert {binding.node for binding in decide(state).bindings} == {"b", "c"}


def test_kueues_preferred_level_needs_no_saying_and_keeps_nobody_waiting() -> None:
    pods = gang_in_racks("kueue.x-k8s.io/podset-preferred-topology")
    state = state_of(node("a", **{RACK: "r1"}), node("b", **{RACK: "r2"}), *pods)
    assert {binding.node for binding in decide(state).bindings} == {"a", "b"}


def test_a_gang_that_requires_one_host_gets_one_or_waits() -> None:
    host = "kubernetes.io/hostname"
    labels = {"gpu-topology": "g", "gpu-topology-replica": "4"}
    notes = {"kueue.x-k8s.io/podset-required-topology": host}
    pods = [pod(f"g-{index}", cpu="2", labels=labels, annotations=notes) for index in range(4)]
    small = [node(name, **{host: name}) for name in "ab"]
    assert decide(state_of(*small, *pods)).bindings == ()
    found = decide(state_of(*small, node("c", cpu="8", **{host: "c"}), *pods))
    assert [binding.node for binding in found.bindings] == ["c"] * 4


@pytest.mark.parametrize(("value", "by_wires"), [("topology", True), ("default", False), ("share", False)])
def test_the_label_of_a_node_says_whether_links_count(value: str, by_wires: bool) -> None:
    assert NodeView.from_node(node("a", **{"ack.node.gpu.schedule": value})).by_wires is by_wires
    assert not NodeView.from_node(node("a")).by_wires
