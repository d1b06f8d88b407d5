"""Rings and chains: counts and rates that follow from the published link graphs and NCCL's rates."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import inf

import pytest

from gangline.topology.known import known_machine
from gangline.topology.link_resources import mask_of
from gangline.topology.machine import machine_from_matrix
from gangline.topology.rings import best_chain, best_rings, bus_gb_s, pair_matrix, rank_order

DGX1 = known_machine("v100-dgx1")
V100_NVLINK_GB_S = 20.0


@pytest.mark.parametrize(
    ("size", "want"),
    [(3, 8), (4, 8), (5, 24), (6, 28), (7, 8), (8, 1)],
)
def test_sets_of_a_dgx1_that_have_a_ring_of_nvlinks_alone(size: int, want: int) -> None:
    masks = [mask_of(gpus) for gpus in combinations(range(8), size)]

    assert sum(best_rings(DGX1, mask).nvlink for mask in masks) == want


def test_pairs_of_a_dgx1_by_nvlinks() -> None:
    rates = Counter(best_rings(DGX1, mask_of(pair)).gb_s for pair in combinations(range(8), 2))

    assert rates[1 * V100_NVLINK_GB_S] == 8
    assert rates[2 * V100_NVLINK_GB_S] == 8
    assert sum(count for rate, count in rates.items() if rate < V100_NVLINK_GB_S) == 12


def test_all_six_links_of_every_gpu_of_a_dgx1_are_used_by_three_double_rings() -> None:
    rings = best_rings(DGX1, DGX1.everything)

    assert len(rings.orders) == 3
    assert rings.gb_s == 6 * V100_NVLINK_GB_S
    used = Counter(
        (min(pair), max(pair))
        for order in rings.orders
        for pair in zip(order, order[1:] + order[:1], strict=True)
    )
    assert all(count <= DGX1.widths[a][b] for (a, b), count in used.items())


def test_the_two_best_quads_of_a_dgx1_are_those_with_nine_links() -> None:
    by_rate = sorted(
        ((bus_gb_s(DGX1, mask_of(quad)), quad) for quad in combinations(range(8), 4)), reverse=True
    )

    assert [quad for _, quad in by_rate[:2]] == [(4, 5, 6, 7), (0, 1, 2, 3)]
    assert by_rate[0][0] == by_rate[1][0] == 4 * V100_NVLINK_GB_S
    assert by_rate[2][0] < by_rate[1][0]


def test_behind_an_nvswitch_all_sets_are_equal() -> None:
    machine = known_machine("v100-dgx2")

    assert {best_rings(machine, mask_of(s)).gb_s for s in ([0, 1], [0, 15], range(7), range(16))} == {120.0}


def test_one_gpu_needs_no_wire() -> None:
    assert best_rings(DGX1, 0b100).gb_s == inf
    assert best_chain(DGX1, 0b100).gb_s == inf
    assert bus_gb_s(DGX1, 0b100) == inf


def test_a_ring_over_two_sockets_shares_the_link_between_them() -> None:
    """Two hops cross, each direction of a 10 GB/s link; through an Intel CPU 6/5 of the bytes count."""
    machine = known_machine("t4-x4")
    rings = best_rings(machine, machine.everything)

    assert rings.gb_s == pytest.approx(10.0 / 1.2)
    assert rings.bottleneck == "CPU link between NUMA 0 and 1"
    assert best_rings(machine, 0b0011).gb_s == pytest.approx(12.0 / 1.2)


def test_gpus_behind_one_switch_share_its_way_to_the_cpu() -> None:
    """Four hops out of two switches: a slot carries a near and a far hop, a switch two far ones."""
    links = (
        ("X", "PIX", "NODE", "NODE"),
        ("PIX", "X", "NODE", "NODE"),
        ("NODE", "NODE", "X", "PIX"),
        ("NODE", "NODE", "PIX", "X"),
    )
    machine = machine_from_matrix("Tesla T4", links)

    assert best_rings(machine, 0b1111).gb_s == pytest.approx(2 * 12 / 2.4)
    assert set(best_rings(machine, 0b1111).orders[0][:2]) in ({0, 1}, {2, 3})


def test_nvlink_bridges_lie_on_the_ring() -> None:
    """Pairs of A100 with a bridge of 12 links, three GPUs: nccl-tests issue 178 measured 208 and 20 GB/s."""
    row = {(0, 1): "NV12", (2, 3): "NV12"}
    links = tuple(
        tuple("X" if a == b else row.get((min(a, b), max(a, b)), "NODE") for b in range(4)) for a in range(4)
    )
    machine = machine_from_matrix("NVIDIA A100 80GB PCIe", links)

    assert best_rings(machine, 0b0011).gb_s == pytest.approx(208, rel=0.16)
    assert best_rings(machine, 0b0111).gb_s == pytest.approx(20, rel=0.01)
    assert best_rings(machine, 0b1111).orders[0] in ((0, 1, 2, 3), (0, 1, 3, 2))


def test_more_than_eight_gpus_without_nvlinks_go_round_in_the_order_of_their_switches() -> None:
    links = tuple(
        tuple("X" if a == b else "PIX" if a % 2 == b % 2 else "SYS" for b in range(10)) for a in range(10)
    )
    machine = machine_from_matrix("Tesla T4", links)

    assert best_rings(machine, machine.everything).orders == ((0, 2, 4, 6, 8, 1, 3, 5, 7, 9),)


def test_rates_of_pairs() -> None:
    matrix = pair_matrix(DGX1)

    assert matrix[0][:5] == [0.0, 20.0, 20.0, 40.0, 40.0]
    assert all(matrix[a][b] == matrix[b][a] for a in range(8) for b in range(8))


def test_a_mesh_that_no_machine_has_does_not_hold_anybody_up() -> None:
    """Its GPUs have links for four rings, but no four fit; to be sure of that takes minutes."""

    def width(a: int, b: int) -> int:
        return 3 if a == 0 and b < 4 else 2 if b == 7 else 1

    links = tuple(
        tuple("X" if a == b else f"NV{width(min(a, b), max(a, b))}" for b in range(8)) for a in range(8)
    )
    machine = machine_from_matrix("NVIDIA H100 80GB HBM3", links)

    assert len(best_rings(machine, machine.everything).orders) == 3


def test_ranks_follow_the_chain_where_it_is_faster_than_any_ring() -> None:
    """0-3 and 2-3 are double links of a DGX-1, 0-2 is a single one."""
    assert rank_order(DGX1, 0b1101)[1] == 3
    assert rank_order(DGX1, 0b1111) == best_rings(DGX1, 0b1111).orders[0]
