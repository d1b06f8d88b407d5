"""Entry of the node agent: choose the isolation, wire the parts, serve."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from gangline import __version__
from gangline.cluster.node import machine
from gangline.cluster.node.isolation import Isolation, choose_isolation, end_orphans, enter_user_namespace
from gangline.cluster.node.network.addresses import LOOPBACK_POOL, NODE_ADDRESSES, AddressPool
from gangline.cluster.node.network.host_names import NameRegistry
from gangline.cluster.node.rank_reports import RankReports
from gangline.cluster.node.shim_client import ForkServer
from gangline.cluster.paths import ClusterPaths

if TYPE_CHECKING:
    from gangline.cluster.node.agent import NodeAgent
    from gangline.cluster.node.context import AgentContext, Objects
    from gangline.cluster.node.gpus import AgentGpus
    from gangline.cluster.node.network.pod_network import PodNetwork

_LOOPBACK = "127.0.0.1"


class PinnedPaths(ClusterPaths, frozen=True):
    """Paths whose folder of sockets is decided once: inside a user namespace the user id is another."""

    run_folder: Path = Path()

    @property
    def run(self) -> Path:
        """Folder of the sockets, as seen before the user namespace was entered."""
        return self.run_folder


def enter_isolation(
    paths: ClusterPaths, wanted: str | None
) -> tuple[Isolation, str, ClusterPaths, ForkServer | None]:
    """Choose the mode and enter the user namespace if it needs one; the process must have one thread.

    Returns:
        The mode, why it was chosen, paths that stay valid inside, and the fork server that stayed outside.
    """
    outside: ForkServer | None = None
    mode, reason = choose_isolation(wanted or "auto")
    pinned = PinnedPaths(name=paths.name, state=paths.state, run_folder=paths.run)
    if mode == "user":
        if threading.active_count() > 1:
            raise RuntimeError("a user namespace can only be entered before threads are started")
        end_orphans(paths.cluster_id, pinned.run)
        outside = ForkServer(paths.log("shims"), can_restart=False)
        outside.start()
        shims = [path for path in pinned.run.glob("*.sock") if len(path.stem) == 36]
        enter_user_namespace(shims)
    return mode, reason, pinned, outside


async def run_agent(paths: ClusterPaths, *, isolation: str | None = None, client: Any = None) -> None:
    """Run the pods of this machine's nodes until cancelled; pods outlive it.

    Args:
        paths: of the cluster; its ``cluster.json`` tells subnet, bridge and port.
        isolation: ``network``, ``user``, ``plain``; None or ``auto`` takes the first that works.
        client: of the API; by default one of the agent's own.

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
    from gangline.cluster.api_access import api_connection
    from gangline.cluster.control_plane.identities import AGENT
    from gangline.kube.client import Client

    own = client or Client(api_connection(paths, AGENT), user_agent="gangline-agent")
    network: PodNetwork | None = None
    fork_server = None
    try:
        facts = json.loads(paths.facts.read_text(encoding="utf-8")) if paths.facts.exists() else {}
        for folder in (paths.state, paths.run, paths.pods, paths.logs, paths.names):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        from gangline.cluster.node.gpus import open_gpus

        fork_server = ForkServer(paths.log("shims"))
        fork_server.start()
        names = NameRegistry(hosts_folder=paths.state / "hosts", names_folder=paths.names, pods=paths.pods)
        if mode == "network":
            network = await _open_network(paths, facts, names)
        gpus = await open_gpus(facts, log)
        fork_servers = (fork_server, outside or fork_server)
        agent = _wire(paths, own, fork_servers, network, names, mode, facts, gpus, log, rank_reports)
        await agent.run()
    finally:
        rank_reports.stop()
        for one in (fork_server, outside):
            if one is not None:
                one.stop()
        if network is not None:
            await network.close(remove_bridge=not any(paths.pods.iterdir()))
        if client is None:
            await own.close()


async def _open_network(paths: ClusterPaths, facts: dict[str, Any], names: NameRegistry) -> PodNetwork:
    from gangline.cluster.node.network.pod_network import PodNetwork

    bridge = facts.get("bridge") or f"gl-{paths.cluster_id}"
    subnet = facts.get("subnet") or "10.213.0.0/20"
    network = PodNetwork(
        cluster_id=paths.cluster_id,
        bridge=bridge,
        subnet=subnet,
        resolv=paths.state / "resolv.conf",
        hosts=names.hosts,
        is_one_node=bool(facts.get("kubelet_port")),
    )
    await network.open()
    return network


