"""Every rate and latency that the model uses, each with its source. No number comes from a training run.

Rates are what one transfer can use, one way, in GB/s (1e9 bytes); a link's nominal rate is higher. They come
from data sheets and from NCCL, whose authors measured collectives (``src/graph/topo.h`` and the tuning
tables of NVIDIA/nccl, as of release 2.2x). Latencies are in microseconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PCIE_GB_S = {3: 12.0, 4: 24.0, 5: 48.0}
"""A x16 slot, one way, by PCIe generation. Nominal 16, 32, 64; usable as in NCCL (gen3 12)."""

INTEL_P2P_OVERHEAD = 6 / 5
"""A transfer through an Intel CPU costs this much more than its bytes. Source: NCCL topo.h."""

NETWORK_GBIT_S = 100.0
"""A node's network where nothing is known. Source: NCCL's default for a NIC that tells no speed (12 GB/s)."""

BITS_PER_BYTE = 8.0


@dataclass(frozen=True, slots=True)
class GpuRates:
    """A kind of GPU.

    Attributes:
        kind: short name, also looked for in product names (``V100``).
        product: the name that NVML gives.
        memory_gb: size of its memory, data sheet.
        nvlink_gb_s: usable rate of one NVLink, one way.
        nvlink_count: NVLinks of one GPU, data sheet.
        pcie: PCIe generation of its slot, data sheet.
        in_switch: share of the NVLinks' rate that reduction inside an NVSwitch reaches; 0 without it.
        link: what joins its GPUs, for people; the table speaks of NVLinks for xGMI too.
    """

    kind: str
    product: str
    memory_gb: int
    nvlink_gb_s: float
    nvlink_count: int
    pcie: int
    in_switch: float = 0.0
    link: str = "NVLink"

    @property
    def links(self) -> str:
        """Several of them, for people."""
        return "NVLinks" if self.link == "NVLink" else f"{self.link} links"


@dataclass(frozen=True, slots=True)
class HostRates:
    """The CPUs of a node.

    Attributes:
        name: family.
        socket_gb_s: one way between two sockets.
        p2p_overhead: factor on the bytes of a transfer through the CPU.
    """

    name: str
    socket_gb_s: float
    p2p_overhead: float = 1.0


# NVLink rates: NCCL topo.h, SM60 18, SM70 20, SM80 20, SM86 12, SM90 20.6, SM100 40.1 GB/s. Nominal, one
# way: 20, 25, 25, 14, 25, 50 (data sheets). sm75 (RTX 8000) has NVLink 2 as sm70 and is taken alike. xGMI:
# RCCL topo.h, gfx94x and gfx95x 48 GB/s; nominal 64 (MI300X) and 76.8 (MI355X), seven links a GPU.
# Reduction inside the switch: NCCL's nvlsEfficiency, Hopper 0.85, Blackwell 0.74. A800 and H800 have 8 of the
# NVLinks of A100 and H100 (400 GB/s together, data sheets); H20 all 18.
_HOPPER, _BLACKWELL = 0.85, 0.74
GPUS = {
    gpu.kind: gpu
    for gpu in (
        GpuRates("P100", "Tesla P100-SXM2-16GB", 16, 18.0, 4, 3),
        GpuRates("V100", "Tesla V100-SXM2-16GB", 16, 20.0, 6, 3),
        GpuRates("V100-32G", "Tesla V100-SXM3-32GB", 32, 20.0, 6, 3),
        GpuRates("A100", "NVIDIA A100-SXM4-80GB", 80, 20.0, 12, 4),
        GpuRates("A800", "NVIDIA A800-SXM4-80GB", 80, 20.0, 8, 4),
        GpuRates("H100", "NVIDIA H100 80GB HBM3", 80, 20.6, 18, 5, _HOPPER),
        GpuRates("H200", "NVIDIA H200", 141, 20.6, 18, 5, _HOPPER),
        GpuRates("H20", "NVIDIA H20", 96, 20.6, 18, 5, _HOPPER),
        GpuRates("H800", "NVIDIA H800", 80, 20.6, 8, 5, _HOPPER),
        GpuRates("GH200", "NVIDIA GH200 480GB", 96, 20.6, 18, 5, _HOPPER),
        GpuRates("B200", "NVIDIA B200", 180, 40.1, 18, 5, _BLACKWELL),
        GpuRates("B300", "NVIDIA B300 SXM6 AC", 288, 40.1, 18, 5, _BLACKWELL),
        GpuRates("GB200", "NVIDIA GB200", 186, 40.1, 18, 5, _BLACKWELL),
        GpuRates("GB300", "NVIDIA GB300", 288, 40.1, 18, 5, _BLACKWELL),
        GpuRates("T4", "Tesla T4", 16, 0.0, 0, 3),
        GpuRates("A10G", "NVIDIA A10G", 24, 0.0, 0, 4),
        GpuRates("A40", "NVIDIA A40", 48, 12.0, 4, 4),
        GpuRates("L4", "NVIDIA L4", 24, 0.0, 0, 4),
        GpuRates("L40S", "NVIDIA L40S", 48, 0.0, 0, 4),
        GpuRates("RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 96, 0.0, 0, 5),
        GpuRates("MI300X", "AMD Instinct MI300X", 192, 48.0, 7, 5, link="xGMI"),
        GpuRates("MI355X", "AMD Instinct MI355X", 288, 48.0, 7, 5, link="xGMI"),
        GpuRates("RTX 3090", "NVIDIA GeForce RTX 3090", 24, 12.0, 4, 4),
        GpuRates("RTX 4090", "NVIDIA GeForce RTX 4090", 24, 0.0, 0, 4),
        GpuRates("RTX 8000", "Quadro RTX 8000", 48, 20.0, 2, 3),
    )
}

UNKNOWN_GPU = GpuRates("unknown", "", 0, 20.0, 18, 3)
"""Taken for a GPU that is not in the table: the slowest slot, and NVLinks as of Volta to Ampere. Whoever
shows what follows from it says so (:attr:`gangline.topology.machine.Machine.guess`)."""

TCP_FLOW_GBIT_S = 10.0
"""One TCP connection between two instances of AWS that have no EFA: 5, in a placement group 10. Source: AWS,
"Amazon EC2 instance network bandwidth". A ring is taken to have one each way."""

IN_SWITCH_US = 25.0
"""Latency of a reduction inside the switch. Source: NCCL's tuning of NVLS."""

