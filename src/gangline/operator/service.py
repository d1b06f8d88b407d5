"""The operator as a process: leadership, health and metrics around it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gangline.jobs.settings import Settings
from gangline.kube.leader_service import LeaderOptions, LeaderService
from gangline.kube.verbs import ObjectClient
from gangline.operator.operator import Operator, workers_count

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

LEASE_NAME = "mpi-operator"
"""The Lease of the MPI operator: with its `--lock-namespace` too, of the two only one works at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions(LeaderOptions):
    """How an operator process runs.

    Attributes:
        namespace: look at this one alone; empty means all.
        settings: what holds for every job.
        workers: jobs that are worked on at the same time.
    """

    namespace: str = ""
    settings: Settings = field(default_factory=Settings)
    workers: int = workers_count
    lock_namespace: str = "mpi-operator"


class OperatorService(LeaderService):
    """One operator process; see :class:`LeaderService`."""

    leader_metric = "mpi_operator_is_leader"

    def __init__(self, client: ObjectClient, options: OperatorOptions) -> None:
        super().__init__(client, LEASE_NAME, options)
        self._options = options
        self._operator: Operator | None = None

    @property
    def is_synced(self) -> bool:
        """Whether the caches are filled."""
        return self._operator is not None and self._operator.statistics().is_synced

    def _notes(self) -> tuple[str, ...]:
        return self._operator.notes if self._operator else ()

    def _metrics(self) -> Iterable[Metric]:
        from gangline.operator.metrics import operator_metrics  # late: prometheus_client

        return operator_metrics(self._operator.statistics()) if self._operator else ()

    async def _work(self) -> None:
        self._operator = Operator(
            self._client,
            namespace=self._options.namespace,
            settings=self._options.settings,
            workers=self._options.workers,
        )
        await self._operator.run()
