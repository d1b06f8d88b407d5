"""Known machines: links as in data sheets and published prints, names as users guess them."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from gangline.errors import UserError
from gangline.topology.known import aliases_of, known_machine, known_names, machine_of_links
from gangline.topology.machine import machine_from_matrix
from gangline.topology.rates import gpu_of
from gangline.topology.rings import best_rings

# Upper triangle of `nvidia-smi topo -m` on a DGX-1 with V100, rows 0 to 6.
DGX1_V100 = (
    ("NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS"),
    ("NV2", "NV1", "SYS", "NV2", "SYS", "SYS"),
    ("NV2", "SYS", "SYS", "NV1", "SYS"),
    ("SYS", "SYS", "SYS", "NV1"),
    ("NV1", "NV1", "NV2"),
    ("NV2", "NV1"),
    ("NV2",),
)


def test_dgx1_v100_has_the_published_matrix() -> None:
    machine = known_machine("v100-dgx1")

    assert tuple(row[index + 1 :] for index, row in enumerate(machine.links[:-1])) == DGX1_V100
    assert machine.numa == (0, 0, 0, 0, 1, 1, 1, 1)


@pytest.mark.parametrize("name", known_names())
def test_every_known_machine_is_sound(name: str) -> None:
    machine = known_machine(name)

    assert len(machine.numa) == len(machine.switches) == machine.count
    assert all(machine.links[a][b] == machine.links[b][a] for a in range(machine.count) for b in range(a))
    if not machine.nvswitch_links:
        assert all(sum(row) <= machine.gpu.nvlink_count for row in machine.widths)
    assert {known_machine(alias).model for alias in aliases_of(name)} <= {name}


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("p100-dgx1", {1: 16}),
        ("v100-dgx1", {1: 8, 2: 8}),
        ("v100-dgx2", {6: 120}),
        ("a100-hgx", {12: 28}),
        ("h100-hgx", {18: 28}),
        ("t4-x8", {}),
        ("workstation-4-nvlink", {2: 2}),
        ("p3.8xlarge", {1: 3, 2: 3}),
    ],
)
def test_pairs_with_nvlinks_by_width(name: str, want: dict[int, int]) -> None:
    widths = known_machine(name).widths
    found = Counter(widths[a][b] for a, b in combinations(range(len(widths)), 2))
    found.pop(0, None)

    assert found == want


@pytest.mark.parametrize(
    "name", ["v100-dgx1", "DGX-1V", "dgx1", "V100", "8xV100", "dgx1-v100", "NVIDIA DGX-1"]
)
def test_names_are_found_as_they_are_guessed(name: str) -> None:
    assert known_machine(name).model == "v100-dgx1"


def test_an_unknown_name_says_the_nearest() -> None:
    with pytest.raises(UserError) as caught:
        known_machine("v100-dgx3")

    assert "v100-dgx3" in caught.value.message
    assert "did you mean `v100-dgx" in caught.value.hint


def test_an_nvswitch_is_told_from_a_mesh() -> None:
    assert known_machine("h100").nvswitch_links == 18
    assert known_machine("v100-dgx2").nvswitch_links == 6
    assert known_machine("p3.8xlarge").nvswitch_links == 0
    assert known_machine("t4-x4").nvswitch_links == 0


def test_a_subset_is_a_smaller_machine() -> None:
    quad = known_machine("v100-dgx1").subset([0, 3, 4, 7])

    assert quad.links == (
        ("X", "NV2", "NV2", "SYS"),
        ("NV2", "X", "SYS", "NV1"),
        ("NV2", "SYS", "X", "NV2"),
        ("SYS", "NV1", "NV2", "X"),
    )
    assert quad.numa == (0, 0, 1, 1)
    with pytest.raises(UserError, match="no GPU 9"):
        known_machine("v100-dgx1").subset([0, 9])


def test_annotation_has_the_documented_shape() -> None:
    value = known_machine("workstation-2").annotation(["GPU-a", "GPU-b"], unhealthy=[1])

    assert value == {
        "model": "workstation-2",
        "source": "simulated",
        "gpus": [
            {"uuid": "GPU-a", "index": 0, "numa": 0, "healthy": True},
            {"uuid": "GPU-b", "index": 1, "numa": 0, "healthy": False},
        ],
        "links": [["X", "PHB"], ["PHB", "X"]],
    }


def test_annotation_refuses_a_wrong_number_of_uuids() -> None:
    with pytest.raises(ValueError, match="3 UUIDs for the 2 GPUs"):
        known_machine("workstation-2").annotation(["a", "b", "c"])


def test_a_matrix_finds_the_machine_that_knows_its_switches() -> None:
    machine = known_machine("v100-dgx1")

    assert machine_of_links("dgx1", machine.links) is machine
    assert machine_of_links("v100-dgx1", known_machine("t4-x8").links) is None
    assert machine_of_links("Tesla V100-SXM2-16GB", machine.links) is None


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("rtx4090-x2", "RTX 4090"),
        ("Tesla T4", "T4"),
        ("NVIDIA TITAN RTX", "unknown"),
    ],
)
def test_kind_of_gpu_by_product_name(product: str, kind: str) -> None:
    assert gpu_of(product).kind == kind


def test_of_eight_gpus_linked_each_to_each_larger_sets_have_more() -> None:
    """MI300X: seven links of 48 GB/s; n GPUs have (n-1)//2 rings that share no link, each used both ways."""
    machine = known_machine("mi300x")

    rates = [best_rings(machine, (1 << count) - 1).gb_s for count in range(3, 9)]

    assert rates == [48 * 2 * ((count - 1) // 2) for count in range(3, 9)]
    assert best_rings(machine, 0b11).bottleneck == "1 x xGMI 0-1"


def test_a_gpu_in_no_table_is_said_to_be_guessed() -> None:
    links = (("X", "NV4"), ("NV4", "X"))

    assert "`NVIDIA X1`" in machine_from_matrix("NVIDIA X1", links).guess
    assert machine_from_matrix("NVIDIA A40", links).guess == ""


@pytest.mark.parametrize(
    ("name", "rate"),
    # GB/s of all NVLinks of a GPU, one way, data sheets; at 0.8 of it at least NCCL counts.
    [("v100", 150), ("a100", 300), ("h100", 450), ("h200", 450), ("h20", 450), ("h800", 200), ("b200", 900),
     ("b300", 900), ("gb200", 900), ("gb300", 900), ("a800", 200)],
)  # fmt: skip
def test_what_all_nvlinks_of_a_gpu_carry(name: str, rate: float) -> None:
    gpu = known_machine(name).gpu

    assert 0.8 * rate <= gpu.nvlink_count * gpu.nvlink_gb_s <= 0.9 * rate


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        *((gpu, gpu) for gpu in ("GB200", "GB300", "B200", "B300", "H200", "H20", "H800", "GH200")),
        *((gpu, gpu) for gpu in ("L40S", "A10G", "A40", "RTX PRO 6000", "MI300X", "MI355X")),
        ("p5en.48xlarge", "H200"),
        ("p6-b200.48xlarge", "B200"),
        ("p6e-gb200.36xlarge", "GB200"),
        ("a3-highgpu-8g", "H100"),
        ("a4-highgpu-8g", "B200"),
        ("g5.48xlarge", "A10G"),
        ("g6.48xlarge", "L4"),
        ("Standard_ND96isr_H100_v5", "H100"),
        ("Standard_ND128isr_NDR_GB200_v6", "GB200"),
    ],
)
def test_machines_of_today_are_known_by_their_names(name, gpu):
    assert known_machine(name).gpu.kind == gpu


@pytest.mark.parametrize(
    ("name", "cards"),
    [("p5.48xlarge", 32), ("Standard_ND96isr_MI300X_v5", 8), ("a3-ultragpu-8g", 8), ("a4x-highgpu-4g", 4)],
)
def test_network_cards_are_those_that_the_makers_of_the_machines_name(name, cards):
    """The pages are named in the module's docstring."""
    assert known_machine(name).cards == cards


@pytest.mark.parametrize("name", ["Standard_ND96isr_MI300X_v5", "b200-hgx"])
def test_eight_cards_of_400_gbit_s_are_3200(name):
    assert known_machine(name).network_gbit_s == 8 * 400
