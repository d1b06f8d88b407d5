"""Entry of the node agent: choose the isolation, wire the parts, serve."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from gangline import __version__
from gangline.local.agent import machine
from gangline.local.agent.addresses import LOOPBACK_POOL, AddressPool
from gangline.local.agent.isolation import Isolation, choose_isolation, end_orphans, enter_user_namespace
from gangline.local.agent.names import NameRegistry
from gangline.local.agent.rank_reports import RankReports
from gangline.local.agent.shim_client import Nursery
from gangline.local.paths import ClusterPaths

if TYPE_CHECKING:
    from gangline.local.agent.agent import NodeAgent
    from gangline.local.agent.context import AgentContext, Objects
    from gangline.local.agent.gpus import AgentGpus
    from gangline.local.agent.network import Network

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class PinnedPaths(ClusterPaths):
    """Paths whose folder of sockets is decided once: inside a user namespace the user id is another."""

    run_folder: Path = Path()

    @property
    def run(self) -> Path:
        """Folder of the sockets, as seen before the user namespace was entered."""
        return self.run_folder


def enter_isolation(
    paths: ClusterPaths, wanted: str | None
) -> tuple[Isolation, str, ClusterPaths, Nursery | None]:
    """Choose the mode and enter the user namespace if it needs one; the process must have one thread.

    Returns:
        The mode, why it was chosen, paths that stay valid inside, and the nursery that stayed outside.
    """
    outside: Nursery | None = None
    mode, reason = choose_isolation(wanted or "auto")
    pinned = PinnedPaths(name=paths.name, state=paths.state, run_folder=paths.run)
    if mode == "user":
        if threading.active_count() > 1:
            raise RuntimeError("a user namespace can only be entered before threads are started")
        end_orphans(paths.cluster_id, pinned.run)
        outside = Nursery(paths.log("shims"), can_restart=False)
        outside.start()
        shims = [path for path in pinned.run.glob("*.sock") if len(path.stem) == 36]
        enter_user_namespace(shims)
    return mode, reason, pinned, outside


async def run_agent(paths: ClusterPaths, *, isolation: str | None = None, client: Any = None) -> None:
    """Run the pods of this machine's nodes until cancelled; pods outlive it.

    Args:
        paths: of the cluster; its ``cluster.json`` tells subnet, bridge and port.
        isolation: ``network``, ``user``, ``plain``; None or ``auto`` takes the first that works.
        client: of the API; by default one over the cluster's own socket.

    Raises:
        UserError: the isolation does not work on this machine.
        ClusterError: bridge or namespaces cannot be made.
    """
    log = structlog.get_logger("gangline.agent")
    rank_reports = RankReports()
    rank_reports.start()
    mode, reason, paths, outside = enter_isolation(paths, isolation)
    log.info("isolation chosen", isolation=mode, reason=reason)
    # What is written for a pod is read by any user in it; the folders around it are this user's alone.
    os.umask(0o022)
    from gangline.kube.client import Client
    from gangline.kube.config import Connection

    own = client or Client(Connection(server=f"unix://{paths.api_socket}"), user_agent="gangline-agent")
    network: Network | None = None
    nursery = None
    try:
        facts = json.loads(paths.facts.read_text(encoding="utf-8")) if paths.facts.exists() else {}
        for folder in (paths.state, paths.run, paths.pods, paths.logs, paths.names):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        from gangline.local.agent.gpus import open_gpus

        nursery = Nursery(paths.log("shims"))
        nursery.start()
        names = NameRegistry(hosts_folder=paths.state / "hosts", names_folder=paths.names)
        if mode == "network":
            network = await _open_network(paths, facts, names)
        gpus = await open_gpus(facts, log)
        nurseries = (nursery, outside or nursery)
        agent = _wire(paths, own, nurseries, network, names, mode, facts, gpus, log, rank_reports)
        await agent.run()
    finally:
        rank_reports.stop()
        for one in (nursery, outside):
            if one is not None:
                one.stop()
        if network is not None:
            await network.close(remove_bridge=not any(paths.pods.iterdir()))
        if client is None:
            await own.close()


async def _open_network(paths: ClusterPaths, facts: dict[str, Any], names: NameRegistry) -> Network:
    from gangline.local.agent.network import Network

    bridge = facts.get("bridge") or f"gl-{paths.cluster_id}"
    subnet = facts.get("subnet") or "10.213.0.0/20"
    network = Network(
        cluster_id=paths.cluster_id,
        bridge=bridge,
        subnet=subnet,
        resolv=paths.state / "resolv.conf",
        hosts=names.hosts,
    )
    await network.open()
    return network


def _wire(
    paths: ClusterPaths,
    client: Any,
    nurseries: tuple[Nursery, Nursery],
    network: Network | None,
    names: NameRegistry,
    mode: Isolation,
    facts: dict[str, Any],
    gpus: AgentGpus,
    log: Any,
    rank_reports: RankReports,
) -> NodeAgent:
    from gangline.api.core import ConfigMap, Node, Pod, Secret
    from gangline.api.resources import CONFIG_MAPS, NODES, PODS, SECRETS
    from gangline.kube.cache import Cache
    from gangline.local.agent.agent import NodeAgent
    from gangline.local.agent.context import Objects
    from gangline.local.agent.node_status import NodeKeeper

    config_maps: Cache[ConfigMap] = Cache(client, CONFIG_MAPS, ConfigMap)
    secrets: Cache[Secret] = Cache(client, SECRETS, Secret)
    objects = Objects(client, config_maps, secrets, paths.certificates, paths.pods)
    port = int(facts.get("port", 0))
    context = _context(paths, client, nurseries, network, names, mode, port, objects, gpus, log, rank_reports)
    keeper = NodeKeeper(
        client,
        address=context.host_ip,
        isolation=mode,
        capacity=context.allocatable,
        gpus=gpus.of_node,
        info=machine.node_info(__version__),
        log=log,
    )
    return NodeAgent(
        context,
        keeper,
        pods=Cache(client, PODS, Pod),
        nodes=Cache(client, NODES, Node),
        config_maps=config_maps,
        secrets=secrets,
    )


def _context(
    paths: ClusterPaths,
    client: Any,
    nurseries: tuple[Nursery, Nursery],
    network: Network | None,
    names: NameRegistry,
    mode: Isolation,
    api_port: int,
    objects: Objects,
    gpus: AgentGpus,
    log: Any,
    rank_reports: RankReports,
) -> AgentContext:
    from gangline.kube.events import Recorder
    from gangline.local.agent.context import AgentContext
    from gangline.local.agent.ends import PodEnds
    from gangline.local.agent.image_sources import ImageSources
    from gangline.local.agent.sessions import Sessions
    from gangline.local.images import write_image_programs, write_programs
    from gangline.local.shipped_images import write_layers

    images = ImageSources(client, paths, mode)
    bin_folder = paths.state / "bin"
    write_programs(bin_folder)
    write_image_programs(paths.state / "image-bin")
    write_layers(paths.state / "shipped")
    host_ip = network.gateway if network is not None else _LOOPBACK
    hide = machine.hidden_folders(paths.state)
    offset = int(paths.cluster_id, 16)
    return AgentContext(
        paths=paths,
        cluster_id=paths.cluster_id,
        isolation=mode,
        client=client,
        recorder=Recorder(client, "gangline-agent"),
        nursery=nurseries[0],
        own_nursery=nurseries[1],
        sessions=Sessions(client, paths),
        network=network,
        addresses=AddressPool(str(network.subnet)) if network else AddressPool(LOOPBACK_POOL, offset=offset),
        names=names,
        images=images,
        objects=objects,
        gpus=gpus,
        ends=PodEnds(paths.ends, client, log),
        host_ip=host_ip,
        api_host=host_ip,
        api_port=api_port,
        allocatable=machine.capacity(paths.state),
        bin=bin_folder,
        hide=hide,
        guard=_start_folders(),
        log=log,
        rank_reports=rank_reports,
        host_mounts=lambda: machine.host_mounts(hide),
    )


def _start_folders() -> str:
    """Return the folders of what every Python of a pod imports at its start, as PYTHONPATH has them.

    The one checks that a script's MPI is the launcher's, the other lets a rank be asked where it is.
    """
    from gangline import launch

    own = Path(os.path.realpath(launch.__file__)).parent
    folders = (own / "mpi_guard", own / "rank_hook")
    return os.pathsep.join(str(folder) for folder in folders if folder.is_dir())
