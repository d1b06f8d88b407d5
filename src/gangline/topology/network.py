"""Racks, blocks and spines from node labels, and what the network between nodes carries.

Levels are node labels, the widest first (block, then rack). A domain is known by its values from the widest
level down, so that ``rack=1`` of two blocks are two racks. A node without a label of a level is alone in a
domain of its own there: nothing is known to be near it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gangline.errors import UserError
from gangline.topology.known import machine_of_name
from gangline.topology.machine import Machine

NETWORK_LABEL = "gangline.dev/network-gbit-s"
"""Node label that says what the network cards of a node carry together, one way, in Gbit/s; one card, unless
:data:`CARDS_LABEL` says more."""

CARDS_LABEL = "gangline.dev/network-cards"
"""Node label that says how many these cards are; a GPU uses those next to it."""

INSTANCE_LABEL = "node.kubernetes.io/instance-type"

CLIQUE_LABEL = "nvidia.com/gpu.clique"
"""Nodes with one value (``CLUSTER-UUID.CLIQUE-ID``, of GPU feature discovery) are joined by NVLink."""

DEFAULT_LEVELS = (
    "topology.kubernetes.io/zone",
    "gangline.dev/block",
    "gangline.dev/rack",
    CLIQUE_LABEL,
)
"""Node labels of the network's levels, the widest first, where nobody names others; a level whose label no
node carries costs nothing and changes nothing."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the network.

    Attributes:
        label: key of the node label that names the domain.
        oversubscription: by how much the network out of a domain of this level is narrower than the cards of
            its nodes together; 1 for a network that never blocks.
    """

    label: str
    oversubscription: float = 1.0


def parse_levels(text: str) -> tuple[Level, ...]:
    """Return the levels of ``LABEL[:OVERSUBSCRIPTION],...``, the widest first; the empty text has none.

    Raises:
        UserError: a label is named twice, or an oversubscription is no number of at least 1.
    """
    levels: list[Level] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        label, _, factor = word.partition(":")
        try:
            oversubscription = float(factor or 1)
        except ValueError:
            oversubscription = 0.0
        if not 1 <= oversubscription < float("inf"):
            raise UserError(
                f"oversubscription of level `{label}` is `{factor}`, must be a number of at least 1",
                hint="write levels as `example.com/block:2,example.com/rack`, the widest first",
            )
        if any(level.label == label for level in levels):
            raise UserError(f"level `{label}` is named twice in `{text}`")
        levels.append(Level(label, oversubscription))
    return tuple(levels)


@dataclass(frozen=True, slots=True)
class NetworkDomains:
    """The domains of the nodes of a cluster.

    Attributes:
        levels: the widest first.
        domains: for each level the names of its domains, ``block-a/rack-1``, sorted.
        ids: for each node, in the order given, the index of its domain at each level.
    """

    levels: tuple[Level, ...]
    domains: tuple[tuple[str, ...], ...]
    ids: tuple[tuple[int, ...], ...]

    @classmethod
    def from_labels(
        cls, nodes: Sequence[tuple[str, Mapping[str, str]]], levels: Sequence[Level]
    ) -> NetworkDomains:
        """Return the network of nodes, given as names with labels."""
        names = [_domain_names(name, labels, levels) for name, labels in nodes]
        domains = tuple(tuple(sorted({row[depth] for row in names})) for depth in range(len(levels)))
        numbers = [{name: number for number, name in enumerate(level)} for level in domains]
        ids = tuple(tuple(number[name] for number, name in zip(numbers, row, strict=True)) for row in names)
        return cls(tuple(levels), domains, ids)

    def shared_levels(self, nodes: Iterable[int]) -> int:
        """Return how many levels, from the widest, all these nodes share; all for a single node."""
        rows = [self.ids[node] for node in nodes]
        for depth in range(len(self.levels)):
            if len({row[depth] for row in rows}) > 1:
                return depth
        return len(self.levels)

    def oversubscription(self, nodes: Iterable[int]) -> float:
        """Return by how much the network between these nodes is narrower than their cards.

        Traffic leaves the domains of every level that the nodes do not share; the narrowest way counts.
        """
        crossed = self.levels[self.shared_levels(nodes) :]
        return max((level.oversubscription for level in crossed), default=1.0)


def on_network(machine: Machine, labels: Mapping[str, str]) -> Machine:
    """Return a node's machine with the network that its labels tell, its own or that of its instance type."""
    known = machine_of_name(labels.get(INSTANCE_LABEL, ""))
    if known is not None:
        rate, flow = known.network_gbit_s, known.flow_gbit_s
        machine = replace(machine, network_gbit_s=rate, cards=known.cards, flow_gbit_s=flow)
    if stated := _stated(labels, NETWORK_LABEL):
        machine = replace(machine, network_gbit_s=stated, cards=1, flow_gbit_s=None)
    if (cards := _stated(labels, CARDS_LABEL)) >= 1:
        machine = replace(machine, cards=int(cards))
    return machine


def with_cards(machine: Machine, labels: Mapping[str, str]) -> Machine:
    """Return a node's machine with as many network cards as its labels tell; all else stays, so that nodes of
    one kind share it.
    """
    if INSTANCE_LABEL not in labels and CARDS_LABEL not in labels:
        return machine
    cards = on_network(machine, labels).cards
    return machine if cards == machine.cards else replace(machine, cards=cards)


def _stated(labels: Mapping[str, str], key: str) -> float:
    """Return a number that a label states; 0 where it states none."""
    try:
        stated = float(labels.get(key, ""))
    except ValueError:
        return 0.0
    return stated if 0 < stated < float("inf") else 0.0


def _domain_names(node: str, labels: Mapping[str, str], levels: Sequence[Level]) -> list[str]:
    """Return the name of a node's domain at each level; ``?NODE`` stands for a missing label."""
    names: list[str] = []
    above = ""
    for level in levels:
        above += ("/" if above else "") + (labels.get(level.label) or f"?{node}")
        names.append(above)
    return names
