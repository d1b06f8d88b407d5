"""Devices of every maker, and gangs without any: packed as those of NVIDIA's plugin are, models not mixed."""

import json

import msgspec
import pytest
from gang_scenes import decide, dgx, group, held, members, pod

from gangline.api.core import Node, ObjectMeta
from gangline.placement.policy import Policy
from gangline.placement.snapshot import MODE_LABEL, NodeView, PodView
from gangline.topology.known import known_machine
from gangline.workloads.gpu_source import SOURCE_LABEL

RACKS = Policy(levels=("rack",))
DEVICES = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "google.com/tpu",
    "habana.ai/gaudi",
    "nvidia.com/mig-1g.10gb",
    "nvidia.com/gpu.shared",
    "aws.amazon.com/neuron",
    "cpu",
)


def node(name: str, device: str, count: int, *, model: str = "", **labels: str) -> NodeView:
    """A node whose devices somebody else hands out."""
    told = {"nvidia.com/gpu.product": model} if model else {}
    scale = 1000 if device == "cpu" else 1
    return NodeView(
        name=name,
        labels=labels | told,
        allocatable={"cpu": 80_000, "memory": 1 << 40, "pods": 110} | {device: count * scale},
    )


def gang(name: str, count: int, device: str, each: int) -> list[PodView]:
    amount = {device: each * 1000 if device == "cpu" else each}
    return members(name, count, 0, request={"cpu": 10, "pods": 1} | amount)


def places(decisions, name: str = "g") -> list[str]:
    """Return the node of each rank."""
    found = sorted(decisions.bindings, key=lambda binding: int(binding.pod.rpartition("-")[2]))
    return [binding.node for binding in found if binding.pod.startswith(f"team/{name}-")]


@pytest.mark.parametrize("device", DEVICES)
def test_a_gang_lies_whole_on_the_node_that_holds_it(device):
    nodes = [node("a", device, 4, rack="1"), node("b", device, 8, rack="1"), node("c", device, 4, rack="2")]

    found = decide(nodes, gang("g", 4, device, 2), group("g", 4), policy=RACKS)

    assert places(found) == ["b"] * 4


@pytest.mark.parametrize("device", DEVICES)
def test_a_gang_takes_the_node_on_which_least_is_left_over(device):
    nodes = [node("a", device, 16), node("b", device, 8), node("c", device, 12)]

    assert places(decide(nodes, gang("g", 4, device, 2), group("g", 4))) == ["b"] * 4


@pytest.mark.parametrize("device", DEVICES)
def test_a_gang_stays_in_one_rack_on_the_fewest_nodes_with_its_ranks_in_order(device):
    nodes = [
        node("a", device, 7, rack="1"),
        node("b", device, 14, rack="2"),
        node("c", device, 28, rack="2"),
        node("d", device, 7, rack="2"),
        node("e", device, 14, rack="2"),
        node("f", device, 21, rack="3"),
        node("g", device, 21, rack="4"),
    ]

    found = decide(nodes, gang("g", 8, device, 7), group("g", 8), policy=RACKS)

    assert places(found) == ["b", "b", "c", "c", "c", "c", "e", "e"]


@pytest.mark.parametrize("device", DEVICES)
def test_a_pod_alone_is_packed_where_it_has_a_device_and_spread_where_it_has_none(device):
    nodes = [node("a", device, 16), node("b", device, 8)]
    one = pod("one", 0, request={"cpu": 10, "pods": 1} | {device: 4000 if device == "cpu" else 4})

    (binding,) = decide(nodes, [one]).bindings

    assert binding.node == ("a" if device == "cpu" else "b")


def test_a_gang_without_devices_leaves_nodes_that_have_some_to_others():
    nodes = [dgx("a"), node("b", "cpu", 80), node("c", "amd.com/gpu", 8)]

    assert places(decide(nodes, gang("g", 4, "cpu", 2), group("g", 4))) == ["b"] * 4
    assert places(decide([nodes[0], nodes[2]], gang("g", 4, "cpu", 2), group("g", 4))) == ["a"] * 4
    assert (
        places(decide(nodes, gang("g", 2, "cpu", 60), group("g", 2))) != ["b"] * 2
    )  # rather than not at all


