"""Follows namespaces: pods may ask for neighbours in those that have some label."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gangline.api.resources import NAMESPACES
from gangline.kube.cache import Cache
from gangline.kube.verbs import ObjectClient
from gangline.placement.affinity.namespaces import labels_of
from gangline.scheduler.state import SchedulerState
from gangline.scheduler.storage_watch import LOOK_AGAIN_S, READY_TIMEOUT_S, is_readable


class NamespaceWatch:
    """What the cluster says about namespaces; pods that need it wait where it may not be read.

    Args:
        client: of the cluster.
        state: gets what is found.
        wake: called when a waiting pod may fit now.
    """

    def __init__(self, client: ObjectClient, state: SchedulerState, wake: Callable[[], None]) -> None:
        self._client = client
        self._state = state
        self._wake = wake
        self._is_ready = asyncio.Event()

    async def run(self) -> None:
        """Follow them until cancelled."""
        while not await is_readable(self._client, NAMESPACES):
            self._is_ready.set()
            await asyncio.sleep(LOOK_AGAIN_S)
        cache: Cache[dict[str, Any]] = Cache(self._client, NAMESPACES, dict)
        cache.on_change(self._on_namespace)
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run())
            await cache.wait_synced(None)
            self._state.namespaces.is_known = True
            self._is_ready.set()
            self._look()

    async def ready(self) -> None:
        """Wait until all are listed, or found not to be readable, at most ten seconds."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._is_ready.wait()
        except TimeoutError:
            return

    def _on_namespace(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        labels = self._state.namespaces.labels
        if new is not None:
            labels[new["metadata"]["name"]] = labels_of(new)
        elif old is not None:
            labels.pop(old["metadata"]["name"], None)
        self._look()

    def _look(self) -> None:
        if self._state.take_namespaces():
            self._wake()
