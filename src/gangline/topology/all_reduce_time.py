"""How long an all-reduce takes: latency and bandwidth of the algorithms that NCCL has, over nodes.

- *Ring*: rings through all GPUs of all nodes. Every GPU sends 2(n-1)/n of the bytes in 2(n-1) steps.
- *Tree*: a chain inside each node, two binary trees over the nodes: fewer steps, every byte leaves a node
  twice. (Over two nodes once would do; measurements show no gain from that.)
- *NVLS*: NVSwitches of Hopper and later add up and copy. Every GPU sends each byte to be added and its n-th
  part of the sum, (1 + 1/n) of the bytes, in place of 2(n-1)/n. Over nodes trees join the switches; there a
  byte leaves one of two nodes once.
- *Two-level*: reduce-scatter inside each node, rings over the nodes, all-gather inside. Horovod can do it
  when asked; NCCL does not.

A node here is what one NVLink fabric joins: the GPUs of a machine, or those of all machines of one clique. A
GPU uses the network cards next to it. Sources: nccl-tests, PERFORMANCE.md (cost of a ring); NCCL's tuning
(latencies, protocols, efficiency of reduction in the switch); Sanders, Speck, Träff 2009 (two trees).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, inf, log2

from gangline.topology.link_resources import hops_of, members
from gangline.topology.machine import Machine
from gangline.topology.rates import BITS_PER_BYTE, IN_SWITCH_US, PROTOCOLS, TREE_EFFICIENCY, Protocol
from gangline.topology.rings import DeviceChain, Rings, best_chain, best_rings, in_switch_gb_s

ALGORITHMS = ("ring", "tree", "nvls", "two-level")
DEFAULT_ALGORITHMS = ("ring", "tree", "nvls")
"""Those among which NCCL chooses."""


@dataclass(frozen=True, slots=True)
class Part:
    """The GPUs of a gang on one node.

    Attributes:
        machine: the node's.
        mask: its GPUs.
        clique: those of nodes with one name are joined by NVLink; empty for a node by itself.
    """

    machine: Machine
    mask: int
    clique: str = ""

    @property
    def count(self) -> int:
        """Number of GPUs."""
        return self.mask.bit_count()


@dataclass(frozen=True, slots=True)
class _Island:
    """GPUs that one NVLink fabric joins, of one machine or of several.

    Attributes:
        count: number of GPUs.
        rings: through all of them.
        chain: through all of them.
        in_switch_gb_s: bytes of a tensor that are reduced in the switch, GB/s; 0 where it cannot.
        network: of the cards next to them, GB/s one way.
    """

    count: int
    rings: Rings
    chain: DeviceChain
    in_switch_gb_s: float
    network: float


def _islands(parts: Sequence[Part]) -> list[_Island]:
    joined: dict[str, list[Part]] = {}
    for number, part in enumerate(parts):
        joined.setdefault(part.clique or f"/{number}", []).append(part)
    return [_island(found) for found in joined.values()]


def _island(parts: Sequence[Part]) -> _Island:
    first = min(parts, key=lambda part: part.machine.gpu.nvlink_count * part.machine.gpu.nvlink_gb_s)
    gpu, count = first.machine.gpu, sum(part.count for part in parts)
    if len(parts) == 1:
        in_switch = in_switch_gb_s(first.machine, first.mask)
        rings, chain = best_rings(first.machine, first.mask), best_chain(first.machine, first.mask)
    else:
        links = gpu.nvlink_count
        in_switch = links * gpu.nvlink_gb_s * gpu.in_switch / (1 + 1 / count)
        rate, name = links * gpu.nvlink_gb_s, f"{links} x {gpu.link} into the NVLink domain"
        rings = Rings(rate, ((),), name, True)
        chain = DeviceChain(rate / 2 if count > 2 else rate, (), name)  # inside, a GPU sends both ways
    network = sum(part.machine.network_of(members(part.mask)) for part in parts) / BITS_PER_BYTE
    return _Island(count, rings, chain, in_switch, network)


@dataclass(frozen=True, slots=True)
class AllReduce:
    """A predicted all-reduce.

    Attributes:
        seconds: from the first byte to the last.
        algorithm: ``ring``, ``tree``, ``nvls`` or ``two-level``; empty for a single GPU.
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
    islands = _islands(parts)
    network = min(island.network for island in islands) / oversubscription
    plans = [plan for name in algorithms if (plan := _plan(name, islands, network)) is not None]
    pcie = any(_uses_pcie(part) for part in parts)
    timed = (
        (_seconds(plan, way, pcie, size_bytes), plan, way) for plan in plans for way in _ways(plan, pcie)
    )
    seconds, plan, way = min(timed, key=lambda entry: entry[0])
    factor = 2 * (count - 1) / count
    return AllReduce(seconds, plan.algorithm, way.name, plan.rate_gb_s * factor, plan.bottleneck)