def test_a_gang_does_not_mix_models_where_one_holds_it_even_on_more_nodes_or_racks():
    nodes = [
        node("a", "nvidia.com/gpu", 8, model="H100", rack="1"),
        node("b", "nvidia.com/gpu", 8, model="A100", rack="1"),
        node("c", "nvidia.com/gpu", 4, model="H100", rack="2"),
        node("d", "nvidia.com/gpu", 4, model="H100", rack="3"),
    ]

    found = decide(nodes, gang("g", 2, "nvidia.com/gpu", 8), group("g", 2), policy=RACKS)
    cut = decide(nodes, gang("g", 4, "nvidia.com/gpu", 4), group("g", 4), policy=RACKS)

    assert places(found) == ["a", "b"]  # it must: no model holds two pods of 8
    assert places(cut) == ["a", "a", "c", "d"]


def test_the_model_is_read_from_the_links_where_no_label_tells_it():
    nodes = [dgx("a"), dgx("b"), node("c", "nvidia.com/gpu", 8, model="H100")]

    found = decide(nodes, members("g", 8, 1), group("g", 8), bound=[held("x", "a", 0, 1, 2, 3)])
    two = decide(nodes, members("g", 2, 8), group("g", 2))

    assert len(set(places(found))) == 1
    assert places(two) == ["a", "b"]


def test_a_pod_that_joins_its_gang_later_gets_the_model_of_the_others_if_it_can():
    nodes = [node(name, "nvidia.com/gpu", 8, model=model) for name, model in (("a", "A100"), ("b", "H100"))]
    there = held("g-worker-0", "b", *range(4), gang="g")
    late = pod("g-worker-1", 4, gang="g")

    room = decide(nodes, [late], group("g", 2), bound=[there])
    full = decide(nodes, [late], group("g", 2), bound=[there, held("x", "b", 4, 5)])

    assert places(room) == ["b"]
    assert places(full) == ["a"]


@pytest.mark.parametrize(
    ("labels", "by_wires", "way"),
    [
        ({}, False, "lowest index first (the default where another device plugin hands them out)"),
        ({SOURCE_LABEL: "nvml"}, True, "by their links (the default where Gangline hands them out)"),
        ({MODE_LABEL: "topology"}, True, "by their links (label ack.node.gpu.schedule=topology)"),
        (
            {SOURCE_LABEL: "nvml", MODE_LABEL: "default"},
            False,
            "lowest index first (label ack.node.gpu.schedule=default)",
        ),
        (
            {SOURCE_LABEL: "simulated", MODE_LABEL: "topologie"},
            False,
            "lowest index first (label ack.node.gpu.schedule=topologie)",
        ),
    ],
)
def test_gpus_that_we_hand_out_are_chosen_by_their_links_unless_a_label_says_otherwise(labels, by_wires, way):
    note = json.dumps(known_machine("dgx1-v100").annotation([f"n-{index}" for index in range(8)]))
    metadata = ObjectMeta(name="n", labels=labels, annotations={"gangline.dev/gpu-topology": note})

    view = NodeView.from_node(Node(metadata=metadata))

    assert (view.by_wires, view.way) == (by_wires, way)


def test_further_shapes_of_a_gang_take_the_model_of_the_first():
    nodes = [
        node("a", "nvidia.com/gpu", 8, model="H100"),
        node("b", "nvidia.com/gpu", 2, model="A100"),
        node("c", "nvidia.com/gpu", 2, model="H100"),
    ]
    pods = [*gang("g", 1, "nvidia.com/gpu", 8), *gang("g-more", 1, "nvidia.com/gpu", 2)]
    pods = [msgspec.structs.replace(one, gang="team/g") for one in pods]

    found = decide(nodes, pods, group("g", 2))

    assert {binding.node for binding in found.bindings} == {"a", "c"}
