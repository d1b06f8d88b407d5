"""What runs inside the server beside the API: controllers, operator, scheduler, the agent's supervisor.

A module of its own, because its imports take 0.3 s of processor time: the server listens before, and the node
agent comes in meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import structlog

from gangline.cli.serve.agent_supervisor import AgentSupervisor
from gangline.cli.serve.idle_end import end_when_idle
from gangline.cluster.controllers.all import run_controllers
from gangline.cluster.controllers.inventory import InUse
from gangline.cluster.daemon.readiness import CONTROLLERS_STARTED
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.runs.bounds import Bounds
from gangline.cluster.runs.history import History
from gangline.cluster.server.resources import STORED_KINDS
from gangline.jobs.settings import Settings
from gangline.kube.http_paths import PathAnswer
from gangline.kube.verbs import ObjectClient
from gangline.operator.operator import Operator
from gangline.operator.statistics import OperatorStatistics
from gangline.placement import Policy
from gangline.scheduler.scheduler import DEFAULT_NAMES, Scheduler
from gangline.topology.network import DEFAULT_LEVELS

if TYPE_CHECKING:
    from gangline.kube.metrics import MetricsPage


async def run_services(
    client: ObjectClient,
    paths: ClusterPaths,
    supervisor: AgentSupervisor,
    pages: dict[str, Callable[[], PathAnswer]],
    in_use: InUse,
) -> None:
    """Run everything that works against the API; the first of them to fail ends the server."""
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
            await asyncio.sleep(0)  # each has begun
            pages[CONTROLLERS_STARTED] = lambda: PathAnswer(200, b"ok")
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
