"""What identifies one cluster of this machine: its port, subnet, bridge, isolation and nodes."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from gangline.clock import format_time, now
from gangline.cluster.daemon.simulation import Simulation
from gangline.cluster.paths import ClusterPaths
from gangline.errors import UserError
from gangline.placement import Policy, SuspensionBounds
from gangline.topology.network import DEFAULT_LEVELS

PORT_FIRST = 16000
PORT_COUNT = 1000
NODES_MAX = 64
ISOLATIONS = ("auto", "network", "user", "plain")
NO_SIMULATION = Simulation()

OWN = "own"
KUBERNETES = "kubernetes"
CONTROL_PLANES = (OWN, KUBERNETES)
"""What serves a cluster's API: our server, or Kubernetes' own programs."""

_SUBNET_POOL = "10.213.0.0/16"
_SUBNET_PREFIX = 20
"""4,094 addresses for each cluster and 16 clusters in the pool."""

ROUTES = Path("/proc/net/route")


class ClusterFacts(msgspec.Struct, frozen=True):
    """The facts of one cluster, kept in ``cluster.json``.

    Attributes:
        name: the cluster's name.
        id: eight hex digits, unique on the machine.
        port: port of HTTPS on loopback, kept over restarts.
        subnet: addresses of the pods, in CIDR notation; used with network isolation.
        bridge: name of the bridge of this cluster, at most 15 characters.
        isolation: what was asked for, one of ``ISOLATIONS``.
        nodes: how many nodes the cluster shows.
        created: RFC 3339.
        keep: ``False`` ends the cluster after idle minutes; ``gangline up`` sets it.
        simulated_gpus: on each node; 0 for none, so that the machine's real ones are used.
        gpu_model: name of the machine that the simulated ones belong to, empty for a plain one.
        control_plane: one of ``CONTROL_PLANES``, for as long as the cluster exists.
        kubelet_port: port at which the API server finds the nodes; 0 for the own server, which needs none.
        has_operator: whether its own operator runs MPIJobs; without it another one brings their definition.
        suspension: who is suspended for whom when it is full.
    """

    name: str
    id: str
    port: int
    subnet: str
    bridge: str
    isolation: str
    nodes: int
    created: str
    keep: bool = False
    simulated_gpus: int = 0
    gpu_model: str = ""
    control_plane: str = OWN
    kubelet_port: int = 0
    has_operator: bool = True
    suspension: SuspensionBounds = SuspensionBounds()

    @property
    def node_names(self) -> list[str]:
        """Names of the nodes, in order."""
        return [node_name(index) for index in range(self.nodes)]

    @property
    def metrics_url(self) -> str:
        """Where every process' figures are, for the administrator: at the API, else at the nodes' port."""
        port = self.kubelet_port if self.control_plane == KUBERNETES else self.port
        return f"https://127.0.0.1:{port}/metrics"


def policy_of(facts: ClusterFacts | None) -> Policy:
    """Return how the scheduler of a one-machine cluster decides; by default where its facts are not at hand.

    All nodes are one machine: no wire between them is worth waiting for.
    """
    bounds = facts.suspension if facts is not None else SuspensionBounds()
    return Policy(levels=DEFAULT_LEVELS, whole_for_s=0.0, suspension=bounds)


def node_name(index: int) -> str:
    """Return the name of a node, counted from 0."""
    return f"node-{index}"


def load_facts(paths: ClusterPaths) -> ClusterFacts | None:
    """Return the facts, ``None`` when there are none that can be read."""
    try:
        return msgspec.json.decode(paths.facts.read_bytes(), type=ClusterFacts)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def refuse_another_plane(facts: ClusterFacts | None, wanted: str) -> None:
    """Refuse another control plane than a cluster has: its objects are there. Empty for whatever it has.

    Raises:
        UserError: with the ways on.
    """
    if facts is not None and wanted not in ("", facts.control_plane):
        raise UserError(
            f"cluster `{facts.name}` keeps its objects in control plane `{facts.control_plane}`, `{wanted}` "
            "was asked for",
            hint=f"use another cluster: --cluster NAME; or remove this one with all that it holds: "
            f"gangline down --purge --cluster {facts.name}",
        )


def refuse_another_operator(facts: ClusterFacts, wanted: bool | None) -> None:
    """Refuse to take the operator from a running cluster, or to give it one. None is whatever it has.

    Raises:
        UserError: with the way on.
    """
    if wanted not in (None, facts.has_operator):
        raise UserError(
            f"cluster `{facts.name}` runs {'with' if facts.has_operator else 'without'} its own operator for "
            f"MPIJobs, `--{'' if wanted else 'no-'}operator` was asked for",
            hint=f"stop it first: gangline down --cluster {facts.name}",
        )


def refuse_other_bounds(facts: ClusterFacts, wanted: SuspensionBounds | None) -> None:
    """Refuse to change whom the scheduler of a running cluster suspends. None is whatever it has.

    Raises:
        UserError: with what differs and the way on.
    """
    has, asked = asdict(facts.suspension), asdict(wanted or facts.suspension)
    if other := {name: value for name, value in asked.items() if value != has[name]}:
        raise UserError(
            f"cluster `{facts.name}` suspends jobs with "
            f"{', '.join(f'{name}={has[name]:g}' for name in other)}, "
            f"{', '.join(f'{name}={value:g}' for name, value in other.items())} was asked for",
            hint=f"stop it first: gangline down --cluster {facts.name}",
        )


def save_facts(paths: ClusterPaths, facts: ClusterFacts) -> None:
    """Write the facts whole, by rename."""
    fresh = paths.facts.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n")
    fresh.replace(paths.facts)


def note_use(paths: ClusterPaths) -> None:
    """Note that a command uses the cluster now; an unused one may end itself."""
    try:
        (paths.state / "last-used").touch(mode=0o600)
    except OSError:
        pass  # no folder yet, or a full disk: the use is noted by the next command


def last_used(paths: ClusterPaths) -> float:
    """Return when a command last used the cluster, in seconds since the epoch; 0 when never."""
    try:
        return (paths.state / "last-used").stat().st_mtime
    except OSError:
        return 0.0


def decide_facts(
    paths: ClusterPaths,
    previous: ClusterFacts | None,
    *,
    nodes: int,
    isolation: str,
    keep: bool,
    simulation: Simulation = NO_SIMULATION,
    control_plane: str = OWN,
    has_operator: bool = True,
    suspension: SuspensionBounds | None = None,
) -> ClusterFacts:
    """Return the facts for a server that is about to start.

    Port, subnet and creation time are kept where they are still free; a wanted ``auto`` keeps what was.
    """
    chosen = previous or ClusterFacts(
        name=paths.name,
        id=paths.cluster_id,
        port=PORT_FIRST + int(paths.cluster_id, 16) % PORT_COUNT,
        subnet="",
        bridge=f"gl-{paths.cluster_id}",
        isolation=isolation,
        nodes=max(1, nodes),
        created=format_time(now()),
        control_plane=control_plane,
    )
    port = free_port(chosen.port)
    kubelet_port = free_port(chosen.kubelet_port or port + 1) if chosen.control_plane == KUBERNETES else 0
    routes = read_routes(ignore_interface=chosen.bridge)
    return replace(
        chosen,
        port=port,
        kubelet_port=kubelet_port,
        subnet=free_subnet(chosen.subnet, paths.cluster_id, routes),
        isolation=isolation,
        nodes=max(1, nodes),
        keep=keep,
        simulated_gpus=simulation.gpus,
        gpu_model=simulation.model,
        has_operator=has_operator,
        suspension=suspension or chosen.suspension,
    )


def free_port(preferred: int) -> int:
    """Return the preferred port when nobody listens there, else the next free one of the range."""
    start = preferred - PORT_FIRST
    for step in range(PORT_COUNT):
        port = PORT_FIRST + (start + step) % PORT_COUNT
        if is_port_free(port):
            return port
    raise OSError(f"no free port between {PORT_FIRST} and {PORT_FIRST + PORT_COUNT - 1}")


def is_port_free(port: int) -> bool:
    """Return whether this process could listen on that port of loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def read_routes(*, ignore_interface: str = "", table: Path = ROUTES) -> list[ipaddress.IPv4Network]:
    """Return the machine's IPv4 routes except default routes and those of one interface (Linux)."""
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return []
    routes = []
    for line in lines:
        columns = line.split()
        if len(columns) < 8 or columns[0] == ignore_interface or columns[7] == "00000000":
            continue
        address = int.from_bytes(bytes.fromhex(columns[1]), "little")
        prefix = int.from_bytes(bytes.fromhex(columns[7]), "little").bit_count()
        routes.append(ipaddress.IPv4Network((address, prefix), strict=False))
    return routes


def free_subnet(preferred: str, seed: str, routes: list[ipaddress.IPv4Network]) -> str:
    """Return a subnet that no route meets: the preferred one, else the first free one from the seed's on.

    When every subnet of the pool is taken the seed's own is returned: the node agent then fails with the
    name of the route that is in the way, which is better than a wrong guess.
    """
    pool = ipaddress.IPv4Network(_SUBNET_POOL)
    subnets = list(pool.subnets(new_prefix=_SUBNET_PREFIX))
    first = int(seed, 16) % len(subnets)
    candidates = [ipaddress.IPv4Network(preferred)] if preferred else []
    candidates += subnets[first:] + subnets[:first]
    for candidate in candidates:
        if not any(candidate.overlaps(route) for route in routes):
            return str(candidate)
    return str(candidates[0])
