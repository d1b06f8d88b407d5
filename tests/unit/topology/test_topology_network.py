"""Racks and blocks from ordered node labels; rates of network cards."""

from __future__ import annotations

import pytest

from gangline.errors import UserError
from gangline.topology.machine import machine_from_matrix
from gangline.topology.network import Level, NetworkDomains, on_network, parse_levels

LEVELS = (Level("block", 3.0), Level("rack", 2.0))


def node(name: str, **labels: str) -> tuple[str, dict[str, str]]:
    return name, labels


NETWORK = NetworkDomains.from_labels(
    [
        node("a", block="b1", rack="r1"),
        node("b", block="b1", rack="r1"),
        node("c", block="b1", rack="r2"),
        node("d", block="b2", rack="r1"),
        node("e", block="b2"),
        node("f", block="b2"),
    ],
    LEVELS,
)


def test_domains_are_known_by_the_whole_path() -> None:
    assert NETWORK.domains == (("b1", "b2"), ("b1/r1", "b1/r2", "b2/?e", "b2/?f", "b2/r1"))
    assert NETWORK.ids == ((0, 0), (0, 0), (0, 1), (1, 4), (1, 2), (1, 3))


@pytest.mark.parametrize(
    ("nodes", "shared", "oversubscription"),
    [([0], 2, 1.0), ([0, 1], 2, 1.0), ([0, 1, 2], 1, 2.0), ([0, 3], 0, 3.0), ([4, 5], 1, 2.0)],
)
def test_the_network_between_nodes(nodes: list[int], shared: int, oversubscription: float) -> None:
    assert NETWORK.shared_levels(nodes) == shared
    assert NETWORK.oversubscription(nodes) == oversubscription


def test_without_levels_all_nodes_are_alike() -> None:
    flat = NetworkDomains.from_labels([node("a"), node("b")], ())

    assert flat.ids == ((), ())
    assert flat.oversubscription([0, 1]) == 1.0


def test_levels_are_written_as_labels_with_a_factor() -> None:
    assert parse_levels("example.com/block:2.5, example.com/rack") == (
        Level("example.com/block", 2.5),
        Level("example.com/rack"),
    )
    assert parse_levels("") == ()


@pytest.mark.parametrize("text", ["rack:0.5", "rack:many", "rack:inf", "rack,rack"])
def test_wrong_levels_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="`rack`"):
        parse_levels(text)


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        ({}, 100.0),
        ({"node.kubernetes.io/instance-type": "p3.16xlarge"}, 25.0),
        ({"node.kubernetes.io/instance-type": "m5.large"}, 100.0),
        ({"node.kubernetes.io/instance-type": "p3.16xlarge", "gangline.dev/network-gbit-s": "50"}, 50.0),
        ({"gangline.dev/network-gbit-s": "fast"}, 100.0),
        ({"gangline.dev/network-gbit-s": "nan"}, 100.0),
    ],
)
def test_the_rate_of_a_nodes_network(labels: dict[str, str], want: float) -> None:
    assert on_network(machine_from_matrix("T4", (("X",),)), labels).network_gbit_s == want


def test_the_cards_come_with_the_instance_and_a_label_lifts_the_cap_on_connections() -> None:
    machine = machine_from_matrix("T4", (("X",),))
    instance = {"node.kubernetes.io/instance-type": "g4dn.12xlarge"}

    told = on_network(machine, {"node.kubernetes.io/instance-type": "p5.48xlarge"})

    assert (told.cards, told.flow_gbit_s) == (32, None)
    assert on_network(machine, instance).flow_gbit_s == 10
    assert on_network(machine, {"gangline.dev/network-cards": "8"}).cards == 8
    assert on_network(machine, {"gangline.dev/network-cards": "none"}).cards == 1
    assert on_network(machine, instance | {"gangline.dev/network-gbit-s": "40"}).flow_gbit_s is None
