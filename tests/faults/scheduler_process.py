"""The scheduler as a process of its own, for tests that kill it: ``… SERVER NAMESPACE LEASE_S TOKEN``.

Everything but the duration of its Lease is as `gangline scheduler --leader-elect` runs it.
"""

from __future__ import annotations

import asyncio
import sys

from gangline.kube.client import Client
from gangline.kube.config import Connection
from gangline.kube.lease import LeadershipLost, LeaseTiming
from gangline.scheduler.service import SchedulerService, ServiceOptions

LEADERSHIP_LOST = 75


async def main(server: str, namespace: str, lease_s: str, token: str) -> None:
    timing = LeaseTiming(float(lease_s), renew_deadline_s=0.7 * float(lease_s), retry_s=0.2)
    options = ServiceOptions(leader_elect=True, lock_namespace=namespace, lease_timing=timing)
    connection = Connection(server=server, token=token or None)
    async with Client(connection, user_agent="gangline-scheduler") as client:
        try:
            await SchedulerService(client, options).run()
        except LeadershipLost:  # a busy machine; whoever starts processes starts it again
            sys.exit(LEADERSHIP_LOST)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