# Between sockets: NCCL topo.h (Broadwell 6, Skylake and Cascade Lake 10, Sapphire Rapids 22, AMD 16 GB/s).
# Grace: as NCCL takes any ARM CPU; no ring of GB200s uses it.
HOSTS = {
    host.name: host
    for host in (
        HostRates("Intel Broadwell", 6.0, INTEL_P2P_OVERHEAD),
        HostRates("Intel Skylake", 10.0, INTEL_P2P_OVERHEAD),
        HostRates("Intel Sapphire Rapids", 22.0, INTEL_P2P_OVERHEAD),
        HostRates("AMD", 16.0),
        HostRates("Grace", 6.0),
    )
}

UNKNOWN_HOST = HOSTS["Intel Skylake"]
"""Taken for a node that does not tell its CPUs."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way in which NCCL moves bytes: less latency for less bandwidth.

    Attributes:
        name: as in ``NCCL_PROTO``.
        efficiency: share of the wire's rate that carries data.
        ring_base_us, tree_base_us: paid once.
        nvlink_us, pcie_us, network_us: paid for every hop over such a wire.
        nvlink_only: used only where the hops of a node are NVLinks.
    """

    name: str
    efficiency: float
    ring_base_us: float
    tree_base_us: float
    nvlink_us: float
    pcie_us: float
    network_us: float
    nvlink_only: bool = False


# NCCL's tuning tables (base latency, hop latency of NVLink, PCIe, network; LL sends a flag with each 4
# bytes, LL128 with each 120 bytes of 128, taken there as 0.92).
PROTOCOLS = (
    Protocol("LL", 0.5, 6.6, 6.8, 0.6, 1.0, 2.7),
    Protocol("LL128", 0.92, 14.0, 14.0, 1.9, 2.5, 4.0, nvlink_only=True),
    Protocol("Simple", 1.0, 8.4, 8.4, 3.4, 5.7, 14.0),
)

TREE_EFFICIENCY = 0.92
"""Share of a wire's rate that a tree all-reduce reaches. Source: NCCL's tuning of the tree algorithm."""

BACKWARD_SHARE = 2 / 3
"""Share of a training step's computation that is the backward pass: it costs two forward passes."""

OVERLAP = 0.0
"""Share of the backward pass during which gradients travel, where nobody tells: none is hidden, so that wires
are never said not to matter. How much a job hides lies between this and 1."""

QUOTED_OVERLAP = 0.7
"""The middle of the 60 to 80 % that is often quoted; a judgement, for simulations."""


def gpu_of(text: str) -> GpuRates:
    """Return the kind of GPU that a product or machine name speaks of, else :data:`UNKNOWN_GPU`."""
    words = f" {_words(text)} "
    for gpu in GPUS.values():
        if gpu.product and _words(gpu.product) == words.strip():
            return gpu
    for gpu in GPUS.values():
        kind = _words(gpu.kind)
        if f" {kind} " in words or f" {kind.replace(' ', '')} " in words:
            return gpu
    return UNKNOWN_GPU


def _words(text: str) -> str:
    return " ".join(re.findall(r"[A-Z0-9]+", text.upper()))
