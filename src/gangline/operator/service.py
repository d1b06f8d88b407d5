"""The operator as a process: leadership, health and metrics around it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from gangline.jobs.settings import Settings
from gangline.kube.client import Client
from gangline.kube.http_paths import Answer, serve_paths
from gangline.kube.lease import LeaderElection, LeaseTiming
from gangline.operator.operator import Operator, workers_count

LEASE_NAME = "mpi-operator"
"""The Lease of the MPI operator: of the two only one works at a time."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How an operator process runs.

    Attributes:
        namespace: look at this one alone; empty means all.
        settings: what holds for every job.
        workers: jobs that are worked on at the same time.
        leader_elect: work only while holding the Lease.
        lock_namespace: of the Lease.
        lease_timing: how fast leadership moves.
        address: where health and metrics listen.
        health_port: of ``/healthz`` and ``/readyz``; None for none, 0 for any.
        metrics_port: of ``/metrics``; None for none, 0 for any.
    """

    namespace: str = ""
    settings: Settings = field(default_factory=Settings)
    workers: int = workers_count
    leader_elect: bool = False
    lock_namespace: str = "mpi-operator"
    lease_timing: LeaseTiming = field(default_factory=LeaseTiming)
    address: str = "127.0.0.1"
    health_port: int | None = None
    metrics_port: int | None = None


class OperatorService:
    """One process; construct it in a running event loop.

    Args:
        client: of the operator. The Lease goes through it as well.
        options: see :class:`ServiceOptions`.
    """

    def __init__(self, client: Client, options: ServiceOptions) -> None:
        self._client = client
        self._options = options
        self._operator: Operator | None = None
        self._election = (
            LeaderElection(client, LEASE_NAME, options.lock_namespace, timing=options.lease_timing)
            if options.leader_elect
            else None
        )
        self.ports: dict[str, int] = {}
        """Ports in use: ``health``, ``metrics``."""

    async def run(self) -> None:
        """Serve until cancelled; then what is in work is left as it is, and the Lease given back.

        Raises:
            LeadershipLost: start again, as a candidate.
            UserError: a port cannot be used.
        """
        options = self._options
        async with AsyncExitStack() as stack:
            if options.health_port is not None:
                paths = {"/healthz": self._health, "/readyz": self._readiness}
                self.ports["health"] = await stack.enter_async_context(
                    serve_paths(options.address, options.health_port, paths)
                )
            if options.metrics_port is not None:
                from gangline.operator.metrics import OperatorMetrics  # late: prometheus_client

                metrics = OperatorMetrics(
                    lambda: self._operator.statistics() if self._operator else None,
                    self._client.answers,
                    lambda: self.is_leader,
                )
                self.ports["metrics"] = await stack.enter_async_context(
                    serve_paths(options.address, options.metrics_port, {"/metrics": metrics.answer})
                )
            if self._election:
                await self._election.run(self._operate)
            else:
                await self._operate()

    @property
    def is_leader(self) -> bool:
        """Whether this process works; without election it always does."""
        return self._election.is_leader if self._election else True

    async def _operate(self) -> None:
        self._operator = Operator(
            self._client,
            namespace=self._options.namespace,
            settings=self._options.settings,
            workers=self._options.workers,
        )
        await self._operator.run()

    def _health(self) -> Answer:
        if self._election and not self._election.is_healthy():
            return Answer(500, b"the lease has run out and this process still leads\n")
        return Answer(200, b"ok")

    def _readiness(self) -> Answer:
        """Ready is a candidate that waits, and a leader whose caches are filled."""
        if not self.is_leader or (self._operator and self._operator.statistics().is_synced):
            return Answer(200, b"ok")
        return Answer(503, b"the first lists have not come yet\n")
