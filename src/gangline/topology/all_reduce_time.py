"""How long an all-reduce takes: latency and bandwidth of ring, tree and two-level algorithms, over nodes.

- *Ring*: rings through all GPUs of all nodes. Every GPU sends 2(n-1)/n of the bytes in 2(n-1) steps.
- *Tree*: a chain inside each node, two binary trees over the nodes. Fewer steps; from three nodes on every
  byte leaves a node twice.
- *Two-level*: reduce-scatter inside each node, rings over the nodes, all-gather inside. Horovod can do it
  when asked; NCCL does not.

A node's network cards are shared by its GPUs. Sources: nccl-tests, PERFORMANCE.md (cost of a ring); NCCL's
tuning (latencies, protocols); Sanders, Speck, Träff 2009 (two trees).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, inf, log2

from gangline.topology.link_resources import hops_of, members
from gangline.topology.machine import Machine
from gangline.topology.rates import BITS_PER_BYTE, PROTOCOLS, TREE_EFFICIENCY, Protocol
from gangline.topology.rings import best_chain, best_rings

ALGORITHMS = ("ring", "tree", "two-level")
DEFAULT_ALGORITHMS = ("ring", "tree")
"""Those among which NCCL chooses."""


@dataclass(frozen=True, slots=True)
class Part:
    """The GPUs of a gang on one node."""

    machine: Machine
    mask: int

    @property
    def count(self) -> int:
        """Number of GPUs."""
        return self.mask.bit_count()


@dataclass(frozen=True, slots=True)
class AllReduce:
    """A predicted all-reduce.

    Attributes:
        seconds: from the first byte to the last.
        algorithm: ``ring``, ``tree`` or ``two-level``; empty for a single GPU.
        protocol: as in ``NCCL_PROTO``.
        bus_gb_s: bus bandwidth that the wires allow for a large message, without latency.
        bottleneck: the scarcest wire, for people.
    """

    seconds: float
    algorithm: str
    protocol: str
    bus_gb_s: float
    bottleneck: str


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an algorithm costs: ``base + steps x hop + bytes / rate``."""

    algorithm: str
    rate_gb_s: float
    near_steps: int
    far_steps: float
    bottleneck: str


def all_reduce(
    parts: Sequence[Part],
    size_bytes: float,
    *,
    oversubscription: float = 1.0,
    algorithms: Iterable[str] = DEFAULT_ALGORITHMS,
) -> AllReduce:
    """Return the fastest way to all-reduce over the GPUs of a gang.

    Args:
        parts: the gang's GPUs, one part for each node.
        size_bytes: bytes of one GPU's tensor.
        oversubscription: by how much the network above the nodes is narrower than their cards together.
        algorithms: those that may be used.

    Raises:
        ValueError: no GPU, or an unknown algorithm.

    Cost: 20 µs for one node once its rings are known.
    """
    if not parts or any(not part.mask for part in parts):
        raise ValueError("an all-reduce needs at least one GPU on every node named")
    count = sum(part.count for part in parts)
    if count == 1:
        return AllReduce(0.0, "", "", inf, "none")
    network = min(part.machine.network_gbit_s for part in parts) / BITS_PER_BYTE / oversubscription
    plans = [_plan(name, parts, count, network) for name in algorithms]
    pcie = any(_uses_pcie(part) for part in parts)
    ways = [way for way in PROTOCOLS if not (pcie and way.nvlink_only)]
    timed = ((_seconds(plan, way, pcie, size_bytes), plan, way) for plan in plans for way in ways)
    seconds, plan, way = min(timed, key=lambda entry: entry[0])
    factor = 2 * (count - 1) / count
    return AllReduce(seconds, plan.algorithm, way.name, plan.rate_gb_s * factor, plan.bottleneck)


def _seconds(plan: _Plan, way: Protocol, pcie: bool, size_bytes: float) -> float:
    base = way.tree_base_us if plan.algorithm == "tree" else way.ring_base_us
    near = way.pcie_us if pcie else way.nvlink_us
    latency_us = base + plan.near_steps * near + plan.far_steps * way.network_us
    return latency_us * 1e-6 + size_bytes / (plan.rate_gb_s * 1e9 * way.efficiency)


def _plan(algorithm: str, parts: Sequence[Part], count: int, network: float) -> _Plan:
    if algorithm == "ring":
        return _ring(parts, count, network)
    if algorithm == "tree":
        return _tree(parts, count, network)
    if algorithm == "two-level":
        return _two_level(parts, network)
    raise ValueError(f"`{algorithm}` is no algorithm; known are {', '.join(ALGORITHMS)}")


def _ring(parts: Sequence[Part], count: int, network: float) -> _Plan:
    steps, nodes = 2 * (count - 1), len(parts)
    factor = 2 * (count - 1) / count
    if nodes == 1:
        rings = best_rings(parts[0].machine, parts[0].mask)
        return _Plan("ring", rings.gb_s / factor, steps, 0, rings.bottleneck)
    bus, bottleneck = network, "network card"
    for part in parts:
        chain = best_chain(part.machine, part.mask)
        if 2 * chain.gb_s < bus:  # the rings run through the node in both directions
            bus, bottleneck = 2 * chain.gb_s, chain.bottleneck
    far = 2 * (nodes - 1)
    return _Plan("ring", bus / factor, steps - far, far, bottleneck)


def _tree(parts: Sequence[Part], count: int, network: float) -> _Plan:
    nodes = len(parts)
    times_sent = 0 if nodes == 1 else 1 if nodes == 2 else 2
    rate, bottleneck = (network / times_sent, "network card") if times_sent else (inf, "none")
    for part in parts:
        chain = best_chain(part.machine, part.mask)
        if chain.gb_s < rate:
            rate, bottleneck = chain.gb_s, chain.bottleneck
    near = 2 * (ceil(count / nodes) - 1)
    return _Plan("tree", TREE_EFFICIENCY * rate, near, 2 * log2(nodes), bottleneck)


def _two_level(parts: Sequence[Part], network: float) -> _Plan:
    """Return the sum of two phases: bytes per second add up as 1/inside + 1/between."""
    nodes = len(parts)
    between = (2 * (nodes - 1) / nodes / network, "network card")
    inside, near = (0.0, "none"), 0
    for part in parts:
        if part.count > 1:
            rings = best_rings(part.machine, part.mask)
            inside = max(inside, (2 * (part.count - 1) / part.count / rings.gb_s, rings.bottleneck))
            near = max(near, 2 * (part.count - 1))
    bottleneck = max(between, inside)[1]
    return _Plan("two-level", 1 / (inside[0] + between[0]), near, 2 * (nodes - 1), bottleneck)


def _uses_pcie(part: Part) -> bool:
    order = best_chain(part.machine, part.mask).order
    widths = part.machine.widths
    return len(members(part.mask)) > 1 and any(not widths[a][b] for a, b in hops_of(order, closed=False))
