"""Leader election: of several processes that could do a job, one holds a Lease and does it.

The protocol is client-go's, so a Go program and this may compete for the same Lease: a lease has expired when
nobody has changed it for its duration **by our own clock**, counted from when we saw the change; the times
written in it are for people. A leader that cannot renew in time stops by itself before others may start.
Source: k8s.io/client-go/tools/leaderelection, coordination.k8s.io/v1.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gangline import clock
from gangline.api.resources import LEASES
from gangline.errors import ClusterError
from gangline.kube.errors import AlreadyExists, ApiError, Conflict, NotFound

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

_JITTER = 1.2
"""Pauses between tries to get the lease are longer by up to this factor, so that candidates spread out."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """How fast leadership moves. Every candidate for a lease should use the same.

    Attributes:
        duration_s: others wait this long after the last renewal they saw.
        renew_deadline_s: a leader that has not managed to renew for this long gives up.
        retry_s: between tries to get or renew the lease.

    Raises:
        ValueError: a leader would not give up before others may start, or would have no time to try.
    """

    duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 3.0

    def __post_init__(self) -> None:
        if not self.duration_s > self.renew_deadline_s > self.retry_s * _JITTER > 0:
            raise ValueError(
                "a lease needs duration > renew deadline > 1.2 x retry > 0, "
                f"not {self.duration_s:g}, {self.renew_deadline_s:g}, {self.retry_s:g} s"
            )


class LeadershipLost(ClusterError):
    """Another process leads now, or the lease could not be renewed in time."""

    code = "leadership-lost"


def default_identity() -> str:
    """Return a name that no other process has: ``HOST_UUID``."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(slots=True)
class _Observed:
    """The lease as last seen, and when (by our own clock) it last changed."""

    spec: dict[str, Any] = field(default_factory=dict)
    changed_s: float = 0.0
    version: str = ""


