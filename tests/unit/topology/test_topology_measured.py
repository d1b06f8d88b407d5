"""What was measured takes the place of what is predicted; GPUs of a gang on several nodes sit on rails."""

from __future__ import annotations

import json

import pytest

from gangline.errors import UserError
from gangline.topology.all_reduce_time import Part
from gangline.topology.annotation import read_annotation
from gangline.topology.gpu_choices import choices
from gangline.topology.known import known_machine
from gangline.topology.link_resources import members
from gangline.topology.machine import Machine
from gangline.topology.measured import predicted_gb_s, read_rates, sets_to_measure, with_rates
from gangline.topology.network import with_cards

DGX1 = known_machine("v100-dgx1")
FOUR_BOXES = known_machine("a100-hgx")


def rates(*sets: tuple[tuple[int, ...], float, float], device: str = "NVIDIA A100", **more: object) -> str:
    entries = [{"gpus": gpus, "measured": found, "predicted": said} for gpus, found, said in sets]
    value = {"backend": "nccl", "device": device, "bytes": 1 << 28, "at": "2026-11-25T00:00:00Z"}
    return json.dumps(value | {"sets": entries} | more)


def measured(machine: Machine, *sets: tuple[tuple[int, ...], float, float], **more: object) -> Machine:
    return with_rates(machine, read_rates(rates(*sets, **more)), range(machine.count))


@pytest.mark.parametrize(("machine", "gpus"), [(DGX1, (0, 3)), (DGX1, (0, 1, 2, 3)), (FOUR_BOXES, (0, 1))])
def test_a_set_has_the_bandwidth_that_was_measured(machine, gpus):
    found = measured(machine, (gpus, 17.5, 40.0))

    assert predicted_gb_s([Part(found, sum(1 << gpu for gpu in gpus))]) == pytest.approx(17.5)


def test_reduction_in_the_switch_is_as_measured_too():
    found = measured(known_machine("h100"), (tuple(range(8)), 450.0, 490.3))

    assert predicted_gb_s([Part(found, 0xFF)]) == pytest.approx(450.0)


def test_a_set_that_was_not_measured_is_taken_as_those_of_its_kind():
    """GPUs 1 2 are joined as 0 3 are; of no kind that was measured are 0 1, which carry 20 at best."""
    found = measured(DGX1, ((0, 3), 20.0, 40.0), ((0, 2), 20.0, 20.0))

    assert choices(found).bus_gb_s(0b0110) == pytest.approx(20.0)
    assert choices(found).bus_gb_s(0b0011) == pytest.approx(20.0 * (0.5 + 1) / 2)


def test_a_second_node_gives_the_rate_of_the_network():
    network = {"nodes": ["a", "b"], "gpus": list(range(8)), "measured": 57.2, "predicted": 100.0}
    found = measured(FOUR_BOXES, network=network)
    part = Part(found, 0xFF)

    assert predicted_gb_s([part, part]) == pytest.approx(57.2, rel=1e-3)
    assert predicted_gb_s([Part(found, 1), Part(found, 1)]) == pytest.approx(57.2 / 8, rel=1e-3)


def test_one_set_of_each_kind_is_measured_unless_all_are_asked_for():
    assert len(sets_to_measure(DGX1, every=True)) == 247
    assert [members(mask) for mask in sets_to_measure(DGX1)[:3]] == [(0, 1), (0, 2), (0, 3)]
    assert len(sets_to_measure(known_machine("v100-dgx2"))) == 15


def annotation(machine: Machine) -> str:
    return json.dumps(machine.annotation([f"GPU-{index}" for index in range(machine.count)], source="nvml"))


def test_gpus_are_chosen_by_rates_that_contradict_the_model_and_were_measured_on_gpus():
    """The model takes 0 3; where 0 1 was measured to carry far more, it is taken."""
    slow = ((0, 3), 10.0, 40.0), ((0, 1), 19.0, 20.0)
    agreeing = ((0, 3), 38.0, 40.0), ((0, 1), 19.0, 20.0)
    text = annotation(DGX1)

    assert choices(read_annotation(text, rates=rates(*slow)).machine).best(0b1011, 2) == 0b0011
    assert read_annotation(text, rates=rates(*agreeing)).machine is DGX1
    assert read_annotation(text, rates=rates(*slow, device="cpu")).machine is DGX1


@pytest.mark.parametrize("text", ["{", rates(((0, 1), -3.0, 1.0)), rates(((), 3.0, 1.0))])
def test_rates_that_are_none_are_refused(text):
    with pytest.raises(UserError, match="annotation `gangline.dev/wire-rates` of node `a`"):
        read_rates(text, node="a")


def test_a_gang_on_several_nodes_sits_on_cards_of_its_own():
    """Of the four cards of a DGX-1 each is next to two GPUs: 0 and 1, 2 and 3, ..."""
    chosen = choices(DGX1).best_cut(0xFF, 4, 0xFF)

    assert DGX1.network_of(members(chosen)) == 400
    assert DGX1.network_of(members(choices(DGX1).best(0xFF, 4))) == 200


def test_every_node_takes_the_cards_that_are_free_on_all():
    table = choices(FOUR_BOXES)
    common = 0b11110110 & 0b11111100

    assert table.best_cut(0b11110110, 2, common) == table.best_cut(0b11111100, 2, common)
    assert table.best_cut(0b00000011, 2, 0b10) == 0b11


def test_a_machine_of_many_gpus_gives_one_of_each_card_first():
    assert members(choices(known_machine("v100-dgx2")).best_cut(0xFFFF, 8, 0xFFFF)) == tuple(range(0, 16, 2))


def test_cards_of_a_node_are_those_that_its_labels_tell():
    plain = FOUR_BOXES
    assert with_cards(plain, {}) is plain
    assert with_cards(plain, {"gangline.dev/network-cards": "4"}).cards == 4
    assert with_cards(plain, {"node.kubernetes.io/instance-type": "p5.48xlarge"}).cards == 32
