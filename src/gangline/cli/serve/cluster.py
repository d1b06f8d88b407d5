"""``serve-cluster`` and ``serve-agent``: the daemons of the one-machine cluster, wired together here.

Hidden commands; ``cluster/daemon/cluster.py`` starts the first, which starts the second. The agent is started
before the server imports its libraries, so that both import at the same time. Each starts the other again
when that is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from gangline.cluster.paths import ClusterPaths
from gangline.cluster.process_lock import ProcessLock
from gangline.cluster.service_log import ServiceLog
from gangline.errors import ClusterError, UserError

if TYPE_CHECKING:
    from gangline.cli.serve.control_plane import ControlPlane, FirstObject, Objects
    from gangline.cluster.daemon.cluster_facts import ClusterFacts


@click.command("serve-cluster", hidden=True)
@click.option("--cluster", "name", default="default")
def serve_cluster(name: str) -> int:
    """Serve the API, the controllers, the operator and the scheduler until SIGTERM."""
    return _serve(name, "server", "a server", _serve_cluster)


@click.command("serve-agent", hidden=True)
@click.option("--cluster", "name", default="default")
def serve_agent(name: str) -> int:
    """Run the pods of the cluster's nodes until SIGTERM; the agent of a killed one adopts its pods."""
    from gangline.cli.serve.server_supervisor import fork_server_supervisor

    return _serve(name, "agent", "a node agent", _serve_agent, fork_server_supervisor)


def _serve(
    name: str,
    process: str,
    title: str,
    run: Callable[[ClusterPaths, ClusterFacts], Coroutine[Any, Any, None]],
    beside: Callable[[ClusterPaths, ProcessLock], object] = lambda paths, lock: None,
) -> int:
    """Run one of the two daemons under its lock; ``beside`` is called before its event loop starts.

    One that fails leaves its lock as if it was killed: the other one starts it again.
    """
    sys.modules["rich"] = None  # type: ignore[assignment]
    # structlog imports it for terminals where it can: 50 ms of processor time and 4 MB, of either daemon.
    from gangline.cluster.daemon.cluster_facts import load_facts

    paths = ClusterPaths.of(name)
    lock = ProcessLock(paths.lock(process))
    if not lock.acquire():
        raise ClusterError(f"{title} of cluster `{name}` is already running")
    with lock:
        sys.stdout = sys.stderr = cast(TextIO, ServiceLog(paths.log(process)))
        facts = load_facts(paths)
        if facts is None:
            raise ClusterError(f"cluster `{name}` has no `{paths.facts}`; start it with `gangline up`")
        beside(paths, lock)
        try:
            asyncio.run(run(paths, facts))
        except UserError:
            raise  # it would be refused again
        except BaseException:
            lock.abandon()
            raise
    return 0


async def _serve_agent(paths: ClusterPaths, facts: ClusterFacts) -> None:
    from gangline.cluster.daemon.agent_refusal import note_refusal
    from gangline.cluster.node.main import run_agent

    _quiet_logs()
    agent = asyncio.create_task(run_agent(paths, isolation=facts.isolation))
    stopped = _stop_event()
    try:
        await _first_of(agent, stopped)
    except UserError as error:
        note_refusal(paths, error)
        raise


async def _serve_cluster(paths: ClusterPaths, facts: ClusterFacts) -> None:
    from gangline.cli.serve.agent_supervisor import AgentSupervisor

    addresses = _bridge_addresses(facts)
    stopped = _stop_event()
    supervisor = AgentSupervisor(paths)
    plane = _control_plane(paths, facts, addresses)
    await plane.prepare()
    supervisor.start()
    _quiet_logs()
    try:
        await plane.start()
        await _bootstrap(paths, facts, plane.first_objects(next(iter(addresses), "127.0.0.1")))
        run_services = await plane.import_services()
        services = asyncio.create_task(run_services(plane, paths, facts, supervisor, addresses))
        await _first_of(services, stopped)
        await supervisor.stop()  # not when the server fails: the agent starts it again
    finally:
        await plane.stop()


def _control_plane(paths: ClusterPaths, facts: ClusterFacts, addresses: list[str]) -> ControlPlane:
    """Return what serves the cluster, on loopback and those addresses; not started."""
    from gangline.cluster.daemon.cluster_facts import KUBERNETES

    if facts.control_plane == KUBERNETES:
        from gangline.cli.serve.kubernetes_plane import KubernetesPlane

        return KubernetesPlane(paths, facts, addresses)
    from gangline.cli.serve.own_server import OwnServer

    return OwnServer(paths, facts, addresses)


async def _bootstrap(paths: ClusterPaths, facts: ClusterFacts, objects: Objects) -> None:
    """Create what every cluster of this kind has: its own objects, the job kinds and the nodes."""
    from gangline.api.crds import crds, gang_crds
    from gangline.api.resources import CLUSTER_TRAINING_RUNTIMES, NODES
    from gangline.api.trainer.bundled import bundled_runtimes
    from gangline.cluster.api_access import api_connection
    from gangline.cluster.daemon.readiness import node_object
    from gangline.kube.client import Client
    from gangline.kube.definitions import create_first, ensure
    from gangline.kube.errors import AlreadyExists

    async with Client(api_connection(paths), user_agent="gangline-server") as client:

        async def create(one: FirstObject) -> None:
            with suppress(AlreadyExists):
                await client.create(*one)

        nodes = [(NODES, node_object(name)) for name in facts.node_names]
        await asyncio.gather(*(create(one) for one in (*objects, *nodes)))
        definitions = (*(crds() if facts.has_operator else ()), *gang_crds())
        await asyncio.gather(*(ensure(client, manifest) for manifest in definitions))
        runtimes = bundled_runtimes() if facts.has_operator else []
        await asyncio.gather(*(create_first(client, CLUSTER_TRAINING_RUNTIMES, one) for one in runtimes))


def _bridge_addresses(facts: ClusterFacts) -> list[str]:
    """Return the address on the bridge at which pods reach the API; only network isolation has one."""
    from ipaddress import IPv4Network

    if facts.isolation not in ("auto", "network") or sys.platform != "linux" or os.getuid() != 0:
        return []
    return [str(IPv4Network(facts.subnet)[1])]


def _stop_event() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    return stopped


async def run_until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run a service until SIGTERM or SIGINT, with its log on standard error; its failure is raised."""
    _quiet_logs()
    await _first_of(asyncio.ensure_future(work), _stop_event())


async def _first_of(work: asyncio.Task[None], stopped: asyncio.Event) -> None:
    """Wait for the work to end, which raises its error, or for the stop; then the work is cancelled."""
    waiter = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait((work, waiter), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()
    if not work.done():
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return
    work.result()


def _quiet_logs() -> None:
    """Write the services' logs as one line each with a time, from level info on."""
    import structlog

    if not isinstance(cast(object, sys.stderr), ServiceLog):
        sys.stderr = cast(TextIO, ServiceLog())

    structlog.configure(
        processors=[
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "event"], bool_as_flag=False
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
