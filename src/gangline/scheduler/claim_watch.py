"""Follows resource claims, device classes and what nodes publish, where they are known; allocates claims.

The claims of a gang are allocated before any of its pods is bound; when one cannot be, the others are given
back. A claim gets Kubernetes' finalizer first, so that its devices are not forgotten while they are held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from gangline.api.core import Pod
from gangline.api.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from gangline.kube.cache import Cache
from gangline.kube.errors import ApiError, Conflict
from gangline.kube.verbs import ObjectClient
from gangline.placement import Binding, ClaimRefused
from gangline.scheduler.binder import WRITES_AT_ONCE_MAX
from gangline.scheduler.state import SchedulerState
from gangline.scheduler.storage_watch import LOOK_AGAIN_S, READY_TIMEOUT_S, is_readable, synced

FINALIZER = "resource.kubernetes.io/delete-protection"
"""Taken off by Kubernetes' own controller, with the allocation, once no pod uses the claim."""


Obj = dict[str, Any]


class ClaimWatch:
    """What the cluster says about claims of devices.

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
        self._writes = asyncio.Semaphore(WRITES_AT_ONCE_MAX)
        self._protecting: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follow all kinds until cancelled."""
        caches = {
            resource: Cache(self._client, resource, dict)
            for resource in (RESOURCE_SLICES, DEVICE_CLASSES, RESOURCE_CLAIMS)
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
                await synced(cache)
            self._state.devices.is_known = True
            self._is_ready.set()
            if self._state.take_devices(self._state.devices.slices):
                self._wake()

    async def ready(self) -> None:
        """Wait until all is listed or found absent, at most ten seconds."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._is_ready.wait()
        except TimeoutError:
            return

    def _callback(self, resource: Resource) -> Callable[[Any, Any], None]:
        devices = self._state.devices
        table = devices.classes if resource is DEVICE_CLASSES else devices.claims

        def on_change(old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
            obj = new or old or {}
            meta, node = obj["metadata"], ""
            key = f"{meta['namespace']}/{meta['name']}" if resource.namespaced else str(meta["name"])
            if resource is RESOURCE_SLICES:
                node = devices.take_slice(obj, is_gone=new is None)
            elif new is None:
                table.pop(key, None)
            else:
                table[key] = new
            if not devices.is_known:
                return
            claim = key if resource is RESOURCE_CLAIMS else ""
            if self._state.take_devices([node] if node else (), claim):
                self._wake()
            if claim:
                self._protect(claim)

        return on_change

    async def allocate(self, bindings: Sequence[Binding]) -> list[tuple[Binding, ApiError]]:
        """Allocate the claims of a gang, and reserve them for its pods.

        Returns:
            All bindings with the reason when one claim cannot be allocated: then none of them is.
        """
        taken = self._state.devices.taken() if any(one.claims for one in bindings) else {}
        wanted = [(one, name, taken.get(one.node, set())) for one in bindings for name in self._names(one)]
        results = await asyncio.gather(*(self._allocate(*one) for one in wanted), return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException) and not isinstance(error, ApiError):
                raise error
        failed = [error for error in results if isinstance(error, ApiError)]
        if not failed:
            return []
        return [(binding, failed[0]) for binding in bindings]

    def _names(self, binding: Binding) -> list[str]:
        """Return the claims of a pod that a decision is about."""
        held = self._state.allocations.get(binding.uid)
        return [name for _, name in held.device_claims if name] if held is not None else []

    async def _allocate(self, binding: Binding, name: str, taken: set[str]) -> None:
        key = f"{binding.pod.partition('/')[0]}/{name}"
        try:
            status = self._state.devices.allocated(binding, name, taken)
        except ClaimRefused as refused:
            raise Conflict(409, "Conflict", str(refused)) from None
        if writing := self._protecting.get(key):
            await asyncio.wait([writing])
        claim = self._state.devices.claims[key]
        async with self._writes:
            if not _is_protected(claim):
                claim = await self._client.update(RESOURCE_CLAIMS, _protected(claim))
            claim = await self._client.update(
                RESOURCE_CLAIMS, {**claim, "status": status}, subresource="status"
            )
        self._state.devices.claims[key] = claim  # the next decision shall not wait for the watch

    def take_pod(self, pod: Pod) -> None:
        """Look at the claims of a pod that has come."""
        if self._state.devices.is_known and pod.spec.resource_claims and not pod.spec.node_name:
            made = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
            for one in pod.spec.resource_claims:
                name = made.get(one.name, one.resource_claim_name)
                self._protect(f"{pod.metadata.namespace}/{name}")

    def _protect(self, key: str) -> None:
        """Write the finalizer of a claim while the gang that waits with it is still being made."""
        claim = self._state.devices.claims.get(key)
        if claim is None or key in self._protecting or _is_protected(claim) or _is_ending(claim):
            return
        if not self._state.may_start_with(key):
            return
        task = asyncio.get_running_loop().create_task(self._write_finalizer(key, claim))
        self._protecting[key] = task
        task.add_done_callback(lambda _: self._protecting.pop(key, None))

    async def _write_finalizer(self, key: str, claim: Obj) -> None:
        with suppress(ApiError):  # it is written with the allocation then, which tells of what is wrong
            async with self._writes:
                done = await self._client.update(RESOURCE_CLAIMS, _protected(claim))
            if self._state.devices.claims.get(key) is claim:
                self._state.devices.claims[key] = done

    async def release(self, bindings: Sequence[Binding]) -> None:
        """Give back what was allocated to pods that were not bound after all."""
        wanted = [(one, name) for one in bindings for name in self._names(one)]
        await asyncio.gather(*(self._release(*one) for one in wanted))

    async def _release(self, binding: Binding, name: str) -> None:
        key = f"{binding.pod.partition('/')[0]}/{name}"
        claim = self._state.devices.claims.get(key) or {}
        status = dict(claim.get("status") or {})
        reserved = status.get("reservedFor") or ()
        if not any(one["uid"] == binding.uid for one in reserved):
            return
        status["reservedFor"] = [one for one in reserved if one["uid"] != binding.uid]
        if not status["reservedFor"]:
            status.pop("allocation", None)
        try:
            async with self._writes:
                done = await self._client.update(
                    RESOURCE_CLAIMS, {**claim, "status": status}, subresource="status"
                )
        except ApiError:
            return  # Kubernetes' controller gives it back once its pod is gone
        self._state.devices.claims[key] = done


def _is_protected(claim: Obj) -> bool:
    return FINALIZER in (claim["metadata"].get("finalizers") or ())


def _is_ending(claim: Obj) -> bool:
    return bool(claim["metadata"].get("deletionTimestamp"))


def _protected(claim: Obj) -> Obj:
    finalizers = claim["metadata"].get("finalizers") or []
    return {**claim, "metadata": {**claim["metadata"], "finalizers": [*finalizers, FINALIZER]}}
