"""Machines that people rent and buy, by the names that they guess.

Sources: DGX-1 and DGX-2 link graphs from the test fixtures of NVIDIA/go-gpuallocator and published prints
of ``nvidia-smi topo -m``; HGX boards, cloud instances, PCIe generations and network rates from data sheets.
Network cards were read again, in November 2026, for p5 (AWS, "Maximize network bandwidth on instances with
multiple network cards": 32), ND MI300X v5 (Azure: 8 x 400 Gbit/s), a3-ultragpu-8g (Google's cluster toolkit
1.44.1: one for each GPU), a4x-highgpu-4g (NVIDIA AI Cluster Runtime: four RDMA networks) and HGX B200 (system
descriptions of MLPerf Inference 6.0: 8 x 400 Gbit/s); the others were not.
A vendor's image may number the GPUs of a mesh differently: on a real node the matrix is always read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from gangline.errors import UserError
from gangline.topology.links import SELF, Matrix
from gangline.topology.machine import Machine, machine_from_matrix
from gangline.topology.rates import GPUS, HOSTS, TCP_FLOW_GBIT_S

_VOLTA_CUBE_MESH = (
    "0-3=2 0-4=2 1-2=2 1-5=2 2-3=2 4-7=2 5-6=2 6-7=2 0-1=1 0-2=1 1-3=1 2-6=1 3-7=1 4-5=1 4-6=1 5-7=1"
)
"""The hybrid cube mesh of DGX-1 with V100: six NVLinks for each GPU, ``A-B=WIDTH``."""

_PASCAL_CUBE_MESH = (
    "0-1=1 0-2=1 0-3=1 0-4=1 1-2=1 1-3=1 1-5=1 2-3=1 2-6=1 3-7=1 4-5=1 4-6=1 4-7=1 5-6=1 5-7=1 6-7=1"
)


_EACH_TO_EACH = " ".join(f"{a}-{b}=1" for b in range(8) for a in range(b))
"""Eight GPUs of which each has a link to each of the others, as MI300X and MI355X have by xGMI."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One machine of the table.

    Attributes:
        gpu: kind of its GPUs.
        count: number of GPUs.
        host: kind of its CPUs.
        network_gbit_s: what its network cards carry together.
        cards: number of these cards.
        tcp: they carry plain TCP, whose connections are capped.
        title: what it is, for people.
        aliases: other names for it.
        nvlinks: ``A-B=WIDTH`` for each pair with NVLinks, or ``switch=WIDTH`` for an NVSwitch.
        numa: NUMA node of each GPU, a digit each; empty for one node.
        switches: PCIe switch of each GPU, a digit each; empty where every GPU has its own slot.
        nearby: link between GPUs of one NUMA node that share neither NVLink nor PCIe switch.
    """

    gpu: str
    count: int
    host: str
    network_gbit_s: float
    title: str
    aliases: tuple[str, ...] = ()
    nvlinks: str = ""
    numa: str = ""
    switches: str = ""
    nearby: str = "PHB"
    cards: int = 1
    tcp: bool = False


_BROADWELL, _SKYLAKE, _RAPIDS, _AMD, _GRACE = HOSTS
_PAIRS_OF_8: dict[str, Any] = {"numa": "00001111", "switches": "00112233", "nearby": "NODE"}

_TABLE = {
    "v100-dgx1": _Entry(
        "V100", 8, _BROADWELL, 400, "DGX-1 with 8 V100, hybrid cube mesh, 4 x EDR InfiniBand",
        ("dgx1-v100", "dgx1v", "dgx-1v", "dgx1", "v100", "v100-x8", "8xv100", "v100-sxm2", "v100-hgx"),
        _VOLTA_CUBE_MESH, cards=4, **_PAIRS_OF_8,
    ),
    "p100-dgx1": _Entry(
        "P100", 8, _BROADWELL, 400, "DGX-1 with 8 P100, hybrid cube mesh, 4 x EDR InfiniBand",
        ("dgx1-p100", "dgx1p", "dgx-1p", "p100", "p100-x8", "8xp100", "p100-sxm2", "p100-hgx"),
        _PASCAL_CUBE_MESH, numa="00001111", switches="01012323", nearby="NODE", cards=4,
    ),
    "v100-dgx2": _Entry(
        "V100-32G", 16, _SKYLAKE, 800, "DGX-2: 16 V100 on NVSwitch, 8 x EDR InfiniBand",
        ("dgx2", "dgx2-v100", "v100-x16", "16xv100", "hgx2"),
        "switch=6", numa="0000000011111111", switches="0011223344556677", nearby="NODE",
        cards=8,
    ),
    "a100-hgx": _Entry(
        "A100", 8, _AMD, 1600, "HGX or DGX A100: 8 A100 on NVSwitch, 8 x HDR InfiniBand",
        ("hgx-a100", "a100", "dgx-a100", "a100-dgx", "a100-x8", "8xa100", "a100-sxm4"),
        "switch=12", cards=8, **_PAIRS_OF_8,
    ),
    "a800-hgx": _Entry(
        "A800", 8, _AMD, 1600, "HGX A800: 8 A800 on NVSwitch, 8 x HDR InfiniBand",
        ("hgx-a800", "a800", "a800-x8", "8xa800"), "switch=8", cards=8, **_PAIRS_OF_8,
    ),
    "h100-hgx": _Entry(
        "H100", 8, _RAPIDS, 3200, "HGX or DGX H100: 8 H100 on NVSwitch, 8 x NDR InfiniBand",
        ("hgx-h100", "h100", "dgx-h100", "h100-dgx", "h100-x8", "8xh100", "h100-sxm5"),
        "switch=18", cards=8, **_PAIRS_OF_8,
    ),
    "h200-hgx": _Entry(
        "H200", 8, _RAPIDS, 3200, "HGX or DGX H200: 8 H200 on NVSwitch, 8 x NDR InfiniBand",
        ("hgx-h200", "h200", "dgx-h200", "h200-dgx", "h200-x8", "8xh200"),
        "switch=18", cards=8, **_PAIRS_OF_8,
    ),
    "b200-hgx": _Entry(
        "B200", 8, _RAPIDS, 3200, "HGX or DGX B200: 8 B200 on NVSwitch, 8 x NDR InfiniBand",
        ("hgx-b200", "b200", "dgx-b200", "b200-dgx", "b200-x8", "8xb200"),
        "switch=18", cards=8, **_PAIRS_OF_8,
    ),
    "h20-hgx": _Entry(
        "H20", 8, _RAPIDS, 3200, "HGX H20: 8 H20 on NVSwitch, 8 x NDR InfiniBand",
        ("hgx-h20", "h20", "h20-x8", "8xh20"), "switch=18", cards=8, **_PAIRS_OF_8,
    ),
    "h800-hgx": _Entry(
        "H800", 8, _RAPIDS, 3200, "HGX H800: 8 H800 on NVSwitch, 8 x NDR InfiniBand",
        ("hgx-h800", "h800", "h800-x8", "8xh800"), "switch=8", cards=8, **_PAIRS_OF_8,
    ),
    "b300-hgx": _Entry(
        "B300", 8, _RAPIDS, 6400, "HGX or DGX B300: 8 B300 on NVSwitch, 8 x XDR InfiniBand",
        ("hgx-b300", "b300", "dgx-b300", "b300-dgx", "b300-x8", "8xb300"), "switch=18", cards=8,
        **_PAIRS_OF_8,
    ),
    "gb200-nvl72": _Entry(
        "GB200", 4, _GRACE, 1600, "tray of a GB200 NVL72: 4 of the 72 GB200 of one NVLink domain",
        ("gb200", "gb200-x4", "dgx-gb200", "gb200-tray"), "switch=18", numa="0011", nearby="NODE", cards=4,
    ),
    "gb300-nvl72": _Entry(
        "GB300", 4, _GRACE, 3200, "tray of a GB300 NVL72: 4 of the 72 GB300 of one NVLink domain",
        ("gb300", "gb300-x4", "dgx-gb300", "gb300-tray"), "switch=18", numa="0011", nearby="NODE", cards=4,
    ),
    "gh200": _Entry(
        "GH200", 1, _GRACE, 400, "GH200: one GPU and its CPU on NVLink-C2C, 1 x NDR InfiniBand",
        ("gh200-x1", "gh200-480gb"),
    ),
    "mi300x": _Entry(
        "MI300X", 8, _AMD, 3200, "8 MI300X, each linked to each by xGMI, 8 x NDR InfiniBand",
        ("mi300x-x8", "8xmi300x", "mi300"), _EACH_TO_EACH, cards=8, **_PAIRS_OF_8,
    ),
    "mi355x": _Entry(
        "MI355X", 8, _AMD, 3200, "8 MI355X, each linked to each by xGMI, 8 x NDR InfiniBand",
        ("mi355x-x8", "8xmi355x", "mi350"), _EACH_TO_EACH, cards=8, **_PAIRS_OF_8,
    ),
    "l40s-x8": _Entry(
        "L40S", 8, _RAPIDS, 400, "8 L40S, two behind each PCIe switch, two CPUs",
        ("8xl40s", "l40sx8", "l40s"), cards=2, **_PAIRS_OF_8,
    ),
    "a40-x4": _Entry(
        "A40", 4, _AMD, 100, "4 A40 in PCIe slots of two CPUs, no bridge",
        ("4xa40", "a40x4", "a40"), numa="0011", nearby="NODE",
    ),
    "rtxpro6000-x8": _Entry(
        "RTX PRO 6000", 8, _RAPIDS, 3200, "8 RTX PRO 6000, two behind each PCIe switch, two CPUs, 8 x NDR",
        ("8xrtxpro6000", "rtxpro6000x8", "rtxpro6000", "rtx-pro-server"), cards=8, **_PAIRS_OF_8,
    ),
    "t4-x4": _Entry(
        "T4", 4, _SKYLAKE, 25, "4 T4 in PCIe slots of two CPUs",
        ("4xt4", "t4x4", "t4", "t4-pcie"), numa="0011", nearby="NODE",
    ),
    "t4-x8": _Entry(
        "T4", 8, _SKYLAKE, 25, "8 T4, two behind each PCIe switch, two CPUs", ("8xt4", "t4x8"), **_PAIRS_OF_8,
    ),
    "l4-x4": _Entry(
        "L4", 4, _RAPIDS, 50, "4 L4 in PCIe slots of two CPUs",
        ("4xl4", "l4x4", "l4", "l4-pcie"), numa="0011", nearby="NODE",
    ),
    "l4-x8": _Entry(
        "L4", 8, _RAPIDS, 100, "8 L4, two behind each PCIe switch, two CPUs", ("8xl4", "l4x8"), **_PAIRS_OF_8,
    ),
    "workstation-2": _Entry(
        "RTX 4090", 2, _AMD, 10, "workstation with 2 RTX 4090, no bridge",
        ("rtx4090-x2", "2xrtx4090", "4090-x2", "2x4090", "rtx4090", "4090", "workstation"),
    ),
    "workstation-2-nvlink": _Entry(
        "RTX 3090", 2, _AMD, 10, "workstation with 2 RTX 3090 and an NVLink bridge",
        ("rtx3090-x2", "2xrtx3090", "3090-x2", "2x3090", "rtx3090", "3090"), "0-1=4",
    ),
    "workstation-4": _Entry(
        "RTX 4090", 4, _AMD, 10, "workstation with 4 RTX 4090, no bridge",
        ("rtx4090-x4", "4xrtx4090", "4090-x4", "4x4090"),
    ),
    "workstation-4-nvlink": _Entry(
        "RTX 8000", 4, _SKYLAKE, 10, "workstation with 4 RTX 8000 and two NVLink bridges",
        ("rtx8000-x4", "4xrtx8000", "rtx8000", "quadro-rtx8000"), "0-3=2 1-2=2", numa="0011", nearby="NODE",
    ),
    "p3.2xlarge": _Entry("V100", 1, _BROADWELL, 10, "AWS: 1 V100", ("v100-x1",), tcp=True),
    "p3.8xlarge": _Entry(
        "V100", 4, _BROADWELL, 10, "AWS: 4 V100, the first quad of the cube mesh", ("v100-x4", "4xv100"),
        "0-3=2 1-2=2 2-3=2 0-1=1 0-2=1 1-3=1", switches="0011", tcp=True,
    ),
    "p3.16xlarge": _Entry(
        "V100", 8, _BROADWELL, 25, "AWS: 8 V100, hybrid cube mesh", ("p3",), _VOLTA_CUBE_MESH, tcp=True,
        **_PAIRS_OF_8,
    ),
    "p3dn.24xlarge": _Entry(
        "V100-32G", 8, _SKYLAKE, 100, "AWS: 8 V100, hybrid cube mesh, EFA", ("p3dn",),
        _VOLTA_CUBE_MESH, **_PAIRS_OF_8,
    ),
    "g4dn.xlarge": _Entry("T4", 1, _SKYLAKE, 25, "AWS: 1 T4", ("t4-x1",), tcp=True),
    "g4dn.12xlarge": _Entry("T4", 4, _SKYLAKE, 50, "AWS: 4 T4", ("g4dn",), tcp=True),
    "g4dn.metal": _Entry(
        "T4", 8, _SKYLAKE, 100, "AWS: 8 T4, two CPUs", numa="00001111", nearby="NODE", tcp=True,
    ),
    "g5.xlarge": _Entry("A10G", 1, _AMD, 10, "AWS: 1 A10G", ("a10g-x1",), tcp=True),
    "g5.12xlarge": _Entry("A10G", 4, _AMD, 40, "AWS: 4 A10G", ("a10g-x4", "4xa10g"), tcp=True),
    "g5.48xlarge": _Entry(
        "A10G", 8, _AMD, 100, "AWS: 8 A10G, two CPUs", ("g5", "a10g", "a10g-x8", "8xa10g"),
        numa="00001111", nearby="NODE", tcp=True,
    ),
    "g6.xlarge": _Entry("L4", 1, _AMD, 10, "AWS: 1 L4", ("l4-x1",), tcp=True),
    "g6.12xlarge": _Entry("L4", 4, _AMD, 40, "AWS: 4 L4", tcp=True),
    "g6.48xlarge": _Entry(
        "L4", 8, _AMD, 100, "AWS: 8 L4, two CPUs", ("g6",), numa="00001111", nearby="NODE", tcp=True,
    ),
    "g6e.12xlarge": _Entry("L40S", 4, _AMD, 100, "AWS: 4 L40S", ("l40s-x4", "4xl40s"), tcp=True),
    "g6e.48xlarge": _Entry(
        "L40S", 8, _AMD, 400, "AWS: 8 L40S, two CPUs", ("g6e",), numa="00001111", nearby="NODE", cards=4,
        tcp=True,
    ),
    "p4d.24xlarge": _Entry(
        "A100", 8, _SKYLAKE, 400, "AWS: 8 A100 on NVSwitch, EFA", ("p4d", "p4de.24xlarge", "p4de"),
        "switch=12", cards=4, **_PAIRS_OF_8,
    ),
    "p5.48xlarge": _Entry(
        "H100", 8, _AMD, 3200, "AWS: 8 H100 on NVSwitch, EFA", ("p5",), "switch=18", cards=32, **_PAIRS_OF_8,
    ),
    "p5e.48xlarge": _Entry(
        "H200", 8, _AMD, 3200, "AWS: 8 H200 on NVSwitch, EFA", ("p5e",), "switch=18", cards=32, **_PAIRS_OF_8,
    ),
    "p5en.48xlarge": _Entry(
        "H200", 8, _RAPIDS, 3200, "AWS: 8 H200 on NVSwitch, EFA", ("p5en",), "switch=18", cards=16,
        **_PAIRS_OF_8,
    ),
    "p6-b200.48xlarge": _Entry(
        "B200", 8, _RAPIDS, 3200, "AWS: 8 B200 on NVSwitch, EFA", ("p6-b200", "p6"), "switch=18", cards=8,
        **_PAIRS_OF_8,
    ),
    "p6-b300.48xlarge": _Entry(
        "B300", 8, _RAPIDS, 6400, "AWS: 8 B300 on NVSwitch, EFA", ("p6-b300",), "switch=18", cards=16,
        **_PAIRS_OF_8,
    ),
    "p6e-gb200.36xlarge": _Entry(
        "GB200", 4, _GRACE, 1600, "AWS: 4 GB200 of an NVL72, EFA", ("p6e-gb200",), "switch=18",
        numa="0011", nearby="NODE", cards=4,
    ),
    "a2-highgpu-8g": _Entry(
        "A100", 8, _SKYLAKE, 100, "Google Cloud: 8 A100 on NVSwitch", ("a2-highgpu", "a2"), "switch=12",
        **_PAIRS_OF_8,
    ),
    "a3-highgpu-8g": _Entry(
        "H100", 8, _RAPIDS, 800, "Google Cloud: 8 H100 on NVSwitch, GPUDirect-TCPX", ("a3-highgpu", "a3"),
        "switch=18", cards=4, **_PAIRS_OF_8,
    ),
    "a3-megagpu-8g": _Entry(
        "H100", 8, _RAPIDS, 1600, "Google Cloud: 8 H100 on NVSwitch, GPUDirect-TCPXO",
        ("a3-megagpu", "a3-mega"), "switch=18", cards=8, **_PAIRS_OF_8,
    ),
    "a3-ultragpu-8g": _Entry(
        "H200", 8, _RAPIDS, 3200, "Google Cloud: 8 H200 on NVSwitch, RoCE", ("a3-ultragpu", "a3-ultra"),
        "switch=18", cards=8, **_PAIRS_OF_8,
    ),
    "a4-highgpu-8g": _Entry(
        "B200", 8, _RAPIDS, 3200, "Google Cloud: 8 B200 on NVSwitch, RoCE", ("a4-highgpu", "a4"),
        "switch=18", cards=8, **_PAIRS_OF_8,
    ),
    "a4x-highgpu-4g": _Entry(
        "GB200", 4, _GRACE, 1600, "Google Cloud: 4 GB200 of an NVL72, RoCE", ("a4x-highgpu", "a4x"),
        "switch=18", numa="0011", nearby="NODE", cards=4,
    ),
    "Standard_ND96asr_v4": _Entry(
        "A100", 8, _AMD, 1600, "Azure: 8 A100 on NVSwitch, InfiniBand",
        ("nd96asr-v4", "Standard_ND96amsr_A100_v4"), "switch=12", cards=8, **_PAIRS_OF_8,
    ),
    "Standard_ND96isr_H100_v5": _Entry(
        "H100", 8, _RAPIDS, 3200, "Azure: 8 H100 on NVSwitch, InfiniBand", ("nd-h100-v5", "nd96isr-h100-v5"),
        "switch=18", cards=8, **_PAIRS_OF_8,
    ),
    "Standard_ND96isr_H200_v5": _Entry(
        "H200", 8, _RAPIDS, 3200, "Azure: 8 H200 on NVSwitch, InfiniBand", ("nd-h200-v5", "nd96isr-h200-v5"),
        "switch=18", cards=8, **_PAIRS_OF_8,
    ),
    "Standard_ND96isr_MI300X_v5": _Entry(
        "MI300X", 8, _RAPIDS, 3200, "Azure: 8 MI300X on xGMI, InfiniBand", ("nd-mi300x-v5",),
        _EACH_TO_EACH, cards=8, **_PAIRS_OF_8,
    ),
    "Standard_ND128isr_NDR_GB200_v6": _Entry(
        "GB200", 4, _GRACE, 1600, "Azure: 4 GB200 of an NVL72, InfiniBand", ("nd-gb200-v6",),
        "switch=18", numa="0011", nearby="NODE", cards=4,
    ),
}  # fmt: skip


def known_names() -> dict[str, str]:
    """Return the names of all known machines, each with a line that says what it is."""
    return {name: entry.title for name, entry in _TABLE.items()}


def aliases_of(name: str) -> tuple[str, ...]:
    """Return the other names of a known machine, given by its first name."""
    return _TABLE[name].aliases


@cache
def known_machine(name: str) -> Machine:
    """Return a known machine by any of its names; case, blanks, dashes, dots do not matter.

    Raises:
        UserError: no machine has this name; the hint names the nearest.
    """
    return _build(_resolve(name))


def machine_of_name(name: str) -> Machine | None:
    """Return the known machine of a name, or ``None``."""
    first = _names().get(_folded(name))
    return known_machine(first) if first else None


def machine_of_links(model: str, links: Matrix) -> Machine | None:
    """Return the known machine of this name if its links, or those of its first GPUs, are these.

    It knows what a matrix does not tell: PCIe switches behind NVLinks, CPUs, network.
    """
    machine = machine_of_name(model)
    if machine is None or len(links) > machine.count:
        return None
    if len(links) < machine.count:
        machine = machine.subset(range(len(links)))
    return machine if machine.links == links else None


def _resolve(name: str) -> str:
    names = _names()
    if (first := names.get(_folded(name))) is not None:
        return first
    near = near_names(name)
    hint = f"did you mean {near}? " if near else ""
    raise UserError(
        f"no known machine is called `{name}`",
        hint=f"{hint}known are {', '.join(_TABLE)}",
    )


def near_names(name: str) -> str:
    r"""Return the known machines with names near this one, at most three, as ``\`a\` or \`b\```."""
    names = _names()
    near = get_close_matches(_folded(name), names, n=3, cutoff=0.75)
    return " or ".join(dict.fromkeys(f"`{names[one]}`" for one in near))


@cache
def _names() -> dict[str, str]:
    """Return the first name for each folded name."""
    found: dict[str, str] = {}
    for first, entry in _TABLE.items():
        for name in (first, *entry.aliases):
            if found.setdefault(_folded(name), first) != first:
                raise ValueError(f"`{name}` names both `{found[_folded(name)]}` and `{first}`")
    return found


def _folded(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower().replace("nvidia", "").replace("aws", ""))


def _build(name: str) -> Machine:
    entry = _TABLE[name]
    numa = tuple(int(digit) for digit in entry.numa or "0" * entry.count)
    switches = tuple(int(digit) for digit in entry.switches) or tuple(range(entry.count))
    widths = dict(_widths(entry))

    def link(first: int, second: int) -> str:
        if first == second:
            return SELF
        if width := widths.get((min(first, second), max(first, second))):
            return f"NV{width}"
        if numa[first] != numa[second]:
            return "SYS"
        return "PIX" if switches[first] == switches[second] else entry.nearby

    links = tuple(tuple(link(a, b) for b in range(entry.count)) for a in range(entry.count))
    machine = machine_from_matrix(
        name,
        links,
        numa=numa,
        switches=switches,
        gpu=GPUS[entry.gpu],
        host=HOSTS[entry.host],
        network_gbit_s=entry.network_gbit_s,
        cards=entry.cards,
        flow_gbit_s=TCP_FLOW_GBIT_S if entry.tcp else None,
    )
    return machine


def _widths(entry: _Entry) -> Iterator[tuple[tuple[int, int], int]]:
    for word in entry.nvlinks.split():
        pair, width = word.split("=")
        if pair == "switch":
            yield from (((a, b), int(width)) for b in range(entry.count) for a in range(b))
        else:
            first, second = sorted(int(index) for index in pair.split("-"))
            yield (first, second), int(width)
