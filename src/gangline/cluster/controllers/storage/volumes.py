"""Carries out the plans of claims and volumes; makes claims for the ephemeral volumes of pods.

There are few of them, and what one claim gets decides what is left for the next: all are looked at in one
pass, one pass at a time.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

from gangline.api.core import Pod
from gangline.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from gangline.cluster.controllers.apps.plan import ApiWrite, WorkloadObject
from gangline.cluster.controllers.caches import Caches, wait_synced
from gangline.cluster.controllers.current_objects import CurrentObjects
from gangline.cluster.controllers.pod_rules import owner_reference
from gangline.cluster.controllers.storage.plan import (
    Space,
    StoragePlan,
    VolumeClass,
    plan_claim,
    plan_volume,
)
from gangline.kube.cache import Cache
from gangline.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from gangline.kube.events import Recorder
from gangline.kube.queue import WorkQueue, work
from gangline.kube.verbs import ObjectClient

RETRY_S = 15.0
"""Claims that wait are looked at again after this: room may have come free. Source: upstream's resync."""


class StorageController:
    """Binds claims to volumes, makes folders, and removes them.

    Args:
        client: of the API server.
        caches: shared by all controllers.
        folder: where folders are made for claims.
    """

    def __init__(self, client: ObjectClient, caches: Caches, folder: Path) -> None:
        self._client, self._folder = client, folder
        self._claims = CurrentObjects(caches, PERSISTENT_VOLUME_CLAIMS, WorkloadObject)
        self._volumes = CurrentObjects(caches, PERSISTENT_VOLUMES, WorkloadObject)
        self._classes: Cache[VolumeClass] = caches.typed(STORAGE_CLASSES, VolumeClass)
        self._pods: Cache[Pod] = caches.typed(PODS, Pod)
        self._recorder = Recorder(client, "persistentvolume-controller")
        self._queue: WorkQueue[str] = WorkQueue()
        self._told: dict[str, tuple[str, str, str]] = {}
        for cache in (self._claims.cache, self._volumes.cache, self._classes):
            cache.on_change(lambda old, new: self._queue.add("all"))
        self._pods.on_change(self._on_pod)

    async def run(self) -> None:
        """Work until cancelled."""
        await wait_synced(self._claims.cache, self._volumes.cache, self._classes, self._pods)
        try:
            await work(self._queue, self.reconcile, workers=1)
        finally:
            await self._recorder.close()

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is not None and any(_claim_of(pod, volume) for volume in pod.spec.volumes):
            self._queue.add("all")

    async def reconcile(self, _: str) -> float | None:
        """Bring every claim and volume forward; returns when to look again, in seconds."""
        used = await self._make_ephemeral()
        space = await asyncio.to_thread(_space_of, self._folder)
        waiting = False
        for claim in self._claims.all():
            volumes = self._volumes.all()
            in_use = claim.metadata.key in used
            plan = plan_claim(claim, volumes, self._classes.items(), space, self._folder, in_use=in_use)
            waiting |= (plan.status or {}).get("phase") == "Pending"
            await self._carry_out(self._claims, claim, plan)
        claims = self._claims.all()
        for volume in self._volumes.all():
            await self._carry_out(self._volumes, volume, plan_volume(volume, claims, self._folder))
        return RETRY_S if waiting else None

    async def _make_ephemeral(self) -> set[str]:
        """Make the claims of pods' ephemeral volumes; return the keys of all claims that pods use."""
        used: set[str] = set()
        for pod in self._pods.items():
            if pod.is_finished or not pod.spec.volumes:
                continue
            for volume in pod.spec.volumes:
                name = _claim_of(pod, volume)
                if not name:
                    continue
                key = f"{pod.metadata.namespace}/{name}"
                used.add(key)
                template = (volume.ephemeral or {}).get("volumeClaimTemplate")
                if template and self._claims.get(key) is None and not pod.metadata.deletion_timestamp:
                    await self._create_claim(pod, name, template)
        return used

    async def _create_claim(self, pod: Pod, name: str, template: dict[str, Any]) -> None:
        metadata = {
            **(template.get("metadata") or {}),
            "name": name,
            "namespace": pod.metadata.namespace,
            "ownerReferences": [owner_reference(PODS, pod.metadata)],
        }
        kind = PERSISTENT_VOLUME_CLAIMS
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        try:
            self._claims.note(await self._client.create(kind, {**body, "spec": template.get("spec") or {}}))
        except AlreadyExists:
            return

    async def _carry_out(
        self, objects: CurrentObjects[WorkloadObject], obj: WorkloadObject, plan: StoragePlan
    ) -> None:
        meta = obj.metadata
        try:
            if plan.remove_folder:
                await asyncio.to_thread(shutil.rmtree, plan.remove_folder, ignore_errors=True)
            for write in plan.steps:
                await self._write(write)
            if plan.status is not None and not plan.status.items() <= obj.status.items():
                patch = {"metadata": {"uid": meta.uid}, "status": plan.status}
                kind = objects.resource
                namespace = meta.namespace if kind.namespaced else None
                answer = await self._client.patch(kind, meta.name, patch, namespace, subresource="status")
                objects.note(answer)
        except (NotFound, Conflict):
            self._queue.add_after("all", 0.1)  # it has changed or gone: decide anew
            return
        except ApiError as error:
            self._tell(objects, obj, ("Warning", "FailedBinding", str(error)))
            raise
        if plan.event is not None:
            self._tell(objects, obj, plan.event)
        else:
            self._told.pop(meta.uid, None)

    async def _write(self, write: ApiWrite) -> None:
        objects = self._claims if write.resource == PERSISTENT_VOLUME_CLAIMS else self._volumes
        namespace = write.meta.namespace if write.resource.namespaced else None
        if write.verb == "create":
            try:
                objects.note(await self._client.create(write.resource, write.body))
            except AlreadyExists:
                return
        elif write.verb == "delete":
            objects.note(
                await self._client.delete(write.resource, write.meta.name, namespace, uid=write.meta.uid)
            )
        else:
            objects.note(await self._client.patch(write.resource, write.meta.name, write.body, namespace))

    def _tell(
        self, objects: CurrentObjects[WorkloadObject], obj: WorkloadObject, event: tuple[str, str, str]
    ) -> None:
        """Send an event once for as long as it holds."""
        if self._told.get(obj.metadata.uid) == event:
            return
        self._told[obj.metadata.uid] = event
        kind = objects.resource
        self._recorder.event((kind.api_version, kind.kind, obj.metadata), *event)


def _claim_of(pod: Pod, volume: Any) -> str:
    """Return the name of the claim that a volume of a pod asks for, empty for other volumes."""
    if volume.ephemeral:
        return f"{pod.metadata.name}-{volume.name}"
    return str((volume.persistent_volume_claim or {}).get("claimName") or "")


def _space_of(folder: Path) -> Space:
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    found = shutil.disk_usage(folder)
    return Space(found.total, found.free)
