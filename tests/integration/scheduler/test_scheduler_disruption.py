"""A PodDisruptionBudget of the cluster tells the scheduler whom preemption takes last."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from gangline.api.resources import POD_DISRUPTION_BUDGETS, PODS, PRIORITY_CLASSES
from gangline.kube.errors import NotFound
from gangline.scheduler.scheduler import Scheduler


async def test_the_pod_whose_budget_is_used_up_stays_where_another_can_give_way(idle_cluster: Any) -> None:
    client = idle_cluster.client
    for name, value in (("low", 1), ("middle", 2), ("high", 3)):
        meta = {"name": name}
        await client.create(
            PRIORITY_CLASSES,
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": value},
        )
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guard", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "low"}}},
    }
    await client.create(POD_DISRUPTION_BUDGETS, budget)
    running = asyncio.create_task(Scheduler(client).run())
    await idle_cluster.add_node("node-0", cpu="4")
    for name in ("low", "middle"):
        await idle_cluster.add_pod(name, cpu="2", labels={"app": name}, priorityClassName=name)
        await idle_cluster.until_bound(name)

    await idle_cluster.add_pod("vip", cpu="2", priorityClassName="high")

    async def leaving() -> list[str]:
        found = []
        for name in ("low", "middle"):
            try:
                pod = await client.get(PODS, name, "default")
            except NotFound:
                found.append(name)
            else:
                found += [name] if pod["metadata"].get("deletionTimestamp") else []
        return found

    assert await idle_cluster.until(leaving) == ["middle"]
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
