"""Leader election on a server: one leads, and another after it, with short times."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from gangline.api.resources import LEASES
from gangline.kube.client import Client
from gangline.kube.lease import LeaderElection, LeaseTiming

TIMING = LeaseTiming(duration_s=15.0, renew_deadline_s=10.0, retry_s=0.1)


async def test_candidates_lead_one_after_the_other(client: Client, api: Any) -> None:
    leaders: list[str] = []
    changed = asyncio.Condition()

    def candidate(identity: str) -> asyncio.Task[None]:
        election = LeaderElection(client, "operator", api.namespace, identity=identity, timing=TIMING)

        async def lead() -> None:
            async with changed:
                leaders.append(identity)
                changed.notify_all()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                leaders.remove(identity)

        return asyncio.create_task(election.run(lead))

    tasks = {identity: candidate(identity) for identity in ("one", "two", "three")}
    seen: list[str] = []
    async with asyncio.timeout(60):
        while tasks:
            async with changed:
                await changed.wait_for(lambda: bool(leaders))
            (leader,) = leaders
            seen.append(leader)
            task = tasks.pop(leader)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    assert sorted(seen) == ["one", "three", "two"]
    lease = await client.get(LEASES, "operator", api.namespace)
    assert lease["spec"]["holderIdentity"] == ""
    assert lease["spec"]["leaseTransitions"] == 2