def _wire(
    paths: ClusterPaths,
    client: Any,
    fork_servers: tuple[ForkServer, ForkServer],
    network: PodNetwork | None,
    names: NameRegistry,
    mode: Isolation,
    facts: dict[str, Any],
    gpus: AgentGpus,
    log: Any,
    rank_reports: RankReports,
) -> NodeAgent:
    from gangline.api.core import ConfigMap, EndpointSlice, Node, Pod, Secret, Service
    from gangline.api.resources import CONFIG_MAPS, ENDPOINT_SLICES, NODES, PODS, SECRETS, SERVICES
    from gangline.cluster.node.agent import NodeAgent
    from gangline.cluster.node.context import Objects
    from gangline.cluster.node.node_status import NodeKeeper
    from gangline.kube.cache import Cache

    config_maps: Cache[ConfigMap] = Cache(client, CONFIG_MAPS, ConfigMap)
    secrets: Cache[Secret] = Cache(client, SECRETS, Secret)
    services: Cache[Service] = Cache(client, SERVICES, Service)
    if network is not None:
        network.way_out.lead_to_services(services, Cache(client, ENDPOINT_SLICES, EndpointSlice))
    objects = Objects(client, config_maps, secrets, paths.certificates, services=services)
    port = int(facts.get("port", 0))
    context = _context(
        paths, client, fork_servers, network, names, mode, port, objects, gpus, log, rank_reports
    )
    keeper = NodeKeeper(
        client,
        address_of=context.host_ip,
        isolation=mode,
        capacity=context.allocatable,
        gpus=gpus.of_node,
        info=machine.node_info(__version__),
        log=log,
        kubelet_port=int(facts.get("kubelet_port", 0)),
        devices=context.plugins.amounts,
    )
    return NodeAgent(
        context,
        keeper,
        pods=Cache(client, PODS, Pod),
        nodes=Cache(client, NODES, Node),
        config_maps=config_maps,
        secrets=secrets,
        services=services,
    )


def _context(
    paths: ClusterPaths,
    client: Any,
    fork_servers: tuple[ForkServer, ForkServer],
    network: PodNetwork | None,
    names: NameRegistry,
    mode: Isolation,
    api_port: int,
    objects: Objects,
    gpus: AgentGpus,
    log: Any,
    rank_reports: RankReports,
) -> AgentContext:
    from gangline.cluster.images.local_images import write_image_programs, write_programs
    from gangline.cluster.images.shipped_images import write_layers
    from gangline.cluster.node.context import AgentContext
    from gangline.cluster.node.device_plugins import DevicePlugins
    from gangline.cluster.node.ends import PodEnds
    from gangline.cluster.node.image_sources import ImageSources
    from gangline.cluster.node.sessions import Sessions
    from gangline.kube.events import Recorder

    images = ImageSources(client, paths, mode)
    bin_folder = paths.state / "bin"
    write_programs(bin_folder)
    write_image_programs(paths.state / "image-bin")
    write_layers(paths.state / "shipped")
    hide = machine.hidden_folders(paths.state)
    private = machine.private_folders(paths)
    offset = int(paths.cluster_id, 16)
    return AgentContext(
        paths=paths,
        cluster_id=paths.cluster_id,
        isolation=mode,
        client=client,
        recorder=Recorder(client, "gangline-agent"),
        fork_server=fork_servers[0],
        own_fork_server=fork_servers[1],
        sessions=Sessions(client, paths),
        network=network,
        addresses=AddressPool(str(network.subnet), kept=NODE_ADDRESSES)
        if network
        else AddressPool(LOOPBACK_POOL, offset=offset),
        names=names,
        images=images,
        objects=objects,
        gpus=gpus,
        plugins=DevicePlugins(paths.run, gpus.inventory, log, private),
        ends=PodEnds(paths.ends, client, log),
        api_host=network.gateway if network is not None else _LOOPBACK,
        api_port=api_port,
        allocatable=machine.capacity(paths.state),
        bin=bin_folder,
        hide=hide,
        private=private,
        start_folders=_start_folders(),
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
    folders = (own / "mpi_check", own / "rank_hook")
    return os.pathsep.join(str(folder) for folder in folders if folder.is_dir())