class LeaderElection:
    """One candidate for one Lease; construct it in a running event loop.

    Args:
        client: reads and writes the Lease. Its namespace must exist.
        name: of the Lease.
        namespace: of the Lease.
        identity: of this candidate, unique; by default host and a random part.
        timing: see :class:`LeaseTiming`.
        annotations: of the Lease, while this candidate holds it.
        now_s: a clock that never goes back; tests pass their own.
        sleep: how to pause; tests pass their own.
    """

    def __init__(
        self,
        client: ObjectClient,
        name: str,
        namespace: str,
        *,
        identity: str = "",
        timing: LeaseTiming | None = None,
        annotations: Mapping[str, str] | None = None,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.identity = identity or default_identity()
        self.timing = timing or LeaseTiming()
        self._client = client
        self.annotations = annotations or {}
        """Of the Lease, while this candidate holds it; may be set until :meth:`run`."""
        self._name = name
        self._namespace = namespace
        self._now_s = now_s
        self._sleep = sleep
        self._observed = _Observed()
        self._renewed_s = 0.0
        self._leads = False

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads now."""
        return self._leads

    @property
    def holder(self) -> str:
        """Who held the lease when it was last seen; empty for nobody."""
        return str(self._observed.spec.get("holderIdentity") or "")

    def is_healthy(self, tolerance_s: float = 20.0) -> bool:
        """Whether a leader renews: False when it still thinks to lead long after its lease ran out."""
        return not self._leads or self._now_s() - self._renewed_s <= self.timing.duration_s + tolerance_s

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, run ``lead`` while it is held; give it back when that ends or we are cancelled.

        Raises:
            LeadershipLost: it was lost; ``lead`` was cancelled and has ended.
            BaseException: whatever ``lead`` raises.
        """
        await self._acquire()
        self._leads = True
        self._log("leading", identity=self.identity)
        work = asyncio.ensure_future(lead())
        renewal = asyncio.ensure_future(self._keep())
        try:
            await asyncio.wait((work, renewal), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, renewal):
                task.cancel()
            # The work has ended before the lease is given back: nobody may start while it goes on.
            await asyncio.gather(work, renewal, return_exceptions=True)
            self._leads = False
            await self._release()
        if not work.cancelled():
            work.result()
            return
        raise LeadershipLost(
            f"the lease {self._namespace}/{self._name} could not be renewed for "
            f"{self.timing.renew_deadline_s:g} s, or is held by `{self.holder}` now"
        )

    async def _acquire(self) -> None:
        self._log("waiting for the lease", lease=f"{self._namespace}/{self._name}")
        while not await self._try(self.timing.renew_deadline_s):
            await self._sleep(self.timing.retry_s * random.uniform(1.0, _JITTER))

    async def _keep(self) -> None:
        """Renew until that fails for too long."""
        while True:
            await self._sleep(self.timing.retry_s)
            while not await self._try(self._left_s()):
                left_s = self._left_s()
                if left_s <= 0 or (self.holder and self.holder != self.identity):
                    return
                await self._sleep(min(self.timing.retry_s, left_s))

    def _left_s(self) -> float:
        return self._renewed_s + self.timing.renew_deadline_s - self._now_s()

    async def _try(self, within_s: float) -> bool:
        """Get or renew the lease once; False when another has it or the server does not let us."""
        try:
            async with asyncio.timeout(within_s):
                return await self._get_or_renew()
        except (ApiError, TimeoutError) as error:
            if not isinstance(error, Conflict | AlreadyExists):
                self._log("lease not written", error=str(error) or "it took too long")
            self._observed.version = ""  # read it again before the next write
            return False

    async def _get_or_renew(self) -> bool:
        if not (self._leads and self._observed.version):
            try:
                self._observe(await self._client.get(LEASES, self._name, self._namespace))
            except NotFound:
                started_s = self._now_s()
                self._observe(await self._client.create(LEASES, self._render(transitions=0)))
                self._renewed_s = started_s
                return True
        if self.holder not in ("", self.identity) and not self._has_expired():
            return False
        started_s = self._now_s()
        self._observe(await self._client.update(LEASES, self._render(self._transitions())))
        self._renewed_s = started_s
        return True

    def _has_expired(self) -> bool:
        duration_s = self._observed.spec.get("leaseDurationSeconds") or self.timing.duration_s
        return self._now_s() > self._observed.changed_s + float(duration_s)

    def _transitions(self) -> int:
        before = int(self._observed.spec.get("leaseTransitions") or 0)
        return before + (self.holder != self.identity)

    def _observe(self, lease: dict[str, Any]) -> None:
        spec = lease.get("spec") or {}
        if spec != self._observed.spec:
            self._observed.spec = spec
            self._observed.changed_s = self._now_s()
        self._observed.version = lease["metadata"]["resourceVersion"]

    def _render(self, transitions: int) -> dict[str, Any]:
        moment = clock.format_micro_time(clock.now())
        is_renewal = self.holder == self.identity
        acquired = self._observed.spec.get("acquireTime") if is_renewal else None
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if self.annotations:
            metadata["annotations"] = dict(self.annotations)
        if self._observed.version:
            metadata["resourceVersion"] = self._observed.version
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata,
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": math.ceil(self.timing.duration_s),
                "acquireTime": acquired or moment,
                "renewTime": moment,
                "leaseTransitions": transitions,
            },
        }

    async def _release(self) -> None:
        """Give the lease back if it is ours, so that the next leader need not wait for its end."""
        if self.holder != self.identity:
            return
        try:
            async with asyncio.timeout(self.timing.retry_s):
                try:
                    await self._give_back()
                except Conflict:  # a renewal that was cut off has been written all the same
                    self._observed.version = ""
                    await self._give_back()
        except (ApiError, TimeoutError) as error:
            self._log("lease not given back", error=str(error))

    async def _give_back(self) -> None:
        if not self._observed.version:
            self._observe(await self._client.get(LEASES, self._name, self._namespace))
        if self.holder != self.identity:
            return
        lease = self._render(int(self._observed.spec.get("leaseTransitions") or 0))
        lease["spec"].update(holderIdentity="", leaseDurationSeconds=1)
        self._observe(await self._client.update(LEASES, lease))
        self._log("lease given back")

    def _log(self, event: str, **facts: object) -> None:
        import structlog  # late: 30 ms that the command line does not pay

        structlog.get_logger().info(event, pid=os.getpid(), **facts)
