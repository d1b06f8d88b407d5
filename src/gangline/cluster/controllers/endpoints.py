"""Keeps the Endpoints and EndpointSlices of Services.

Changes of the pods of one Service are taken together for a moment: nothing in the cluster waits for these
objects, and a job of many workers would otherwise write one for each worker.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from gangline.api.core import Pod, Service
from gangline.api.resources import ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES, Resource
from gangline.cluster.controllers.caches import Caches, wait_synced
from gangline.cluster.controllers.endpoints_plan import (
    Manifest,
    endpoints_manifest,
    is_mirrored,
    mirrored_manifests,
    selects,
    slice_manifests,
)
from gangline.kube.cache import Cache
from gangline.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from gangline.kube.queue import WorkQueue, work
from gangline.kube.verbs import ObjectClient

WORKERS = 4

COALESCE_S = 0.1
"""Changes of pods within this time become one write."""


class EndpointsController:
    """Writes where the pods of Services are reached."""

    def __init__(self, client: ObjectClient, caches: Caches) -> None:
        self._client = client
        self._services: Cache[Service] = caches.typed(SERVICES, Service)
        self._pods: Cache[Pod] = caches.typed(PODS, Pod)
        self._endpoints = caches.bare(ENDPOINTS)
        self._slices = caches.bare(ENDPOINT_SLICES)
        self._queue: WorkQueue[str] = WorkQueue()
        self._written: dict[str, dict[tuple[str, str], bytes]] = {}
        self._services.add_index("namespace", lambda service: [service.metadata.namespace])
        self._pods.add_index("label", _label_keys)
        self._slices.add_index("owner", _owner_uids)
        self._services.on_change(self._on_service)
        self._pods.on_change(self._on_pod)
        self._endpoints.on_change(self._on_result)
        self._slices.on_change(self._on_result)

    async def run(self) -> None:
        """Work until cancelled."""
        await wait_synced(self._services, self._pods, self._endpoints, self._slices)
        await work(self._queue, self.reconcile, workers=WORKERS)

    def _on_service(self, old: Service | None, new: Service | None) -> None:
        if service := new or old:
            self._queue.add_after(service.metadata.key, COALESCE_S)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None and _face(old) == _face(new):
            return
        pod = new or old
        assert pod is not None
        for service in self._services.by_index("namespace", pod.metadata.namespace):
            if selects(service, pod) or (old is not None and selects(service, old)):
                self._queue.add_after(service.metadata.key, COALESCE_S)

    def _on_result(self, old: Any, new: Any) -> None:
        """One of our objects is gone: write it again if its Service is still there. Others' are mirrored."""
        meta = (new or old).metadata
        if new is not None:
            if (service := self._services.get(meta.key)) and is_mirrored(service):
                self._queue.add_after(meta.key, COALESCE_S)
            return
        for owner in meta.owner_references:
            if owner.kind in (SERVICES.kind, ENDPOINTS.kind):
                key = f"{old.metadata.namespace}/{owner.name}"
                self._written.pop(key, None)
                self._queue.add(key)

    async def reconcile(self, key: str) -> float | None:
        """Write what has changed for one Service. Those of a Service that is gone go with their owner."""
        service = self._services.get(key)
        if service is None or service.metadata.deletion_timestamp or service.spec.type == "ExternalName":
            self._written.pop(key, None)
            return None
        owner_uid = service.metadata.uid
        if is_mirrored(service):
            try:
                endpoints = await self._client.get(
                    ENDPOINTS, service.metadata.name, service.metadata.namespace
                )
            except NotFound:
                self._written.pop(key, None)
                return None
            owner_uid = endpoints["metadata"]["uid"]
            wanted = [(ENDPOINT_SLICES, manifest) for manifest in mirrored_manifests(endpoints)]
        else:
            pods = self._selected(service)
            wanted = [(ENDPOINTS, endpoints_manifest(service, pods))]
            wanted += [(ENDPOINT_SLICES, manifest) for manifest in slice_manifests(service, pods)]
            if written_by_hand := self._endpoints.get(key):  # before the service had a selector
                await self._delete_surplus(written_by_hand.metadata.uid, set())
        known = self._written.get(key, {})
        written: dict[tuple[str, str], bytes] = {}
        for resource, manifest in wanted:
            name = manifest["metadata"]["name"]
            encoded = msgspec.json.encode(manifest, order="sorted")
            if known.get((resource.plural, name)) != encoded:
                await self._write(resource, manifest)
            written[resource.plural, name] = encoded
        self._written[key] = written
        await self._delete_surplus(
            owner_uid, {name for plural, name in written if plural == "endpointslices"}
        )
        return None

    def _selected(self, service: Service) -> list[Pod]:
        """Return the pods that match, beginning with the label that fewest pods have."""
        namespace = service.metadata.namespace
        keys = [f"{namespace}/{name}={value}" for name, value in service.spec.selector.items()]
        candidates = min((self._pods.by_index("label", key) for key in keys), key=len)
        return [pod for pod in candidates if selects(service, pod)]

    async def _write(self, resource: Resource, manifest: Manifest) -> None:
        """Create or replace an object; one that is equal already is left alone by the server."""
        metadata = manifest["metadata"]
        cache = self._endpoints if resource == ENDPOINTS else self._slices
        try:
            if cache.get(f"{metadata['namespace']}/{metadata['name']}") is None:
                await self._client.create(resource, manifest)
            else:
                await self._client.update(resource, manifest)
        except AlreadyExists:
            await self._client.update(resource, manifest)
        except NotFound:
            await self._client.create(resource, manifest)
        except Forbidden:
            return  # the namespace is going

    async def _delete_surplus(self, owner_uid: str, wanted: set[str]) -> None:
        for piece in self._slices.by_index("owner", owner_uid):
            meta = piece.metadata
            if meta.name not in wanted:
                with suppress(NotFound, Conflict):
                    await self._client.delete(ENDPOINT_SLICES, meta.name, meta.namespace, uid=meta.uid)


def _label_keys(pod: Pod) -> list[str]:
    return [f"{pod.metadata.namespace}/{name}={value}" for name, value in pod.metadata.labels.items()]


def _owner_uids(piece: Any) -> list[str]:
    return [owner.uid for owner in piece.metadata.owner_references]


def _face(pod: Pod) -> tuple[object, ...]:
    """What of a pod shows in endpoints."""
    ready = next((c.status for c in pod.status.conditions if c.type == "Ready"), "")
    return (
        pod.metadata.labels,
        pod.status.pod_ip,
        pod.is_finished,
        pod.metadata.deletion_timestamp is None,
        ready,
        pod.spec.node_name,
    )
