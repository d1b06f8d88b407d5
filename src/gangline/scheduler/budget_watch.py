"""Follows PodDisruptionBudgets, where they may be read: they tell whom preemption takes last."""

from __future__ import annotations

import asyncio
from typing import Any

from gangline.api.resources import POD_DISRUPTION_BUDGETS
from gangline.kube.cache import Cache
from gangline.kube.verbs import ObjectClient
from gangline.placement import DisruptionBudget
from gangline.scheduler.state import SchedulerState
from gangline.scheduler.storage_watch import LOOK_AGAIN_S, READY_TIMEOUT_S, is_readable


class BudgetWatch:
    """What the cluster says about disruption. No budget lets a waiting pod in, so that none makes a pass due.

    Args:
        client: of the cluster.
        state: gets what is found.
    """

    def __init__(self, client: ObjectClient, state: SchedulerState) -> None:
        self._client = client
        self._budgets = state.allocations.budgets
        self._is_ready = asyncio.Event()

    async def run(self) -> None:
        """Follow them until cancelled."""
        while not await is_readable(self._client, POD_DISRUPTION_BUDGETS):
            self._is_ready.set()
            await asyncio.sleep(LOOK_AGAIN_S)
        cache: Cache[dict[str, Any]] = Cache(self._client, POD_DISRUPTION_BUDGETS, dict)
        cache.on_change(self._on_budget)
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run())
            await cache.wait_synced(None)
            self._is_ready.set()

    async def ready(self) -> None:
        """Wait until all are listed, or found not to be readable, at most ten seconds."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._is_ready.wait()
        except TimeoutError:
            return

    def _on_budget(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        meta = (new or old or {})["metadata"]
        self._budgets.pop(f"{meta['namespace']}/{meta['name']}", None)
        if new is not None and (budget := DisruptionBudget.from_object(new)) is not None:
            self._budgets[budget.key] = budget
