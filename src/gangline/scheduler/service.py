"""The scheduler as a process: leadership and health around it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from gangline.kube.client import Client
from gangline.kube.http_paths import Answer, serve_paths
from gangline.kube.lease import LeaderElection, LeaseTiming
from gangline.placement.policy import Policy
from gangline.scheduler.scheduler import DEFAULT_NAMES, Scheduler

LEASE_NAME = "gangline-scheduler"


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How a scheduler process runs.

    Attributes:
        names: ``spec.schedulerName`` of the pods that it places.
        policy: see :class:`Policy`.
        node_selector: labels of the nodes that it may use; empty for all.
        leader_elect: work only while holding the Lease.
        lock_namespace: of the Lease.
        lease_timing: how fast leadership moves.
        address: where health listens.
        health_port: of ``/healthz`` and ``/readyz``; None for none, 0 for any.
    """

    names: tuple[str, ...] = DEFAULT_NAMES[:1]
    policy: Policy = field(default_factory=Policy)
    node_selector: str = ""
    leader_elect: bool = False
    lock_namespace: str = "gangline-system"
    lease_timing: LeaseTiming = field(default_factory=LeaseTiming)
    address: str = "127.0.0.1"
    health_port: int | None = None


class SchedulerService:
    """One process; construct it in a running event loop.

    Args:
        client: of the scheduler. The Lease goes through it as well.
        options: see :class:`ServiceOptions`.
    """

    def __init__(self, client: Client, options: ServiceOptions) -> None:
        self._client = client
        self._options = options
        self._scheduler: Scheduler | None = None
        self._election = (
            LeaderElection(client, LEASE_NAME, options.lock_namespace, timing=options.lease_timing)
            if options.leader_elect
            else None
        )
        self.ports: dict[str, int] = {}
        """Ports in use: ``health``."""

    async def run(self) -> None:
        """Serve until cancelled; what is in work is left as it is, and the Lease given back.

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
            if self._election:
                await self._election.run(self._schedule)
            else:
                await self._schedule()

    @property
    def is_leader(self) -> bool:
        """Whether this process works; without election it always does."""
        return self._election.is_leader if self._election else True

    async def _schedule(self) -> None:
        options = self._options
        self._scheduler = Scheduler(
            self._client, names=options.names, policy=options.policy, node_selector=options.node_selector
        )
        await self._scheduler.run()

    def _health(self) -> Answer:
        if self._election and not self._election.is_healthy():
            return Answer(500, b"the lease has run out and this process still leads\n")
        return Answer(200, b"ok")

    def _readiness(self) -> Answer:
        """Ready is a candidate that waits, and a leader that has seen nodes, pods and gangs once."""
        if not self.is_leader or (self._scheduler and self._scheduler.is_synced):
            return Answer(200, b"ok")
        return Answer(503, b"the first lists have not come yet\n")
