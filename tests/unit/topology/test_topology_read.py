"""Matrices read from a node: the annotation, prints of `nvidia-smi topo -m`, NVML's values."""

from __future__ import annotations

import json

import pytest

from gangline.errors import UserError
from gangline.topology.annotation import read_annotation
from gangline.topology.known import known_machine
from gangline.topology.links import legend
from gangline.topology.nvml import NvmlGpu, machine_of_nvml
from gangline.topology.smi import read_smi

DGX1_PRINT = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tmlx5_0\tmlx5_2\tmlx5_1\tmlx5_3\tCPU Affinity\x1b[0m
GPU0\t X \tNV1\tNV1\tNV2\tNV2\tSYS\tSYS\tSYS\tPIX\tSYS\tPHB\tSYS\t0-19,40-59
GPU1\tNV1\t X \tNV2\tNV1\tSYS\tNV2\tSYS\tSYS\tPIX\tSYS\tPHB\tSYS\t0-19,40-59
GPU2\tNV1\tNV2\t X \tNV2\tSYS\tSYS\tNV1\tSYS\tPHB\tSYS\tPIX\tSYS\t0-19,40-59
GPU3\tNV2\tNV1\tNV2\t X \tSYS\tSYS\tSYS\tNV1\tPHB\tSYS\tPIX\tSYS\t0-19,40-59
GPU4\tNV2\tSYS\tSYS\tSYS\t X \tNV1\tNV1\tNV2\tSYS\tPIX\tSYS\tPHB\t20-39,60-79
GPU5\tSYS\tNV2\tSYS\tSYS\tNV1\t X \tNV2\tNV1\tSYS\tPIX\tSYS\tPHB\t20-39,60-79
GPU6\tSYS\tSYS\tNV1\tSYS\tNV1\tNV2\t X \tNV2\tSYS\tPHB\tSYS\tPIX\t20-39,60-79
GPU7\tSYS\tSYS\tSYS\tNV1\tNV2\tNV1\tNV2\t X \tSYS\tPHB\tSYS\tPIX\t20-39,60-79
mlx5_0\tPIX\tPIX\tPHB\tPHB\tSYS\tSYS\tSYS\tSYS\t X \tSYS\tPHB\tSYS\t
mlx5_2\tSYS\tSYS\tSYS\tSYS\tPIX\tPIX\tPHB\tPHB\tSYS\t X \tSYS\tPHB\t
mlx5_1\tPHB\tPHB\tPIX\tPIX\tSYS\tSYS\tSYS\tSYS\tPHB\tSYS\t X \tSYS\t
mlx5_3\tSYS\tSYS\tSYS\tSYS\tPHB\tPHB\tPIX\tPIX\tSYS\tPHB\tSYS\t X \t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
"""

PCIE_PRINT = """\
        GPU0    GPU1    GPU2    GPU3    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      PIX     PXB     SOC     NODE    0-31,64-95      0               N/A
GPU1    PIX      X      PXB     SOC     NODE    0-31,64-95      0               N/A
GPU2    PXB     PXB      X      SOC     PHB     0-31,64-95      0               N/A
GPU3    SOC     SOC     SOC      X      SYS     32-63,96-127    1               N/A
NIC0    NODE    NODE    PHB     SYS      X

NIC Legend:

  NIC0: mlx5_0
"""


def test_a_print_of_a_dgx1_is_the_known_machine_with_its_switches() -> None:
    machine = read_smi(DGX1_PRINT, model="Tesla V100-SXM2-16GB")
    known = known_machine("v100-dgx1")

    assert machine.links == known.links
    assert machine.numa == known.numa
    assert machine.switches == known.switches
    assert machine.gpu is known.gpu


def test_a_print_of_a_pcie_box_has_old_names_and_numa_nodes() -> None:
    machine = read_smi(PCIE_PRINT, model="Tesla T4")

    assert machine.links[0] == ("X", "PIX", "PXB", "SYS")
    assert machine.numa == (0, 0, 0, 1)
    assert machine.switches == (0, 0, 0, 1)


@pytest.mark.parametrize(
    ("old", "new", "message", "where"),
    [
        ("GPU1    PIX      X      PXB", "GPU1    PIX      X      PXC", "`PXC`", ":3"),
        ("GPU2    PXB     PXB      X ", "GPU2    PXB     PXB     PIX", "must be X", ":4"),
        ("NIC0    NODE    NODE    PHB     SYS      X", "NIC0    NODE", "has 1 links", ":6"),
        (
            "GPU3    SOC     SOC     SOC      X      SYS     32-63,96-127    1               N/A",
            "",
            "GPU3",
            "",
        ),
        ("GPU0    GPU1    GPU2", "gpu0    gpu1    gpu2", "no header", ""),
        ("GPU3    SOC     SOC", "GPU3    SYS     PHB", "both must be the same", ""),
        ("NIC0    NODE", "NIC7    NODE", "has no column", ":6"),
    ],
)
def test_a_broken_print_is_refused_with_its_line(old: str, new: str, message: str, where: str) -> None:
    assert old in PCIE_PRINT
    with pytest.raises(UserError) as caught:
        read_smi(PCIE_PRINT.replace(old, new), model="Tesla T4", source="topo.txt")

    assert message in caught.value.message
    assert caught.value.where == (f"topo.txt{where}" if where else "")


def uuids(count: int) -> list[str]:
    return [f"GPU-{index}" for index in range(count)]


def test_the_annotation_comes_back_as_the_machine_that_wrote_it() -> None:
    machine = known_machine("v100-dgx1")
    read = read_annotation(json.dumps(machine.annotation(uuids(8), unhealthy=[2])))

    assert read.machine is machine
    assert read.healthy == 0b11111011
    assert read.source == "simulated"
    assert read.uuids_of(0b1001) == ("GPU-0", "GPU-3")
    assert read.mask_of(["GPU-3", "GPU-0", "GPU-elsewhere"]) == 0b1001


def test_the_first_gpus_of_a_known_machine_are_known_too() -> None:
    quad = known_machine("v100-dgx1").subset(range(4))
    read = read_annotation(json.dumps(quad.annotation(uuids(4))))

    assert read.machine == quad


def test_an_unknown_machine_is_read_from_its_matrix() -> None:
    value = {
        "model": "NVIDIA A100-SXM4-40GB",
        "source": "nvml",
        "gpus": [{"uuid": f"GPU-{i}", "index": i + 4, "numa": 1, "healthy": True} for i in range(3)],
        "links": [["X", "NV12", "NV12"], ["NV12", "X", "NV12"], ["NV12", "NV12", "X"]],
    }
    read = read_annotation(json.dumps(value), node="n3")

    assert read.machine.gpu.kind == "A100"
    assert read.machine.numa == (1, 1, 1)
    assert read.machine.nvswitch_links == 12
    assert read.indices == (4, 5, 6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"model": "x", "gpus": [{"uuid": 3}], "links": []}', "$.gpus[0].uuid"),
        ('{"model": "x", "gpus": [], "links": []}', "0 GPUs"),
        ('{"model": "x", "gpus": [{"uuid": "a", "index": 0}], "links": [["Y"]]}', "`Y`"),
        (
            '{"model": "x", "gpus": [{"uuid": "a", "index": 0}, {"uuid": "a", "index": 1}], '
            '"links": [["X", "PIX"], ["PIX", "X"]]}',
            "twice",
        ),
        (
            '{"model": "x", "gpus": [{"uuid": "a", "index": 0}, {"uuid": "b", "index": 1}], '
            '"links": [["X", "PIX"], ["PHB", "X"]]}',
            "both must be the same",
        ),
    ],
)
def test_a_broken_annotation_names_the_node_and_the_rule(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read_annotation(text, node="n3")

    assert "node `n3`" in caught.value.message
    assert message in caught.value.message


def test_nvml_counts_direct_links_and_links_into_a_switch() -> None:
    ids = [f"00000000:{n:02X}:00.0" for n in range(3)]
    short = [f"0000:{n:02x}:00.0" for n in range(3)]
    levels = [[0, 10, 50], [10, 0, 50], [50, 50, 0]]
    mesh = machine_of_nvml(
        [
            NvmlGpu("Tesla V100-SXM2-16GB", ids[0], (short[1], short[1], short[2])),
            NvmlGpu("Tesla V100-SXM2-16GB", ids[1], (short[0], short[0])),
            NvmlGpu("Tesla V100-SXM2-16GB", ids[2], (short[0],)),
        ],
        levels,
    )
    switched = machine_of_nvml(
        [NvmlGpu("NVIDIA H100 80GB HBM3", id_, ("0000:aa:00.0",) * 18, numa=1) for id_ in ids], levels
    )

    assert mesh.links == (("X", "NV2", "NV1"), ("NV2", "X", "SYS"), ("NV1", "SYS", "X"))
    assert mesh.switches == (0, 0, 1)
    assert mesh.numa == (0, 0, 1)
    assert switched.nvswitch_links == 18
    assert switched.numa == (1, 1, 1)


def test_nvml_with_an_unknown_level_is_refused() -> None:
    with pytest.raises(UserError, match="level between GPU 0 and 1 is 7"):
        machine_of_nvml([NvmlGpu("T4", "0:1"), NvmlGpu("T4", "0:2")], [[0, 7], [7, 0]])


def test_a_legend_says_what_the_names_in_a_matrix_mean_and_no_others():
    matrix = (("X", "NV2", "PHB"), ("NV2", "X", "NV1"), ("PHB", "NV1", "X"))

    assert legend(matrix) == "NV2, NV1: so many NVLinks; PHB: the PCIe host bridge of a CPU"
    assert legend((("X",),)) == ""
