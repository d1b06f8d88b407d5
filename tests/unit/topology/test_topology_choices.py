"""Which GPUs are taken, and what is left for others."""

from __future__ import annotations

import pytest

from gangline.topology.gpu_choices import choices
from gangline.topology.known import known_machine
from gangline.topology.link_resources import mask_of, members

DGX1 = choices(known_machine("v100-dgx1"))


def taken_in_turn(machine: str, counts: list[int]) -> list[tuple[int, ...]]:
    table = choices(known_machine(machine))
    free, taken = table.machine.everything, []
    for count in counts:
        mask = table.best(free, count)
        free &= ~mask
        taken.append(members(mask))
    return taken


def test_a_quad_of_a_dgx1_is_one_of_the_two_good_ones() -> None:
    assert members(DGX1.best(0b11111111, 4)) == (0, 1, 2, 3)
    assert members(DGX1.best(0b11111110, 4)) == (4, 5, 6, 7)


def test_pairs_of_a_dgx1_have_two_links_and_leave_a_quad() -> None:
    assert taken_in_turn("v100-dgx1", [2, 2, 4]) == [(0, 3), (1, 2), (4, 5, 6, 7)]


@pytest.mark.parametrize("machine", ["v100-dgx1", "p100-dgx1", "h100-hgx", "t4-x8", "v100-dgx2"])
def test_single_gpus_leave_the_largest_sets_whole(machine: str) -> None:
    singles = taken_in_turn(machine, [1, 1, 1, 1])

    numa = known_machine(machine).numa
    assert len({numa[gpu] for (gpu,) in singles}) == 1


def test_behind_an_nvswitch_sets_stay_on_one_numa_node() -> None:
    assert taken_in_turn("h100-hgx", [1, 4, 2]) == [(0,), (4, 5, 6, 7), (2, 3)]
    assert taken_in_turn("v100-dgx2", [1, 8, 2]) == [(0,), (8, 9, 10, 11, 12, 13, 14, 15), (2, 3)]
    assert taken_in_turn("v100-dgx2", [12]) == [(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)]


def test_more_than_there_are_is_no_choice() -> None:
    assert DGX1.best(0b111, 4) == 0
    assert DGX1.best(0, 1) == 0
    assert DGX1.lowest(0b111, 4) == 0


def test_the_stock_choice_is_the_lowest_indices() -> None:
    assert DGX1.lowest(0b10110100, 3) == mask_of([2, 4, 5])


def test_equal_machines_share_their_choices() -> None:
    assert choices(known_machine("dgx1")) is choices(known_machine("v100-dgx1"))


def test_the_table_of_a_size_answers_for_every_free_set() -> None:
    table = DGX1.best_of_all(2)

    assert len(table) == 256
    assert table[0b00000001] == 0
    assert table[0b11111111] == mask_of([0, 3])
    with pytest.raises(ValueError, match="16 GPUs"):
        choices(known_machine("v100-dgx2")).best_of_all(2)
