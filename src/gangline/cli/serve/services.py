"""What runs inside the server beside the API: controllers, operator, scheduler, the agent's supervisor.

A module of its own, because its imports take 0.3 s of processor time: the server listens before, and the node
agent comes in meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from functools import cache
from typing import TYPE_CHECKING

import structlog

from gangline.cli.serve.agent_supervisor import AgentSupervisor
from gangline.cli.serve.control_plane import ControlPlane
from gangline.cli.serve.figures import ClusterFigures
from gangline.cli.serve.idle_end import end_when_idle
from gangline.cli.serve.service import collect_rarely
from gangline.cli.serve.trainer_status import StatusListener
from gangline.cluster.api_access import api_connection
from gangline.cluster.control_plane import identities
from gangline.cluster.daemon.cluster_facts import ClusterFacts, policy_of
from gangline.cluster.daemon.readiness import CONTROLLERS_STARTED
from gangline.cluster.gpu_use import SAMPLE_S, Sample, write_sample
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.runs.bounds import Bounds
from gangline.jobs.settings import Settings
from gangline.kube.client import Client
from gangline.kube.config import Connection
from gangline.kube.http_paths import PathAnswer
from gangline.kube.verbs import ObjectClient
from gangline.operator.operator import Operator
from gangline.operator.statistics import OperatorStatistics
from gangline.scheduler.explained.published import DEFAULT_NAMES
from gangline.scheduler.scheduler import Scheduler

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from gangline.kube.metrics import MetricsPage


async def run_services(
    plane: ControlPlane,
    paths: ClusterPaths,
    facts: ClusterFacts,
    supervisor: AgentSupervisor,
    addresses: list[str],
) -> None:
    """Run everything that works against the API; the first of them to fail ends the server."""
    collect_rarely()
    async with AsyncExitStack() as held:
        clients: dict[Connection, Client] = {}

        async def client_of(identity: str) -> Client:
            connection = api_connection(paths, identity)
            if connection not in clients:  # the own server's socket is the same for all
                client = Client(connection, user_agent="gangline-server")
                clients[connection] = await held.enter_async_context(client)
            return clients[connection]

        of_operator = await client_of(identities.OPERATOR)
        desk = StatusListener(paths, addresses)
        settings = Settings(
            has_remote_shell=True, gang_scheduling=DEFAULT_NAMES[0], status_endpoint=desk.endpoint
        )
        operator = Operator(of_operator, settings=settings)
        scheduler = Scheduler(await client_of(identities.SCHEDULER), policy=policy_of(facts))
        client = await client_of(identities.CONTROLLERS)
        figures = _figures(plane, operator, scheduler, tuple(clients.values()))
        plane.show("/metrics", ClusterFigures(paths, figures).answer)
        controllers = plane.controllers(client, Bounds.of(os.environ))
        try:
            async with asyncio.TaskGroup() as services:
                services.create_task(plane.keep(), name="control plane")
                services.create_task(controllers, name="controllers")
                if facts.has_operator:
                    services.create_task(operator.run(), name="operator")
                    services.create_task(desk.run(of_operator), name="trainer status")
                services.create_task(scheduler.run(), name="scheduler")
                services.create_task(_record_use(scheduler, paths), name="use of GPUs")
                services.create_task(supervisor.run(), name="agent supervisor")
                services.create_task(end_when_idle(client, paths), name="idle end")
                await asyncio.sleep(0)  # each has begun
                plane.show(CONTROLLERS_STARTED, started)
        finally:
            _log_statistics(operator.statistics())


async def started() -> PathAnswer:
    """Tell that everything has begun."""
    return PathAnswer(200, b"ok")


async def _record_use(scheduler: Scheduler, paths: ClusterPaths) -> None:
    """Keep how many GPUs were held, for pages that are opened later."""
    from gangline.scheduler.metrics import gpu_totals

    while True:
        await asyncio.sleep(SAMPLE_S)
        held, total = gpu_totals(scheduler.snapshot())
        if scheduler.is_synced and total:
            with suppress(OSError):  # a full disk costs the picture, and not the cluster
                write_sample(paths.gpu_use, Sample(int(time.time()), held, total))


def _figures(
    plane: ControlPlane, operator: Operator, scheduler: Scheduler, clients: tuple[ObjectClient, ...]
) -> Callable[[], Iterator[tuple[str, Iterable[Metric]]]]:
    """Return what tells the figures of this process; their library, 3 MB, is loaded when first asked."""

    def answers() -> dict[tuple[str, str], int]:
        found: Counter[tuple[str, str]] = Counter()
        for client in clients:
            found.update(client.answers())
        return found

    @cache
    def page() -> MetricsPage:
        from gangline.kube.metrics import MetricsPage

        return MetricsPage(tuple, answers)

    def figures() -> Iterator[tuple[str, Iterable[Metric]]]:
        from gangline.operator.metrics import operator_metrics
        from gangline.scheduler.metrics import scheduler_metrics

        yield "server", page().collect()
        yield "operator", operator_metrics(operator.statistics())
        yield "scheduler", scheduler_metrics(scheduler.statistics(), scheduler.snapshot())
        yield from plane.figures()

    return figures


def _log_statistics(operator: OperatorStatistics) -> None:
    """Leave the operator's figures in the log at the end; the benchmarks read them there."""
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
