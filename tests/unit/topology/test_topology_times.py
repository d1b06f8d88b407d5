"""Time of an all-reduce and of a training step, against formulas of nccl-tests and hand calculations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gangline.topology.all_reduce_time import Part, all_reduce
from gangline.topology.known import known_machine
from gangline.topology.step_time import Training, compute_s_from_step, efficiency, predict, step_s

GB = 1e9
DGX1 = known_machine("v100-dgx1")
P3 = replace(known_machine("p3.16xlarge"), flow_gbit_s=None)  # as if one connection carried all


def test_a_large_all_reduce_in_one_node_takes_2_n_minus_1_over_n_bytes_at_the_ring_rate() -> None:
    found = all_reduce([Part(DGX1, 0b1111)], 8 * GB)

    assert found.algorithm == "ring"
    assert found.bus_gb_s == pytest.approx(80.0)
    assert found.seconds == pytest.approx(2 * 3 / 4 * 8 / 80, rel=0.001)


def test_a_small_all_reduce_costs_latency_only() -> None:
    """Eight GPUs over NVLink: base 6.6 us and 14 hops of 0.6 us by ring, 6.8 and 14 hops by chain."""
    found = all_reduce([Part(DGX1, 0b11111111)], 8)

    assert found.protocol == "LL"
    assert found.seconds == pytest.approx(15.0e-6, rel=0.01)


def test_one_gpu_reduces_nothing() -> None:
    assert all_reduce([Part(DGX1, 0b1)], GB).seconds == 0.0


def test_nodes_are_held_up_by_their_network_cards() -> None:
    """Two nodes of four GPUs at 25 Gbit/s: 2 x 7/8 of the bytes at 3.125 GB/s."""
    found = all_reduce([Part(P3, 0b1111)] * 2, GB, algorithms=["ring"])

    assert found.bottleneck == "network card"
    assert found.seconds == pytest.approx(2 * 7 / 8 / 3.125, rel=0.01)


def test_an_oversubscribed_network_is_slower_by_that_factor() -> None:
    once = all_reduce([Part(P3, 0b1111)] * 2, GB)
    thrice = all_reduce([Part(P3, 0b1111)] * 2, GB, oversubscription=3)

    assert thrice.seconds == pytest.approx(3 * once.seconds, rel=0.01)


def test_two_levels_add_up() -> None:
    """nccl-tests: 2(m-1)/m S/B inside, and 2(N-1)/N (S/m)/(NIC/m) between."""
    found = all_reduce([Part(P3, 0b1111)] * 4, GB, algorithms=["two-level"])

    assert found.seconds == pytest.approx(1.5 / 80 + 1.5 / 3.125, rel=0.01)


def test_trees_win_where_hops_are_many_and_bytes_few() -> None:
    """512 GPUs, 0.1 MB by LL128: 14 + 14 x 1.9 + 12 x 4.0 us, and 75.6 us at 3.125/2 x 0.92 x 0.92 GB/s."""
    parts = [Part(P3, 0b11111111)] * 64
    found = all_reduce(parts, 1e5)

    assert (found.algorithm, found.protocol) == ("tree", "LL128")
    assert found.seconds == pytest.approx(164.2e-6, rel=0.01)
    assert all_reduce(parts, 1e5, algorithms=["ring"]).seconds > 5 * found.seconds


def test_a_left_over_gpu_on_another_node_makes_the_network_the_bottleneck() -> None:
    together = all_reduce([Part(P3, 0b111)], GB)
    cut_off = all_reduce([Part(P3, 0b11), Part(P3, 0b1)], GB)

    assert cut_off.seconds > 5 * together.seconds
    assert cut_off.bottleneck == "network card"


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one GPU"):
        all_reduce([Part(P3, 0)], GB)
    with pytest.raises(ValueError, match="`star`"):
        all_reduce([Part(P3, 3)], GB, algorithms=["star"])


def test_a_step_hides_what_fits_under_the_backward_pass() -> None:
    training = Training(gradient_bytes=GB, compute_s=0.3, overlap=0.5)

    assert step_s(training, 0.1) == pytest.approx(0.3)
    assert step_s(training, 0.15) == pytest.approx(0.35)
    assert efficiency(training, 0.4) == pytest.approx(0.5)


@pytest.mark.parametrize("all_reduce_s", [0.0, 0.05, 0.2, 0.9])
@pytest.mark.parametrize("overlap", [0.0, 0.7, 1.0])
def test_compute_time_comes_back_from_a_step(all_reduce_s: float, overlap: float) -> None:
    training = Training(gradient_bytes=GB, compute_s=0.25, overlap=overlap)
    step = step_s(training, all_reduce_s)

    assert compute_s_from_step(step, all_reduce_s, overlap=overlap) == pytest.approx(0.25)


def test_a_prediction_tells_what_being_cut_off_costs() -> None:
    """0.5 s of computation, 1 GB: three V100 hide it; over two nodes it takes 427 ms and 167 hide."""
    training = Training(gradient_bytes=GB, compute_s=0.5, overlap=0.5)
    together = predict(training, [Part(P3, 0b1101)])
    cut_off = predict(training, [Part(P3, 0b1001), Part(P3, 0b1)])

    assert together.efficiency == 1.0
    assert cut_off.step_s == pytest.approx(0.5 + 4 / 3 / 3.125 - 0.5 * 0.5 * 2 / 3, rel=0.01)
    assert cut_off.hidden_step_s == pytest.approx(0.5 + 4 / 3 / 3.125 - 0.5 * 2 / 3, rel=0.01)


@pytest.mark.parametrize(("name", "measured"), [("h100", 480), ("h200", 475), ("b200", 830)])
def test_switches_that_add_up_are_faster_than_rings(name: str, measured: float) -> None:
    """nccl-tests 212, 272, nccl 1807: what eight GPUs reach, bus GB/s."""
    machine = known_machine(name)
    found = all_reduce([Part(machine, machine.everything)], 4 * GB)

    assert found.algorithm == "nvls"
    assert found.bus_gb_s == pytest.approx(measured, rel=0.05)
    assert all_reduce([Part(machine, 0b11)], 4 * GB).algorithm == "ring"  # 3/2 of the bytes against 1


def test_switches_before_hopper_only_switch() -> None:
    machine = known_machine("a100")

    assert all_reduce([Part(machine, machine.everything)], 4 * GB).algorithm != "nvls"


def test_two_nodes_gain_from_trees_only_where_switches_add_up() -> None:
    """nccl-tests 309 and 100: 470 GB/s over 8 x 400 Gbit/s, 91 over 4 x 200, of 400 and 100 on the cards."""
    hopper, ampere = known_machine("h100"), known_machine("a100")
    ampere = replace(ampere, network_gbit_s=800, cards=4)

    two, four = (all_reduce([Part(hopper, 255)] * nodes, 4 * GB).bus_gb_s for nodes in (2, 4))
    cards = all_reduce([Part(ampere, 255)] * 2, 4 * GB)

    assert two == pytest.approx(470, rel=0.05)
    assert four == pytest.approx(366, rel=0.05)  # nccl-tests 309
    assert (cards.bus_gb_s, cards.algorithm) == (pytest.approx(100), "ring")


def test_a_gpu_uses_the_cards_next_to_it() -> None:
    """nccl-tests 232: one H100 on each of two nodes with four cards of 400 Gbit/s reaches 50 GB/s."""
    node = replace(known_machine("h100"), network_gbit_s=1600, cards=4)

    rates = [
        all_reduce([Part(node, mask)] * 2, 4 * GB, algorithms=["ring"]).bus_gb_s for mask in (1, 3, 5, 255)
    ]

    assert rates == pytest.approx([50, 50, 100, 200])
    assert replace(node, cards=16).network_of([0]) == 200
    assert replace(node, cards=1).network_of([0]) == 1600


def test_nodes_of_one_clique_are_joined_by_their_nvlinks() -> None:
    """18 trays of a GB200 NVL72: 2 x 71/73 of 0.74 of the links (coreweave/nccl-tests 43 measured 847)."""
    tray = known_machine("gb200-nvl72")
    joined = all_reduce([Part(tray, 15, "rack")] * 18, 4 * GB)
    cut = all_reduce([Part(tray, 15, f"rack-{index % 2}") for index in range(4)], 4 * GB, algorithms=["ring"])
    alone = all_reduce([Part(tray, 15)] * 2, 4 * GB, algorithms=["ring"])

    assert joined.bus_gb_s == pytest.approx(2 * 71 / 73 * 0.74 * 18 * 40.1)
    assert joined.bottleneck == "18 x NVLink into the NVLink domain"
    assert cut.bus_gb_s == pytest.approx(400)  # two trays on each side have eight cards of 400 Gbit/s
    assert alone.bus_gb_s == pytest.approx(200)


def test_a_tcp_connection_is_capped() -> None:
    node = known_machine("g4dn.12xlarge")

    assert all_reduce([Part(node, 15)] * 2, GB).bus_gb_s == pytest.approx(10 / 8)
