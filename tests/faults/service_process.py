"""Operator or scheduler as a process of its own, for tests that kill it.

``service_process.py operator|scheduler SERVER NAMESPACE LEASE_S TOKEN``. Everything but the duration of its
Lease is as ``gangline operator --leader-elect`` and ``gangline scheduler --leader-elect`` run it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from gangline.kube.client import Client
from gangline.kube.config import Connection
from gangline.kube.leader_service import LeaderService
from gangline.kube.lease import LeadershipLost, LeaseTiming

PROGRAM = Path(__file__)
LEADERSHIP_LOST = 75


def service_of(which: str, client: Client, namespace: str, **led: Any) -> LeaderService:
    """Return one of the two; the scheduler looks at all namespaces."""
    if which == "operator":
        from gangline.operator import service as operator

        return operator.OperatorService(client, operator.OperatorOptions(namespace=namespace, **led))
    from gangline.scheduler import service as scheduler

    return scheduler.SchedulerService(client, scheduler.SchedulerOptions(**led))


async def main(which: str, server: str, namespace: str, lease_s: str, token: str) -> None:
    timing = LeaseTiming(float(lease_s), renew_deadline_s=0.7 * float(lease_s), retry_s=0.2)
    connection = Connection(server=server, token=token or None)
    async with Client(connection, user_agent=f"gangline-{which}") as client:
        led = {"leader_elect": True, "lock_namespace": namespace, "lease_timing": timing}
        try:
            await service_of(which, client, namespace, **led).run()
        except LeadershipLost:  # a busy machine; whoever starts processes starts it again
            sys.exit(LEADERSHIP_LOST)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:6]))
