"""The scheduler as a process: leadership and health around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gangline.kube.http_paths import Query
from gangline.kube.leader_service import LeaderOptions, LeaderService
from gangline.kube.verbs import ObjectClient
from gangline.placement import Policy
from gangline.scheduler.explained.answers import PATH, Answers
from gangline.scheduler.explained.published import DEFAULT_NAMES, LEASE_NAME, LEASE_NAMESPACE, Published
from gangline.scheduler.scheduler import Scheduler

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions(LeaderOptions):
    """How a scheduler process runs.

    Attributes:
        names: ``spec.schedulerName`` of the pods that it places.
        policy: see :class:`Policy`.
        node_selector: labels of the nodes that it may use; empty for all.
    """

    names: tuple[str, ...] = DEFAULT_NAMES[:1]
    policy: Policy = field(default_factory=Policy)
    node_selector: str = ""
    lock_namespace: str = LEASE_NAMESPACE


class SchedulerService(LeaderService):
    """One scheduler process; see :class:`LeaderService`."""

    leader_metric = "gangline_scheduler_is_leader"

    def __init__(self, client: ObjectClient, options: SchedulerOptions) -> None:
        super().__init__(client, LEASE_NAME, options)
        self._options = options
        self._scheduler: Scheduler | None = None
        self._answers = Answers(self.identity)

    @property
    def is_synced(self) -> bool:
        """Whether nodes, pods and gangs have been seen once."""
        return self._scheduler is not None and self._scheduler.is_synced

    def _notes(self) -> tuple[str, ...]:
        return self._scheduler.notes if self._scheduler else ()

    def _metrics(self) -> Iterable[Metric]:
        from gangline.scheduler.metrics import scheduler_metrics  # late: prometheus_client

        found = self._scheduler
        return scheduler_metrics(found.statistics(), found.snapshot()) if found else ()

    def _queries(self) -> Mapping[str, Query]:
        return {PATH: self._answers.answer}

    def _annotations(self) -> Mapping[str, str]:
        options, port = self._options, self.ports.get("metrics")
        answers = f"{options.address}:{port}" if port else ""
        return Published.from_policy(
            options.policy, options.names, options.node_selector, answers
        ).annotations

    async def _work(self) -> None:
        options = self._options
        self._scheduler = Scheduler(
            self._client, names=options.names, policy=options.policy, node_selector=options.node_selector
        )
        self._answers.scheduler = self._scheduler
        await self._scheduler.run()
