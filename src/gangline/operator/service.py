"""The operator as a process: leadership, health and metrics around it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from gangline.jobs.settings import Settings
from gangline.kube.client import Client
from gangline.kube.http_paths import serve_paths
from gangline.kube.led_service import LedOptions, LedService
from gangline.operator.operator import Operator, workers_count

LEASE_NAME = "mpi-operator"
"""The Lease of the MPI operator: of the two only one works at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions(LedOptions):
    """How an operator process runs.

    Attributes:
        namespace: look at this one alone; empty means all.
        settings: what holds for every job.
        workers: jobs that are worked on at the same time.
        metrics_port: of ``/metrics``; None for none, 0 for any.
    """

    namespace: str = ""
    settings: Settings = field(default_factory=Settings)
    workers: int = workers_count
    lock_namespace: str = "mpi-operator"
    metrics_port: int | None = None


class OperatorService(LedService):
    """One operator process; see :class:`LedService`. Its second port is ``metrics``."""

    def __init__(self, client: Client, options: ServiceOptions) -> None:
        super().__init__(client, LEASE_NAME, options)
        self._options = options
        self._operator: Operator | None = None

    @property
    def is_synced(self) -> bool:
        """Whether the caches are filled."""
        return self._operator is not None and self._operator.statistics().is_synced

    async def _listen(self, stack: AsyncExitStack) -> None:
        await super()._listen(stack)
        if self._options.metrics_port is None:
            return
        from gangline.operator.metrics import OperatorMetrics  # late: prometheus_client

        metrics = OperatorMetrics(
            lambda: self._operator.statistics() if self._operator else None,
            self._client.answers,
            lambda: self.is_leader,
        )
        self.ports["metrics"] = await stack.enter_async_context(
            serve_paths(self._options.address, self._options.metrics_port, {"/metrics": metrics.answer})
        )

    async def _work(self) -> None:
        self._operator = Operator(
            self._client,
            namespace=self._options.namespace,
            settings=self._options.settings,
            workers=self._options.workers,
        )
        await self._operator.run()
