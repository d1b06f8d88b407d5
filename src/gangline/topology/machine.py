"""A machine: its GPUs, the links between them, the CPUs and switches behind them, its network.

What a matrix of ``nvidia-smi topo -m`` cannot tell (which GPUs with an NVLink between them share a PCIe
switch, the CPU family, the network) comes from :mod:`gangline.topology.known` where the machine is known,
else from the cautious defaults of :mod:`gangline.topology.rates`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gangline.errors import UserError
from gangline.topology.links import SAME_SWITCH, Matrix, check_matrix, nvlinks
from gangline.topology.rates import NETWORK_GBIT_S, UNKNOWN_GPU, UNKNOWN_HOST, GpuRates, HostRates, gpu_of

SOURCES = ("nvml", "file", "simulated")


@dataclass(frozen=True)
class Machine:
    """The link graph of one node. GPUs are known by their index, sets of them are bit masks.

    Attributes:
        model: name of the machine, or product name of its GPUs.
        links: names of links, square and symmetric.
        numa: NUMA node of each GPU.
        switches: PCIe switch of each GPU; GPUs of one switch share its way to the CPU.
        gpu: kind of its GPUs.
        host: kind of its CPUs.
        network_gbit_s: what all its network cards for GPU traffic carry together, one way.
        cards: number of these cards; each GPU uses those next to it.
        flow_gbit_s: what one connection carries; None where the cards set the bound.
        measured: (mask, bus bandwidth in GB/s) of sets of its GPUs, see :mod:`gangline.topology.measured`.
    """

    model: str
    links: Matrix
    numa: tuple[int, ...]
    switches: tuple[int, ...]
    gpu: GpuRates
    host: HostRates = UNKNOWN_HOST
    network_gbit_s: float = NETWORK_GBIT_S
    cards: int = 1
    flow_gbit_s: float | None = None
    measured: tuple[tuple[int, float], ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Machines are keys of tables that are asked often."""
        return hash((self.model, self.links, self.numa, self.switches))

    @property
    def count(self) -> int:
        """Number of GPUs."""
        return len(self.links)

    @cached_property
    def unmeasured(self) -> Machine:
        """The machine as it is predicted."""
        return replace(self, measured=())

    @property
    def everything(self) -> int:
        """The mask of all GPUs."""
        return (1 << self.count) - 1

    @property
    def guess(self) -> str:
        """What is assumed of GPUs that are in no table, for people; empty where they are known."""
        if self.gpu is not UNKNOWN_GPU:
            return ""
        return (
            f"`{self.model}` is in no table: NVLinks taken as of {self.gpu.nvlink_gb_s:g} GB/s, "
            f"slots as PCIe {self.gpu.pcie}"
        )

    def network_of(self, gpus: Sequence[int]) -> float:
        """Return what the network cards next to some GPUs carry together, one way, in Gbit/s.

        GPUs share the cards evenly, in the order of their indices; a GPU reaches no card of another one.
        """
        first = {gpu * self.cards // self.count for gpu in gpus}
        used = len(first) * max(self.cards / self.count, 1)
        rate = self.network_gbit_s * used / self.cards
        return rate if self.flow_gbit_s is None else min(rate, self.flow_gbit_s)

    @cached_property
    def widths(self) -> tuple[tuple[int, ...], ...]:
        """Number of NVLinks between each two GPUs."""
        return tuple(tuple(nvlinks(name) for name in row) for row in self.links)

    @cached_property
    def nvswitch_links(self) -> int:
        """NVLinks of each GPU into an NVSwitch, through which all reach all; 0 where there is none.

        ``NV18`` to each of seven others can only be one bond of 18 links into a switch, because no GPU
        has 126 of them; on a mesh the widths of a row add up to links that exist.
        """
        pairs = {self.widths[a][b] for a in range(self.count) for b in range(a)}
        if len(pairs) != 1 or self.count < 3:
            return 0
        width = next(iter(pairs))
        return width if width * (self.count - 1) > self.gpu.nvlink_count else 0

    def subset(self, indices: Sequence[int]) -> Machine:
        """Return the machine that has only these GPUs, in this order, as a smaller box would have.

        Raises:
            UserError: an index is missing on this machine or named twice.
        """
        for index in indices:
            if not 0 <= index < self.count:
                raise UserError(f"machine `{self.model}` has no GPU {index}: it has 0 to {self.count - 1}")
        if len(set(indices)) != len(indices):
            raise UserError(f"GPUs {list(indices)} of machine `{self.model}`: one is named twice")
        return replace(
            self,
            links=tuple(tuple(self.links[a][b] for b in indices) for a in indices),
            numa=tuple(self.numa[index] for index in indices),
            switches=tuple(self.switches[index] for index in indices),
            measured=(),
        )

    def annotation(
        self, uuids: Sequence[str], *, source: str = "simulated", unhealthy: Iterable[int] = ()
    ) -> dict[str, Any]:
        """Return the value of the node annotation ``gangline.dev/gpu-topology``, to be written as JSON.

        Args:
            uuids: one for each GPU, in the order of the indices.
            source: ``nvml``, ``file`` or ``simulated``.
            unhealthy: indices of GPUs that must not be used.

        Raises:
            ValueError: the number of UUIDs is not the number of GPUs, or the source is none.
        """
        if len(uuids) != self.count:
            raise ValueError(f"{len(uuids)} UUIDs for the {self.count} GPUs of `{self.model}`")
        if source not in SOURCES:
            raise ValueError(f"source is `{source}`, must be one of {', '.join(SOURCES)}")
        sick = set(unhealthy)
        gpus = [
            {"uuid": uuid, "index": index, "numa": self.numa[index], "healthy": index not in sick}
            for index, uuid in enumerate(uuids)
        ]
        return {
            "model": self.model,
            "source": source,
            "gpus": gpus,
            "links": [list(row) for row in self.links],
        }


def machine_from_matrix(
    model: str,
    links: Matrix,
    *,
    numa: Sequence[int] | None = None,
    switches: Sequence[int] | None = None,
    gpu: GpuRates | None = None,
    host: HostRates = UNKNOWN_HOST,
    network_gbit_s: float = NETWORK_GBIT_S,
    cards: int = 1,
    flow_gbit_s: float | None = None,
    what: str = "GPU links",
) -> Machine:
    """Return the machine of a matrix, with switches and NUMA nodes read from it where they are not given.

    GPUs ``PIX`` or ``PXB`` apart share a switch. GPUs ``SYS`` apart lie on different NUMA nodes.

    Raises:
        UserError: the matrix is not sound.
    """
    links = check_matrix(links, what)
    sockets = grouped(len(links), lambda a, b: links[a][b] != "SYS") if numa is None else tuple(numa)
    behind = (
        grouped(len(links), lambda a, b: links[a][b] in SAME_SWITCH) if switches is None else tuple(switches)
    )
    return Machine(
        model=model,
        links=links,
        numa=sockets,
        switches=behind,
        gpu=gpu or gpu_of(model),
        host=host,
        network_gbit_s=network_gbit_s,
        cards=cards,
        flow_gbit_s=flow_gbit_s,
    )


def grouped(count: int, together: Callable[[int, int], bool]) -> tuple[int, ...]:
    """Return a group number for each GPU; it joins the first group that it is together with, every member."""
    groups: list[list[int]] = []
    numbers: list[int] = []
    for index in range(count):
        number = next(
            (n for n, group in enumerate(groups) if all(together(index, other) for other in group)),
            len(groups),
        )
        if number == len(groups):
            groups.append([])
        groups[number].append(index)
        numbers.append(number)
    return tuple(numbers)
