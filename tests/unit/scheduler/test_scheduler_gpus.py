"""GPUs in the scheduler's shell: the taint of nodes, annotations, unhealthy ones, advice in messages."""

import json
from typing import Any

import msgspec
import pytest
from gang_scenes import NOW, dgx, group, held, members

from gangline.api.core import Node, Pod
from gangline.placement.allocations import Allocations
from gangline.placement.cycle import SchedulingCycle
from gangline.placement.decisions import Binding, Decisions
from gangline.placement.gangs import Gang
from gangline.placement.node_table import NodeTable
from gangline.placement.policy import Policy
from gangline.placement.snapshot import NodeView, unknown_mode
from gangline.scheduler.binder import gpu_annotations
from gangline.scheduler.explained.advice import Advice
from gangline.scheduler.node_taints import unknown_topology, wanted_taints
from gangline.scheduler.state import SchedulerState
from gangline.topology.known import known_machine

OURS = {"key": "gangline.dev/gpu-schedule", "value": "topology", "effect": "NoSchedule"}
OTHER = {"key": "example.com/dedicated", "value": "team", "effect": "NoSchedule"}


def node(label: str = "", *taints: dict[str, str], unhealthy: tuple[int, ...] = ()) -> Node:
    note = known_machine("v100-dgx1").annotation([f"a-{index}" for index in range(8)], unhealthy=unhealthy)
    metadata: dict[str, Any] = {
        "name": "a",
        "labels": {"ack.node.gpu.schedule": label} if label else {},
        "annotations": {"gangline.dev/gpu-topology": json.dumps(note)},
    }
    return msgspec.convert({"metadata": metadata, "spec": {"taints": list(taints)}}, Node)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (node(), None),
        (node("default"), None),
        (node("topology"), [OURS]),
        (node("topology", OTHER), [OTHER, OURS]),
        (node("topology", OURS), None),
        (node("default", OURS, OTHER), [OTHER]),
        (node("", OURS), []),
    ],
)
def test_the_taint_follows_the_label(found, wanted):
    assert wanted_taints(found) == wanted


def test_a_binding_tells_the_node_agent_uuids_and_arena_indices():
    binding = Binding("team/g-0", "g-0", "a", (("w", ("a-3", "a-0")),), (3, 0), (0, 1, 2, 3))

    assert gpu_annotations(binding) == {
        "gangline.dev/gpus": '{"w": ["a-3", "a-0"]}',
        "topology.kubernetes.io/gpu-group": "3,0",
        "topology.kubernetes.io/gpu-visible": "0,1,2,3",
    }


def test_the_pods_of_a_gang_see_the_gpus_of_all_on_their_node():
    table = {"team/g": group("g", 4)}
    gangs = [Gang("team/g", members("g", 4), table["team/g"])]
    bindings = (
        SchedulingCycle(NodeTable.of([dgx("a")]), Allocations(groups=table), Policy(), now=NOW)
        .run(gangs)
        .bindings
    )

    assert {binding.visible for binding in bindings} == {(0, 1, 2, 3)}
    assert sorted(index for binding in bindings for index in binding.indices) == [0, 1, 2, 3]


def bound(name: str, *gpus: int, gang: str = "g") -> Pod:
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "labels": {"scheduling.x-k8s.io/pod-group": gang} if gang else {},
        "annotations": {"gangline.dev/gpus": json.dumps({"w": [f"a-{gpu}" for gpu in gpus]})},
    }
    spec = {"nodeName": "a", "containers": [{"name": "w"}]}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}, Pod)


def test_pods_that_hold_an_unhealthy_gpu_are_named_and_no_others():
    state = SchedulerState(("gangline-scheduler",))
    state.take_node(None, node(unhealthy=(2,)))
    for pod in (bound("g-0", 0), bound("g-1", 2), bound("h-0", 3, gang="h")):
        state.take_pod(None, pod)

    assert [(pod.key, index) for pod, index in state.on_unhealthy_gpus("a")] == [("team/g-1", 2)]
    state.take_node(node(unhealthy=(2,)), node())
    assert state.on_unhealthy_gpus("a") == []


def test_a_node_without_a_readable_annotation_cannot_have_its_gpus_chosen_by_links():
    bare = node("topology")
    bare.metadata.annotations.clear()
    broken = node("topology")
    broken.metadata.annotations["gangline.dev/gpu-topology"] = "{"

    assert unknown_topology(node("topology")) == unknown_topology(node()) == ""
    assert unknown_topology(bare) == (
        "labelled ack.node.gpu.schedule=topology, but it has no annotation gangline.dev/gpu-topology: "
        "its own device plugin goes on choosing GPUs"
    )
    assert "its own device plugin goes on choosing GPUs" in unknown_topology(broken)


def test_a_mode_that_is_not_known_counts_as_the_default_and_says_so():
    assert unknown_mode({}) == unknown_mode(node("topology").metadata.labels) == ""
    assert unknown_mode(node("default").metadata.labels) == ""
    assert unknown_mode(node("weird").metadata.labels) == (
        "ack.node.gpu.schedule=weird is not known and counts as default: use topology or default"
    )
    assert not NodeView.from_node(node("weird")).by_wires


def decided(advice: Advice, taken: int, job: str) -> Decisions:
    pods = [held("x", "a", *range(taken), job=job)]
    groups = {"team/g": group("g", 8)}
    table, allocations = NodeTable.of([dgx("a")], pods), Allocations(pods, groups)
    gangs = [Gang("team/g", members("g", 8), groups["team/g"])]
    return advice.added(
        SchedulingCycle(table, allocations, Policy(), now=NOW).run(gangs), gangs, table, allocations
    )


def test_a_reason_carries_what_would_help_in_the_groups_and_the_pods_message():
    decisions = decided(Advice(), 2, "t/x")

    message = (
        "needs room for 8 pods of 1 simulated nvidia.com/gpu at once; there is room for 6; "
        "fits when job t/x ends, or with 6 pods instead of 8"
    )
    assert [wait.message for wait in decisions.waits] == [message]
    assert {entry.message for entry in decisions.unschedulable} == {f"gang team/g waits: {message}"}


def test_a_message_changes_only_with_its_reason():
    advice = Advice()
    first, second = decided(advice, 2, "t/x"), decided(advice, 2, "t/y")
    third = decided(advice, 3, "t/y")

    assert first.waits == second.waits
    assert "fits when job t/y ends" in third.waits[0].message
