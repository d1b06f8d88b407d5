"""Follows resource claims, device classes and what nodes publish, where they are known; allocates claims.

The claims of a gang are allocated before any of its pods is bound; when one cannot be, the others are given
back. A claim gets Kubernetes' finalizer first, so that its devices are not forgotten while they are held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
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
from gangline.scheduler.storage_watch import LOOK_AGAIN_S, READY_TIMEOUT_S, is_readable

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
        self._releasing: set[str] = set()
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
                await cache.wait_synced(None)
            self._state.devices.is_known = True
            self._is_ready.set()
            if self._state.take_nodes_devices(None):
                self._wake()

    async def ready(self) -> None:
        """Wait until all is listed or found absent, at most ten seconds."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._is_ready.wait()
        except TimeoutError:
            return

    def _callback(self, resource: Resource) -> Callable[[Any, Any], None]:
        take = {
            RESOURCE_SLICES: self._on_slice,
            DEVICE_CLASSES: self._on_class,
            RESOURCE_CLAIMS: self._on_claim,
        }[resource]

        def on_change(old: Obj | None, new: Obj | None) -> None:
            if take(new or old or {}, new is None):
                self._wake()

        return on_change

    def _on_slice(self, obj: Obj, is_gone: bool) -> bool:
        nodes = self._state.devices.take_slice(obj, is_gone=is_gone)
        return self._state.devices.is_known and self._state.take_nodes_devices(nodes)

    def _on_class(self, obj: Obj, is_gone: bool) -> bool:
        classes, name = self._state.devices.classes, obj["metadata"]["name"]
        classes.pop(name, None)
        if not is_gone:
            classes[name] = obj
        return self._state.take_devices()

    def _on_claim(self, obj: Obj, is_gone: bool) -> bool:
        key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        is_news = self._state.take_claim(key, None if is_gone else _told(obj))
        if self._state.devices.is_known:
            self._protect(key)
        return is_news

    async def allocate(self, bindings: Sequence[Binding]) -> list[tuple[Binding, ApiError]]:
        """Allocate the claims of a gang, and reserve them for its pods: one write for each claim.

        Returns:
            All bindings with the reason when one claim cannot be allocated: then none of them is.
        """
        users = self._users(bindings)
        wanted = [(key, some) for key, some in users.items()]
        results = await asyncio.gather(*(self._allocate(*one) for one in wanted), return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException) and not isinstance(error, ApiError):
                raise error
        failed = [error for error in results if isinstance(error, ApiError)]
        if not failed:
            return []
        return [(binding, failed[0]) for binding in bindings]

    def _users(self, bindings: Sequence[Binding]) -> dict[str, list[Binding]]:
        """Return the claims of pods that a decision is about, with those that name them."""
        users: dict[str, list[Binding]] = {}
        for binding in bindings:
            held = self._state.allocations.get(binding.uid)
            for key in held.named_claims if held is not None else ():
                users.setdefault(key, []).append(binding)
        return users

    async def _allocate(self, key: str, users: Sequence[Binding]) -> None:
        try:
            status = self._state.devices.allocated(key, users)
        except ClaimRefused as refused:
            raise Conflict(409, "Conflict", str(refused)) from None
        if writing := self._protecting.get(key):
            await asyncio.wait([writing])
        claim = self._state.devices.claims[key]
        async with self._writes:
            if not _is_protected(claim):
                claim = _told(await self._client.update(RESOURCE_CLAIMS, _protected(claim)))
            claim = await self._client.update(
                RESOURCE_CLAIMS, {**claim, "status": status}, subresource="status"
            )
        self._state.take_claim(key, _told(claim))  # the next decision shall not wait for the watch

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
                self._state.take_claim(key, _told(done))

    async def release(self, bindings: Sequence[Binding]) -> None:
        """Give back what was allocated to pods that were not bound after all."""
        users = self._users(bindings)
        await asyncio.gather(*(self._release(key, {one.uid for one in users[key]}) for key in users))

    async def release_idle(self, waiting: Collection[str]) -> None:
        """Give back claims that are allocated for nobody but pods that wait, by uid, and find no room.

        So does kube-scheduler; a scheduler that ended between allocating and binding leaves such claims.
        """
        claims = [key for key in self._state.idle_claims(waiting) if key not in self._releasing]
        self._releasing.update(claims)
        try:
            await asyncio.gather(*(self._release(key, None) for key in claims))
        finally:
            self._releasing.difference_update(claims)

    async def _release(self, key: str, users: Collection[str] | None) -> None:
        """Take pods, or all for None, off a claim, and its devices if it is for nobody then."""
        claim = self._state.devices.claims.get(key) or {}
        status = dict(claim.get("status") or {})
        reserved = status.get("reservedFor") or ()
        left = [one for one in reserved if users is not None and one["uid"] not in users]
        if len(left) == len(reserved) and users is not None:
            return
        status["reservedFor"] = left
        if not left:
            status = {}
        try:
            async with self._writes:
                done = await self._client.update(
                    RESOURCE_CLAIMS, {**claim, "status": status}, subresource="status"
                )
        except ApiError:
            return  # it was changed; Kubernetes' controller gives it back once its pods are gone
        if self._state.take_claim(key, _told(done)):
            self._wake()


def _told(claim: Obj) -> Obj:
    """Return a claim without who wrote which field: the server goes on knowing, and reads less of a write."""
    claim["metadata"].pop("managedFields", None)
    return claim


def _is_protected(claim: Obj) -> bool:
    return FINALIZER in (claim["metadata"].get("finalizers") or ())


def _is_ending(claim: Obj) -> bool:
    return bool(claim["metadata"].get("deletionTimestamp"))


def _protected(claim: Obj) -> Obj:
    finalizers = claim["metadata"].get("finalizers") or []
    return {**claim, "metadata": {**claim["metadata"], "finalizers": [*finalizers, FINALIZER]}}
