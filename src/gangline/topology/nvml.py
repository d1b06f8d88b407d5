"""The machine behind what NVML tells, given as plain values: whoever asks NVML lives elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.errors import UserError
from gangline.topology.links import SELF
from gangline.topology.machine import Machine, grouped, machine_from_matrix
from gangline.topology.rates import UNKNOWN_HOST, HostRates

LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""``nvmlGpuTopologyLevel_t``: INTERNAL (one board), SINGLE, MULTIPLE, HOSTBRIDGE, NODE, SYSTEM."""

MULTIPLE = 20
"""Up to this level a pair shares its way to the CPU, which a matrix of names hides under NVLinks."""


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    """One GPU as NVML sees it.

    Attributes:
        product: ``nvmlDeviceGetName``.
        bus_id: its PCI bus id.
        remotes: PCI bus id at the other end of each *active* NVLink (``nvmlDeviceGetNvLinkRemotePciInfo``),
            once for each link; an id that is no GPU's belongs to an NVSwitch.
        numa: its NUMA node; negative where the system tells none.
    """

    product: str
    bus_id: str
    remotes: tuple[str, ...] = ()
    numa: int = -1


def machine_of_nvml(
    gpus: Sequence[NvmlGpu], levels: Sequence[Sequence[int]], *, host: HostRates = UNKNOWN_HOST
) -> Machine:
    """Return the machine of a node.

    Args:
        gpus: in the order of their indices.
        levels: ``nvmlDeviceGetTopologyCommonAncestor`` of each two GPUs; the diagonal is not looked at.
        host: its CPUs, where known.

    Raises:
        UserError: there is no GPU, a level is unknown, or the two directions of a pair differ.
    """
    if not gpus:
        raise UserError("NVML tells of no GPU")
    own = [_folded(gpu.bus_id) for gpu in gpus]
    ends = [[_folded(remote) for remote in gpu.remotes] for gpu in gpus]
    into_switch = [sum(end not in own for end in row) for row in ends]

    def link(first: int, second: int) -> str:
        if first == second:
            return SELF
        width = ends[first].count(own[second]) + min(into_switch[first], into_switch[second])
        return f"NV{width}" if width else _level(levels[first][second], first, second)

    count = len(gpus)
    links = tuple(tuple(link(a, b) for b in range(count)) for a in range(count))
    numa = tuple(gpu.numa for gpu in gpus)
    return machine_from_matrix(
        gpus[0].product,
        links,
        numa=numa if min(numa) >= 0 else None,
        switches=grouped(count, lambda a, b: levels[a][b] <= MULTIPLE),
        host=host,
        what="NVML's links",
    )


def _level(level: int, first: int, second: int) -> str:
    if level not in LEVELS:
        raise UserError(
            f"NVML's topology level between GPU {first} and {second} is {level}, known are 0 to 50"
        )
    return LEVELS[level]


def _folded(bus_id: str) -> str:
    """Return a bus id that can be compared: NVML pads its domain to eight digits or to four."""
    domain, _, rest = bus_id.strip().lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"