def _ways(plan: _Plan, pcie: bool) -> list[Protocol]:
    if plan.algorithm == "nvls":
        return [way for way in PROTOCOLS if way.name == "Simple"]
    return [way for way in PROTOCOLS if not (pcie and way.nvlink_only)]


def _seconds(plan: _Plan, way: Protocol, pcie: bool, size_bytes: float) -> float:
    base = {"tree": way.tree_base_us, "nvls": IN_SWITCH_US}.get(plan.algorithm, way.ring_base_us)
    near = way.pcie_us if pcie else way.nvlink_us
    latency_us = base + plan.near_steps * near + plan.far_steps * way.network_us
    return latency_us * 1e-6 + size_bytes / (plan.rate_gb_s * 1e9 * way.efficiency)


def _plan(algorithm: str, islands: Sequence[_Island], network: float) -> _Plan | None:
    if algorithm == "ring":
        return _ring(islands, network)
    if algorithm == "tree":
        return _tree(islands, network)
    if algorithm == "nvls":
        return _nvls(islands, network)
    if algorithm == "two-level":
        return _two_level(islands, network)
    raise ValueError(f"`{algorithm}` is no algorithm; known are {', '.join(ALGORITHMS)}")


def _ring(islands: Sequence[_Island], network: float) -> _Plan:
    count, nodes = sum(island.count for island in islands), len(islands)
    steps, factor = 2 * (count - 1), 2 * (count - 1) / count
    if nodes == 1:
        rings = islands[0].rings
        return _Plan("ring", rings.gb_s / factor, steps, 0, rings.bottleneck)
    bus, bottleneck = network, "network card"
    for island in islands:
        if 2 * island.chain.gb_s < bus:  # the rings run through the node in both directions
            bus, bottleneck = 2 * island.chain.gb_s, island.chain.bottleneck
    far = 2 * (nodes - 1)
    return _Plan("ring", bus / factor, steps - far, far, bottleneck)


def _tree(islands: Sequence[_Island], network: float) -> _Plan:
    nodes = len(islands)
    rate, bottleneck = (network / 2, "network card") if nodes > 1 else (inf, "none")
    for island in islands:
        if island.chain.gb_s < rate:
            rate, bottleneck = island.chain.gb_s, island.chain.bottleneck
    near = 2 * (ceil(sum(island.count for island in islands) / nodes) - 1)
    return _Plan("tree", TREE_EFFICIENCY * rate, near, 2 * log2(nodes), bottleneck)


def _nvls(islands: Sequence[_Island], network: float) -> _Plan | None:
    nodes = len(islands)
    if not all(island.in_switch_gb_s for island in islands):
        return None
    slowest = min(islands, key=lambda island: island.in_switch_gb_s)
    rate, bottleneck = slowest.in_switch_gb_s, slowest.rings.bottleneck
    if nodes == 1:
        return _Plan("nvls", rate, 0, 0, bottleneck)
    between = network if nodes == 2 else network / 2
    if between < rate:
        rate, bottleneck = between, "network card"
    return _Plan("nvls", TREE_EFFICIENCY * rate, 0, 2 * log2(nodes), bottleneck)


def _two_level(islands: Sequence[_Island], network: float) -> _Plan:
    """Return the sum of two phases: bytes per second add up as 1/inside + 1/between."""
    nodes = len(islands)
    between = (2 * (nodes - 1) / nodes / network, "network card")
    inside, near = (0.0, "none"), 0
    for island in islands:
        if island.count > 1:
            share = 2 * (island.count - 1) / island.count
            inside = max(inside, (share / island.rings.gb_s, island.rings.bottleneck))
            near = max(near, 2 * (island.count - 1))
    bottleneck = max(between, inside)[1]
    return _Plan("two-level", 1 / (inside[0] + between[0]), near, 2 * (nodes - 1), bottleneck)


def _uses_pcie(part: Part) -> bool:
    order = best_chain(part.machine, part.mask).order
    widths = part.machine.widths
    return len(members(part.mask)) > 1 and any(not widths[a][b] for a, b in hops_of(order, closed=False))
