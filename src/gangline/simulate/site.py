"""The simulated cluster: equal nodes with GPUs, in racks and blocks."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from gangline.errors import UserError
from gangline.placement import NodeView
from gangline.placement.amounts import PODS
from gangline.topology import Level, Machine, known_machine, read_annotation
from gangline.topology.network import NETWORK_LABEL
from gangline.workloads.requests import GPU

BLOCK_LABEL = "gangline.dev/simulated-block"
RACK_LABEL = "gangline.dev/simulated-rack"

NODES_MAX = 10_000
PODS_PER_NODE = 110


@dataclass(frozen=True, slots=True)
class Site:
    """What the simulated cluster is made of. The defaults are ours: 2,000 V100 in racks of ten nodes.

    Attributes:
        machine: a known machine, see :mod:`gangline.topology.known`.
        nodes: how many of it.
        network_gbit_s: what the network cards of a node carry together, one way.
        nodes_per_rack: size of a rack; the last one may be smaller.
        racks_per_block: size of a block.
        rack_oversubscription: by how much the way out of a rack is narrower than the cards in it.
        block_oversubscription: the same for a block.
    """

    machine: str = "v100-dgx1"
    nodes: int = 250
    network_gbit_s: float = 100.0
    nodes_per_rack: int = 10
    racks_per_block: int = 5
    rack_oversubscription: float = 4.0
    block_oversubscription: float = 8.0

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= NODES_MAX:
            raise UserError(f"a simulated cluster has 1 to {NODES_MAX:,} nodes (found {self.nodes})")
        known_machine(self.machine)

    @property
    def gpus_per_node(self) -> int:
        """GPUs of each node."""
        return known_machine(self.machine).count

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return self.nodes * self.gpus_per_node

    @property
    def everything(self) -> int:
        """The mask of all GPUs of a node."""
        return (1 << self.gpus_per_node) - 1

    @property
    def levels(self) -> tuple[Level, ...]:
        """Levels of the network, the widest first."""
        return (
            Level(BLOCK_LABEL, self.block_oversubscription),
            Level(RACK_LABEL, self.rack_oversubscription),
        )

    def domains(self) -> tuple[list[int], list[int]]:
        """Return the rack of each row, and the block, as numbers of the whole cluster."""
        racks = [row // self.nodes_per_rack for row in range(self.nodes)]
        return racks, [rack // self.racks_per_block for rack in racks]

    def machine_of_nodes(self) -> Machine:
        """Return the machine with the network that the nodes' label tells."""
        return replace(
            known_machine(self.machine), network_gbit_s=self.network_gbit_s, cards=1, flow_gbit_s=None
        )

    def labels(self, row: int) -> dict[str, str]:
        """Return the labels of a node."""
        rack = row // self.nodes_per_rack
        return {
            BLOCK_LABEL: f"b{rack // self.racks_per_block}",
            RACK_LABEL: f"r{rack % self.racks_per_block}",
            NETWORK_LABEL: f"{self.network_gbit_s:g}",
        }

    def name(self, row: int) -> str:
        """Return the name of a node; names are in the order of the rows."""
        return f"node-{row:05}"

    def node_views(self, *, with_links: bool) -> list[NodeView]:
        """Return the nodes as a scheduler sees them.

        Args:
            with_links: the nodes publish their GPUs and links; else they only count them, and a stock device
                plugin hands out ids.
        """
        machine = known_machine(self.machine)
        views = []
        for row in range(self.nodes):
            name = self.name(row)
            gpus = None
            if with_links:
                uuids = [f"{name}-{index}" for index in range(machine.count)]
                gpus = read_annotation(json.dumps(machine.annotation(uuids)), node=name)
            views.append(
                NodeView(
                    name=name,
                    labels=self.labels(row),
                    allocatable={PODS: PODS_PER_NODE, GPU: machine.count},
                    gpus=gpus,
                    by_wires=with_links,
                )
            )
        return views
