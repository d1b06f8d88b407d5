"""Namespaces: a service account and the cluster's authority in each; at the end pods go, then the rest."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from gangline import clock
from gangline.api.resources import CONFIG_MAPS, NAMESPACES, PODS, SERVICE_ACCOUNTS, Resource
from gangline.cluster.controllers.caches import BareObject, Caches
from gangline.cluster.controllers.inventory import ObjectInventory
from gangline.cluster.controllers.owner_graph import Owned
from gangline.kube.cache import Cache
from gangline.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from gangline.kube.queue import WorkQueue, work
from gangline.kube.verbs import ObjectClient

WORKERS = 4
DELETES_AT_ONCE_MAX = 32
NAMESPACE_FINALIZER = "kubernetes"

AUTHORITY = "kube-root-ca.crt"
"""Name of the ConfigMap from which pods learn whom to trust; clients of every language read it."""

LEFTOVER_RETRY_S = 5.0
"""Content that was not seen going is looked for again after this."""


class NamespaceController:
    """Brings up and tears down namespaces.

    Args:
        client: of the API server.
        caches: shared by all controllers.
        inventory: what lies in each namespace.
        authority: certificate of the cluster's authority in PEM; empty for no ConfigMap of it.
    """

    def __init__(
        self, client: ObjectClient, caches: Caches, inventory: ObjectInventory, authority: str = ""
    ) -> None:
        self._client = client
        self._authority = authority
        self._inventory = inventory
        self._namespaces: Cache[BareObject] = caches.typed(NAMESPACES, BareObject)
        self._queue: WorkQueue[str] = WorkQueue()
        self._namespaces.on_change(self._on_namespace)
        inventory.listen(self._on_content)
        if authority:
            caches.bare(CONFIG_MAPS).on_change(self._on_config_map)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._inventory.wait_synced()
        await work(self._queue, self.reconcile, workers=WORKERS)

    def _on_namespace(self, old: BareObject | None, new: BareObject | None) -> None:
        if new is not None:
            self._queue.add(new.metadata.name)

    def _on_config_map(self, old: BareObject | None, new: BareObject | None) -> None:
        meta = (new or old or BareObject()).metadata
        if meta.name == AUTHORITY and (old is not None or new is None):
            self._queue.add(meta.namespace)

    def _on_content(self, obj: Owned, is_gone: bool, looks: set[str]) -> None:
        """An object has gone: a service account is missing, or a namespace may be empty now."""
        del looks
        if not is_gone or not obj.namespace:
            return
        namespace = self._namespaces.get(obj.namespace)
        is_ending = namespace is not None and namespace.metadata.deletion_timestamp is not None
        if is_ending or (obj.resource == SERVICE_ACCOUNTS and obj.name == "default"):
            self._queue.add(obj.namespace)

    async def reconcile(self, name: str) -> float | None:
        """Bring one namespace forward; returns when to look again, in seconds."""
        namespace = self._namespaces.get(name)
        if namespace is None:
            return None
        if namespace.metadata.deletion_timestamp is None:
            await self._ensure_service_account(name)
            await self._ensure_authority(name)
            return None
        return await self._empty(name)

    async def _ensure_service_account(self, namespace: str) -> None:
        account = {
            "apiVersion": SERVICE_ACCOUNTS.api_version,
            "kind": SERVICE_ACCOUNTS.kind,
            "metadata": {"name": "default", "namespace": namespace},
        }
        try:
            await self._client.get(SERVICE_ACCOUNTS, "default", namespace)
        except NotFound:
            try:
                await self._client.create(SERVICE_ACCOUNTS, account)
            except (AlreadyExists, Forbidden, NotFound):
                return  # made by another, or the namespace is going

    async def _ensure_authority(self, namespace: str) -> None:
        data = {"ca.crt": self._authority}
        obj = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {"name": AUTHORITY, "namespace": namespace},
            "data": data,
        }
        if not self._authority:
            return
        try:
            found = await self._client.get(CONFIG_MAPS, AUTHORITY, namespace)
            if found.get("data") != data:
                await self._client.update(CONFIG_MAPS, {**found, "data": data})
        except NotFound:
            try:
                await self._client.create(CONFIG_MAPS, obj)
            except (AlreadyExists, Forbidden, NotFound):
                return  # made by another, or the namespace is going
        except Conflict:
            self._queue.add(namespace)

    async def _empty(self, name: str) -> float | None:
        """Delete what is known to be inside; once that is gone, ask the server, then finalize."""
        content = self._inventory.graph.in_namespace(name)
        if content:
            pods = [obj for obj in content if obj.resource == PODS]  # none runs on without what it reads
            await self._delete_all(pods or content)
            if pods or all(obj.is_deleting for obj in content):
                await self._tell(name, content)
            return LEFTOVER_RETRY_S
        leftovers = 0
        for resource in self._inventory.namespaced_kinds:
            leftovers += await self._sweep(resource, name)
        if leftovers:
            return LEFTOVER_RETRY_S
        await self._finalize(name)
        return None

    async def _tell(self, name: str, content: list[Owned]) -> None:
        """Write into the namespace's status what is still in it."""
        try:
            live = await self._client.get(NAMESPACES, name)
            status = live.get("status") or {}
            conditions = ending_conditions(content, status.get("conditions") or [])
            if conditions != status.get("conditions"):
                live["status"] = {**status, "conditions": conditions}
                await self._client.update(NAMESPACES, live, subresource="status")
        except (NotFound, Conflict):
            return  # told at the next look

    async def _delete_all(self, content: list[Owned]) -> None:
        limit = asyncio.Semaphore(DELETES_AT_ONCE_MAX)

        async def delete(obj: Owned) -> None:
            async with limit:
                try:
                    await self._client.delete(obj.resource, obj.name, obj.namespace, uid=obj.uid)
                except (NotFound, Conflict):
                    return

        deletes = [delete(obj) for obj in content if not obj.is_deleting]
        for outcome in await asyncio.gather(*deletes, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _sweep(self, resource: Resource, namespace: str) -> int:
        """Delete all objects of a kind in a namespace; returns how many are still there."""
        try:
            found = await self._client.list(resource, namespace)
            if not found.items:
                return 0
            # Jobs would leave their pods behind without a policy: the documented default of batch/v1.
            policy = {"propagationPolicy": "Background"}
            await self._client.request("DELETE", resource.path(namespace), params=policy)
            return len((await self._client.list(resource, namespace)).items)
        except NotFound:
            return 0  # the kind is served no more

    async def _finalize(self, name: str) -> None:
        try:
            live = await self._client.get(NAMESPACES, name)
            finalizers = (live.get("spec") or {}).get("finalizers") or []
            kept = [finalizer for finalizer in finalizers if finalizer != NAMESPACE_FINALIZER]
            if len(kept) < len(finalizers):
                live["spec"]["finalizers"] = kept
                await self._client.update(NAMESPACES, live, subresource="finalize")
        except NotFound:
            return


def ending_conditions(content: list[Owned], before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the conditions of a namespace that is going, for what is still in it.

    Source: status_condition_utils.go of Kubernetes' namespace controller.
    """
    kinds = Counter((obj.resource.plural, obj.resource.group) for obj in content)
    left = ", ".join(
        f"{plural}.{group} has {count} resource instances" for (plural, group), count in sorted(kinds.items())
    )
    finalizers = Counter(finalizer for obj in content for finalizer in obj.finalizers)
    held = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    told = {
        "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        "NamespaceDeletionContentFailure": (
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        "NamespaceContentRemaining": ("SomeResourcesRemain", f"Some resources are remaining: {left}"),
        "NamespaceFinalizersRemaining": (
            ("SomeFinalizersRemain", f"Some content in the namespace has finalizers remaining: {held}")
            if held
            else ("ContentHasNoFinalizers", "All content-preserving finalizers finished")
        ),
    }
    known = {condition.get("type"): condition for condition in before}
    now = clock.format_time(clock.now())
    conditions = []
    for type_, (reason, message) in told.items():
        status = "True" if reason.startswith("Some") else "False"
        old = known.get(type_) or {}
        since = old.get("lastTransitionTime") if old.get("status") == status else now
        conditions.append(
            {
                "type": type_,
                "status": status,
                "lastTransitionTime": since,
                "reason": reason,
                "message": message,
            }
        )
    return conditions
