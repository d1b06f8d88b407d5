"""The garbage collector: deletes what its owners leave behind.

Verdicts come from :mod:`gangline.cluster.controllers.owner_graph`. An owner that has not been seen is asked
for before anything is deleted; owners of kinds that are not served here count as alive.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import Any

from gangline.api.core import ObjectMeta, OwnerReference
from gangline.cluster.controllers import owner_graph
from gangline.cluster.controllers.inventory import ObjectInventory
from gangline.cluster.controllers.owner_graph import FOREGROUND, ORPHAN, Owned
from gangline.kube.errors import Conflict, NotFound
from gangline.kube.events import Recorder
from gangline.kube.queue import WorkQueue, work
from gangline.kube.verbs import ObjectClient

WORKERS = 20

ABSENT_UIDS_MAX = 20_000
"""Uids of gone owners that are remembered; a forgotten one costs a GET."""

VERIFY_DELAY_S = 0.5
"""An owner that was not seen gets this long to show up before it is asked for: kinds are watched apart."""

UNSEEN_OWNER_RETRY_S = 5.0
"""An owner that exists but was not seen yet is looked for again after this."""


class GarbageController:
    """Carries out what the owner graph says."""

    def __init__(self, client: ObjectClient, inventory: ObjectInventory) -> None:
        self._client = client
        self._inventory = inventory
        self._graph = inventory.graph
        self._recorder = Recorder(client, "garbage-collector-controller")
        self._queue: WorkQueue[str] = WorkQueue()
        self._absent: OrderedDict[str, None] = OrderedDict()
        self._verify_at_s: dict[str, float] = {}
        inventory.listen(self._on_change)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._inventory.wait_synced()
        try:
            await work(self._queue, self.reconcile, workers=WORKERS)
        finally:
            await self._recorder.close()

    def _on_change(self, obj: Owned, is_gone: bool, looks: set[str]) -> None:
        if is_gone:
            self._note_absent(obj.uid)
            self._verify_at_s.pop(obj.uid, None)
        for uid in looks:
            self._queue.add(uid)

    def _note_absent(self, uid: str) -> None:
        self._absent[uid] = None
        if len(self._absent) > ABSENT_UIDS_MAX:
            self._absent.popitem(last=False)

    async def reconcile(self, uid: str) -> float | None:
        """Look at one object; returns when to look again, in seconds."""
        obj = self._graph.get(uid)
        verdict = self._graph.judge(uid, self._absent)
        if obj is None or verdict is None:
            return None
        try:
            return await self._carry_out(obj, verdict)
        except NotFound:
            return None

    async def _carry_out(self, obj: Owned, verdict: owner_graph.Verdict) -> float | None:
        match verdict:
            case owner_graph.Verify(owners=owners):
                return await self._verify(obj, owners)
            case owner_graph.DeleteDependent(propagation=propagation, has_foreign_owner=is_foreign):
                if is_foreign:
                    self._warn_foreign_owner(obj)
                with suppress(Conflict):  # another object has the name by now
                    await self._client.delete(
                        obj.resource, obj.name, obj.namespace, propagation=propagation, uid=obj.uid
                    )
            case owner_graph.KeepOwners(uids=uids):
                await self._keep_owners(obj, set(uids))
            case owner_graph.Release(dependents=dependents):
                for dependent in dependents:
                    await self._orphan(dependent, obj.uid)
                await self._remove_finalizer(obj, ORPHAN)
            case owner_graph.Finish():
                await self._remove_finalizer(obj, FOREGROUND)
        return None

    async def _verify(self, obj: Owned, owners: tuple[OwnerReference, ...]) -> float | None:
        """Ask for owners that were not seen; look again at once if one of them does not exist."""
        now_s = asyncio.get_running_loop().time()
        left_s = self._verify_at_s.setdefault(obj.uid, now_s + VERIFY_DELAY_S) - now_s
        if left_s > 0:
            return left_s
        del self._verify_at_s[obj.uid]
        is_unseen = False
        for ref in owners:
            resource = self._inventory.kind(ref.api_version, ref.kind)
            if resource is None or (resource.namespaced and not obj.namespace):
                continue  # cannot be resolved: counts as alive
            try:
                found = await self._client.get(resource, ref.name, obj.namespace)
            except NotFound:
                self._note_absent(ref.uid)
                self._queue.add(obj.uid)
                continue
            if found["metadata"]["uid"] != ref.uid:
                self._note_absent(ref.uid)
                self._queue.add(obj.uid)
            elif self._graph.get(ref.uid) is None:
                is_unseen = True
        return UNSEEN_OWNER_RETRY_S if is_unseen else None

    async def _keep_owners(self, obj: Owned, uids: set[str]) -> None:
        live = await self._get(obj)
        refs = live["metadata"].get("ownerReferences") or []
        kept = [ref for ref in refs if ref.get("uid") in uids]
        if len(kept) < len(refs):
            await self._patch_metadata(obj, live, {"ownerReferences": kept or None})

    async def _orphan(self, dependent: Owned, owner_uid: str) -> None:
        try:
            live = await self._get(dependent)
            refs = live["metadata"].get("ownerReferences") or []
            kept = [ref for ref in refs if ref.get("uid") != owner_uid]
            if len(kept) < len(refs):
                await self._patch_metadata(dependent, live, {"ownerReferences": kept or None})
        except NotFound:
            return

    async def _remove_finalizer(self, obj: Owned, finalizer: str) -> None:
        live = await self._get(obj)
        finalizers = live["metadata"].get("finalizers") or []
        if finalizer in finalizers:
            kept = [name for name in finalizers if name != finalizer]
            await self._patch_metadata(obj, live, {"finalizers": kept or None})

    async def _get(self, obj: Owned) -> dict[str, Any]:
        """Return the object as it is now.

        Raises:
            NotFound: it is gone, or another one has its name.
        """
        live = await self._client.get(obj.resource, obj.name, obj.namespace)
        if live["metadata"]["uid"] != obj.uid:
            raise NotFound(404, "NotFound", f"{obj.resource.plural} {obj.name} has another uid")
        return live

    async def _patch_metadata(self, obj: Owned, live: dict[str, Any], metadata: dict[str, Any]) -> None:
        version = live["metadata"]["resourceVersion"]
        patch = {"metadata": {"uid": obj.uid, "resourceVersion": version, **metadata}}
        await self._client.patch(obj.resource, obj.name, patch, obj.namespace)

    def _warn_foreign_owner(self, obj: Owned) -> None:
        meta = ObjectMeta(name=obj.name, namespace=obj.namespace, uid=obj.uid)
        regarding = (obj.resource.api_version, obj.resource.kind, meta)
        message = f"ownerRef names an owner outside the namespace {obj.namespace or '(cluster)'}"
        self._recorder.event(regarding, "Warning", "OwnerRefInvalidNamespace", message)
