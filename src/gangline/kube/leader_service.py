"""A controller as a process: of several one works, and each tells how it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from gangline.kube.http_paths import PathAnswer, Query, serve_paths
from gangline.kube.lease import LeaderElection, LeaseTiming
from gangline.kube.verbs import ObjectClient

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderOptions:
    """How such a process runs.

    Attributes:
        leader_elect: work only while holding the Lease.
        lock_namespace: of the Lease.
        lease_timing: how fast leadership moves.
        address: where it listens.
        health_port: of ``/healthz`` and ``/readyz``; None for none, 0 for any.
        metrics_port: of ``/metrics``; None for none, 0 for any.
    """

    leader_elect: bool = False
    lock_namespace: str = "default"
    lease_timing: LeaseTiming = field(default_factory=LeaseTiming)
    address: str = "127.0.0.1"
    health_port: int | None = None
    metrics_port: int | None = None


class LeaderService:
    """One process; construct it in a running event loop. Subclasses say what the work is.

    Args:
        client: of the work. The Lease goes through it as well.
        lease_name: of the Lease.
        options: see :class:`LeaderOptions`.
    """

    leader_metric: ClassVar[str]
    """Name of the metric that says whether this process works."""

    def __init__(self, client: ObjectClient, lease_name: str, options: LeaderOptions) -> None:
        self._client = client
        self._led_options = options
        self._election = (
            LeaderElection(
                client,
                lease_name,
                options.lock_namespace,
                timing=options.lease_timing,
            )
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
        async with AsyncExitStack() as stack:
            await self._listen(stack)
            if self._election:
                self._election.annotations = self._annotations()
                await self._election.run(self._work)
            else:
                await self._work()

    @property
    def identity(self) -> str:
        """Of this process as a candidate; empty without election."""
        return self._election.identity if self._election else ""

    @property
    def is_leader(self) -> bool:
        """Whether this process works; without election it always does."""
        return self._election.is_leader if self._election else True

    @property
    def is_synced(self) -> bool:
        """Whether the work has seen the cluster once."""
        raise NotImplementedError

    async def _work(self) -> None:
        raise NotImplementedError

    def _metrics(self) -> Iterable[Metric]:
        """Return what a subclass counts."""
        return ()

    def _queries(self) -> Mapping[str, Query]:
        """Return what a subclass answers beside its metrics."""
        return {}

    def _annotations(self) -> Mapping[str, str]:
        """Return the annotations of the Lease while this process holds it; asked once it listens."""
        return {}

    def _notes(self) -> tuple[str, ...]:
        """Return what an administrator should know, in lines."""
        return ()

    async def _listen(self, stack: AsyncExitStack) -> None:
        """Serve health and metrics for as long as the stack is open."""
        options = self._led_options
        if options.health_port is not None:
            paths = {"/healthz": self._health, "/readyz": self._readiness}
            self.ports["health"] = await stack.enter_async_context(
                serve_paths(options.address, options.health_port, paths)
            )
        if options.metrics_port is not None:
            from gangline.kube.metrics import MetricsPage  # late: prometheus_client

            page = MetricsPage(self._all_metrics, self._client.answers)
            self.ports["metrics"] = await stack.enter_async_context(
                serve_paths(options.address, options.metrics_port, {"/metrics": page.answer}, self._queries())
            )

    def _all_metrics(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        yield GaugeMetricFamily(self.leader_metric, "Whether this process leads.", float(self.is_leader))
        yield from self._metrics()

    def _health(self) -> PathAnswer:
        if self._election and not self._election.is_healthy():
            return PathAnswer(500, b"the lease has run out and this process still leads\n")
        return PathAnswer(200, b"ok")

    def _readiness(self) -> PathAnswer:
        """Ready is a candidate that waits, and a leader that is synced."""
        if not self.is_leader or self.is_synced:
            return PathAnswer(200, "\n".join(("ok", *self._notes())).encode())
        return PathAnswer(503, b"the first lists have not come yet\n")
