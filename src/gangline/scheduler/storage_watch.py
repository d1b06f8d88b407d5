"""Follows claims, volumes and storage classes, where the cluster has them, and tells claims their node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from gangline.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES, Resource
from gangline.kube.cache import Cache
from gangline.kube.discovery import resource_for
from gangline.kube.errors import ApiError
from gangline.kube.verbs import ObjectClient
from gangline.placement import Binding
from gangline.placement.claims.volumes import read_claim, read_class, read_volume
from gangline.scheduler.state import SchedulerState

SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""On a claim: where the first pod that uses it goes. Source: Kubernetes, "Well-Known Annotations"."""

READY_TIMEOUT_S = 10.0

LOOK_AGAIN_S = 30.0
"""How often kinds are looked for that are absent, or may not be read."""


class StorageWatch:
    """What the cluster says about volumes.

    Without the kinds, or without the right to read them, claims keep no pod waiting: its kubelet waits.

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
        """Follow all kinds until cancelled."""
        caches = {
            resource: Cache(self._client, resource, dict)
            for resource in (STORAGE_CLASSES, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS)
        }
        while not all([await is_readable(self._client, resource) for resource in caches]):
            self._is_ready.set()
            await asyncio.sleep(LOOK_AGAIN_S)
        for resource, cache in caches.items():
            cache.on_change(self._callback(resource))
        async with asyncio.TaskGroup() as group:
            for cache in caches.values():
                group.create_task(cache.run())
            for cache in caches.values():
                await cache.wait_synced(None)
            self._state.storage.is_known = True
            self._is_ready.set()
            if self._state.take_storage():
                self._wake()

    async def ready(self) -> None:
        """Wait until all is listed or found absent, at most ten seconds."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._is_ready.wait()
        except TimeoutError:
            return

    async def select(self, bindings: Sequence[Binding]) -> list[tuple[Binding, ApiError]]:
        """Tell claims whose volumes are made for their first pod which node it gets, before it is bound.

        Returns:
            All bindings with the reason when one claim cannot be told: then nothing of the gang is bound.
        """
        told = [(name, binding) for binding in bindings for name in self._state.claims_to_make(binding.uid)]
        try:
            await asyncio.gather(*(self._select(name, binding) for name, binding in told))
        except ApiError as error:
            return [(binding, error) for binding in bindings]
        return []

    async def _select(self, claim: str, binding: Binding) -> None:
        patch = {"metadata": {"annotations": {SELECTED_NODE: binding.node}}}
        namespace = binding.pod.partition("/")[0]
        await self._client.patch(PERSISTENT_VOLUME_CLAIMS, claim, patch, namespace, kind="merge")

    def _callback(self, resource: Resource) -> Callable[[Any, Any], None]:
        storage = self._state.storage
        tables: dict[Resource, tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]] = {
            PERSISTENT_VOLUME_CLAIMS: (storage.claims, read_claim),
            PERSISTENT_VOLUMES: (storage.volumes, read_volume),
            STORAGE_CLASSES: (storage.classes, read_class),
        }
        table, read = tables[resource]

        def on_change(old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
            meta = (new or old or {}).get("metadata") or {}
            key = f"{meta['namespace']}/{meta['name']}" if resource.namespaced else str(meta["name"])
            if new is None:
                table.pop(key, None)
            else:
                table[key] = read(new)
            if self._state.take_storage():
                self._wake()

        return on_change


async def is_readable(client: ObjectClient, resource: Resource) -> bool:
    """Return whether the cluster has a kind, and it may be listed."""
    try:
        await resource_for(client, resource.api_version, resource.kind)
        await client.list(resource, None)
    except ApiError:
        return False
    return True
