"""What the server does unasked: events end after an hour, objects go with their CRD, quotas tell their
use.
"""

from __future__ import annotations

import asyncio
import time

from gangline.api import resources as r
from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.registry import CRD_COLLECTION, RequestTarget, collection_of
from gangline.cluster.server.rules import crds
from gangline.cluster.server.store.store import StoreError
from gangline.cluster.server.verbs.deleting import DeleteOptions, delete_entries
from gangline.cluster.server.verbs.writing import store_next

EVENT_LIFETIME_S = 3600
EVENT_SWEEP_PERIOD_S = 60.0
RETRY_S = 1.0
QUOTA_PAUSE_S = 0.05
"""What changes a quota's use within this time is told in one write."""


async def expire_events(api: ApiContext) -> None:
    """Delete events an hour after they were last written; endless. Looks at write times only."""
    served = api.registry.find("", "v1", r.EVENTS.plural)
    assert served is not None
    target = RequestTarget(served, "")
    while True:
        await sweep_events(api, target, int(time.time()) - EVENT_LIFETIME_S)
        await asyncio.sleep(EVENT_SWEEP_PERIOD_S)


async def sweep_events(api: ApiContext, target: RequestTarget, before_s: int) -> None:
    """Delete the events last written before that time (seconds since the epoch)."""
    old = [entry for entry in api.store.entries(target.collection) if entry.written_s < before_s]
    await delete_entries(api, target, old, DeleteOptions())


async def clean_up_crds(api: ApiContext) -> None:
    """Delete the objects of CRDs that are being deleted, then let these go; endless."""
    watcher = api.store.ring.watch(CRD_COLLECTION, None, None, api.store.revision)
    instances: set[str] = set(crds.terminating(api))
    while not watcher.closed:
        for name in list(instances):
            try:
                if await _clean_up(api, name):
                    instances.discard(name)
            except (status_errors.StatusError, StoreError):
                pass  # somebody else wrote meanwhile; looked at again below
        changes = await watcher.next_changes(RETRY_S if instances else 3600.0)
        instances.update(
            change.name for change in changes if "deletionTimestamp" in change.new.obj["metadata"]
        )


async def _clean_up(api: ApiContext, name: str) -> bool:
    """Take one step; returns whether the CRD is gone."""
    served = api.registry.find(r.CRDS.group, r.CRDS.version, r.CRDS.plural)
    assert served is not None
    target = RequestTarget(served, "", name)
    entry = api.store.latest(*target.key)
    if entry is None:
        return True
    finalizers = entry.obj["metadata"].get("finalizers") or []
    if crds.FINALIZER not in finalizers:
        return True
    collection = crds.collection_of_crd(entry.obj)
    row = next((row for row in api.registry.rows if collection_of(row) == collection), None)
    if row is not None:
        await delete_entries(api, RequestTarget(row, ""), api.store.entries(collection), DeleteOptions())
    if row is not None and api.store.count(collection):
        return False  # finalizers of its objects are at work
    entry = api.store.latest(*target.key)
    if entry is None:
        return True
    meta = dict(entry.obj["metadata"])
    meta["finalizers"] = [f for f in meta.get("finalizers") or [] if f != crds.FINALIZER]
    if not meta["finalizers"]:
        del meta["finalizers"]
    await store_next(api, target, entry, {**entry.obj, "metadata": meta})
    api.store.ring.close_collection(collection)
    return True


async def tell_quotas(api: ApiContext) -> None:
    """Write into the status of each quota what is used of it, whenever that has changed; endless."""
    served = api.registry.find(r.RESOURCE_QUOTAS.group, r.RESOURCE_QUOTAS.version, r.RESOURCE_QUOTAS.plural)
    assert served is not None
    while True:
        await api.quotas.changed.wait()
        await asyncio.sleep(QUOTA_PAUSE_S)
        api.quotas.changed.clear()
        stale, api.quotas.stale = api.quotas.stale, set()
        for namespace, name in stale:
            target = RequestTarget(served, namespace, name, "status")
            entry, status = api.store.latest(*target.key), api.quotas.status((namespace, name))
            if entry is None or status is None or entry.obj.get("status") == status:
                continue
            meta = dict(entry.obj["metadata"])
            try:
                await store_next(api, target, entry, {**entry.obj, "metadata": meta, "status": status})
            except StoreError:
                pass  # the next change tells it
