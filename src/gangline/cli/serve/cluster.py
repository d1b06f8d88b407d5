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
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from gangline.cluster.paths import ClusterPaths
from gangline.cluster.process_lock import ProcessLock
from gangline.cluster.service_log import ServiceLog
from gangline.errors import ClusterError, UserError

if TYPE_CHECKING:
    from gangline.cli.serve.agent_supervisor import AgentSupervisor
    from gangline.cluster.controllers.inventory import InUse
    from gangline.cluster.daemon.cluster_facts import ClusterFacts
    from gangline.kube.http_paths import PathAnswer
    from gangline.kube.metrics import MetricsPage
    from gangline.kube.verbs import ObjectClient
    from gangline.operator.operator import Operator
    from gangline.operator.statistics import OperatorStatistics


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
    _quiet_logs()
    from gangline.cluster.server.server import ApiServer
    from gangline.kube.client import Client
    from gangline.kube.config import Connection

    server = ApiServer(paths, port=facts.port, extra_addresses=_bridge_addresses(facts))
    await server.start()
    try:
        async with Client(
            Connection(server=f"unix://{paths.api_socket}"), user_agent="gangline-server"
        ) as client:
            await _bootstrap(client, facts)
            running = _run_services(client, paths, supervisor, server.context.pages, server.on_kind_in_use)
            services = asyncio.create_task(running)
            await _first_of(services, stopped)
        await supervisor.stop()  # not when the server fails: the agent starts it again
    finally:
        await server.stop()


async def _run_services(
    client: ObjectClient,
    paths: ClusterPaths,
    supervisor: AgentSupervisor,
    pages: dict[str, Callable[[], PathAnswer]],
    in_use: InUse,
) -> None:
    """Run everything that works against the API; the first of them to fail ends the server."""
    from gangline.cli.serve.idle_end import end_when_idle
    from gangline.cluster.controllers.all import run_controllers
    from gangline.cluster.runs.bounds import Bounds
    from gangline.cluster.runs.history import History
    from gangline.cluster.server.resources import STORED_KINDS
    from gangline.jobs.settings import Settings
    from gangline.operator.operator import Operator
    from gangline.placement import Policy
    from gangline.scheduler.scheduler import DEFAULT_NAMES, Scheduler
    from gangline.topology.network import DEFAULT_LEVELS

    settings = Settings(has_remote_shell=True, gang_scheduling=DEFAULT_NAMES[0])
    operator = Operator(client, settings=settings)
    pages["/metrics"] = _metrics_answer(operator, client)
    bounds = Bounds.of(os.environ)
    policy = Policy(levels=DEFAULT_LEVELS)
    authority = (paths.certificates / "ca.crt").read_text()
    try:
        async with asyncio.TaskGroup() as services:
            controllers = run_controllers(
                client, STORED_KINDS, History(paths), bounds, authority, paths.volumes, in_use
            )
            services.create_task(controllers, name="controllers")
            services.create_task(operator.run(), name="operator")
            services.create_task(Scheduler(client, policy=policy).run(), name="scheduler")
            services.create_task(supervisor.run(), name="agent supervisor")
            services.create_task(end_when_idle(client, paths), name="idle end")
    finally:
        _log_statistics(operator.statistics())


def _metrics_answer(operator: Operator, client: ObjectClient) -> Callable[[], PathAnswer]:
    """Return what answers with the operator's figures; their library, 3 MB, is loaded when first asked."""

    @cache
    def page() -> MetricsPage:
        from gangline.kube.metrics import MetricsPage
        from gangline.operator.metrics import operator_metrics

        return MetricsPage(lambda: operator_metrics(operator.statistics()), client.answers)

    return lambda: page().answer()


def _log_statistics(operator: OperatorStatistics) -> None:
    """Leave the operator's figures in the log at the end; the benchmarks read them there."""
    import structlog

    structlog.get_logger().info(
        "operator stopped",
        jobs_created=operator.jobs_created,
        reconciles=operator.reconcile.count,
        reconcile_p50_ms=operator.reconcile.p50_ms,
        reconcile_p99_ms=operator.reconcile.p99_ms,
        decide_cpu_s=operator.decide.total_s,
        retries=operator.retries,
        process_cpu_s=round(operator.process_cpu_s, 3),
    )


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
