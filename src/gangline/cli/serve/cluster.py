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
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from gangline.cluster.paths import ClusterPaths
from gangline.cluster.process_lock import ProcessLock
from gangline.cluster.service_log import ServiceLog
from gangline.errors import ClusterError, UserError

if TYPE_CHECKING:
    from gangline.cluster.daemon.cluster_facts import ClusterFacts
    from gangline.kube.verbs import ObjectClient


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

    supervisor = AgentSupervisor(paths)
    supervisor.start()
    stopped = _stop_event()
    addresses = _bridge_addresses(facts)
    certificates = await _make_certificates(paths, addresses)
    _quiet_logs()
    with _no_authorities():
        from gangline.cluster.server.server import ApiServer
    from gangline.cluster.daemon.readiness import CONTROLLERS_STARTED
    from gangline.kube.client import Client
    from gangline.kube.config import Connection
    from gangline.kube.http_paths import PathAnswer

    server = ApiServer(paths, port=facts.port, extra_addresses=addresses)
    if certificates is not None:
        await certificates.wait()  # the server makes what is then missing, and says why it cannot
    await server.start()
    server.context.pages[CONTROLLERS_STARTED] = lambda: PathAnswer(503, b"not started yet")
    imported = asyncio.create_task(asyncio.to_thread(import_module, "gangline.cli.serve.services"))
    try:
        async with Client(
            Connection(server=f"unix://{paths.api_socket}"), user_agent="gangline-server"
        ) as client:
            await _bootstrap(client, facts)
            run_services = (await imported).run_services
            running = run_services(client, paths, supervisor, server.context.pages, server.on_kind_in_use)
            services = asyncio.create_task(running)
            await _first_of(services, stopped)
        await supervisor.stop()  # not when the server fails: the agent starts it again
    finally:
        await server.stop()


async def _make_certificates(paths: ClusterPaths, addresses: list[str]) -> asyncio.subprocess.Process | None:
    """Start a process that makes the server's certificates while the server's libraries are imported.

    None when there is nothing to make.
    """
    import socket

    from gangline.cluster.server.http.certificates import Certificates

    names = [*addresses, socket.gethostname()]
    if Certificates(paths.certificates, names).are_current():
        return None
    module = "gangline.cluster.server.http.certificates"
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, str(paths.certificates), *names, stderr=asyncio.subprocess.DEVNULL
    )


@contextmanager
def _no_authorities() -> Iterator[None]:
    """Let aiohttp be imported without the machine's certificate authorities.

    It loads them into two TLS contexts for a client's use (40 ms, 2 MB); the server has no such client.
    """
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(dict.fromkeys(names, os.devnull))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
        os.environ.update(before)


async def _bootstrap(client: ObjectClient, facts: ClusterFacts) -> None:
    """Create what every cluster of this kind has: the job kinds, the nodes and the API server's Service."""
    from gangline.api.crds import crds, gang_crds
    from gangline.api.resources import NODES
    from gangline.cluster.daemon.api_service import api_service
    from gangline.cluster.daemon.cluster import node_object
    from gangline.kube.definitions import ensure
    from gangline.kube.errors import AlreadyExists

    for manifest in (*crds(), *gang_crds()):
        await ensure(client, manifest)
    address = next(iter(_bridge_addresses(facts)), "127.0.0.1")
    objects = [(NODES, node_object(name)) for name in facts.node_names]
    for resource, obj in (*objects, *api_service(address, facts.port)):
        try:
            await client.create(resource, obj)
        except AlreadyExists:
            pass


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
