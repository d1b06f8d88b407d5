"""Which volume a claim gets, and what becomes of a volume without its claim. Pure.

A claim is bound to a volume that exists and fits, else a folder is made for it where its class is ours. A
folder has no size of its own: its capacity is that of its file system.
Source: Kubernetes documentation, "Persistent Volumes"; pkg/controller/volume/persistentvolume.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from gangline.api.core import ObjectMeta, Wire
from gangline.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Resource
from gangline.cluster.controllers.apps.plan import ApiWrite, WorkloadObject, selects
from gangline.units import format_bytes, parse_quantity

PROVISIONER = "gangline.dev/folder"
"""Of the classes whose volumes are folders of the cluster's own."""

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"


class VolumeClass(Wire, frozen=True, kw_only=True):
    """A StorageClass."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    reclaim_policy: str = "Delete"


class Space(msgspec.Struct, frozen=True):
    """The file system of the folders, in bytes."""

    size_bytes: int
    free_bytes: int


class StoragePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with one claim or volume: the folder first, then the steps, then the status.

    Attributes:
        steps: writes.
        status: the new one; None to leave it.
        event: type, reason and message, or None.
        remove_folder: the folder of a volume that is deleted with it.
    """

    steps: tuple[ApiWrite, ...] = ()
    status: dict[str, Any] | None = None
    event: tuple[str, str, str] | None = None
    remove_folder: str = ""


def plan_claim(
    claim: WorkloadObject,
    volumes: Sequence[WorkloadObject],
    classes: Sequence[VolumeClass],
    space: Space,
    folder: PurePath,
    *,
    in_use: bool,
) -> StoragePlan:
    """Decide what a claim needs.

    Args:
        claim: with its status.
        volumes: all of the cluster.
        classes: all of the cluster.
        space: of the file system of ``folder``.
        folder: where folders are made for claims.
        in_use: whether a pod that has not ended mounts it.
    """
    if claim.is_deleted:
        return StoragePlan(
            steps=() if in_use else _released(PERSISTENT_VOLUME_CLAIMS, claim, CLAIM_PROTECTION)
        )
    name = claim.spec.get("volumeName") or ""
    chosen = next((one for one in volumes if one.metadata.name == name), None) if name else None
    if name and chosen is None:
        if claim.metadata.annotations.get(BIND_COMPLETED):
            lost = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
            return StoragePlan(status={"phase": "Lost"}, event=("Warning", "ClaimLost", lost))
        return StoragePlan(status={"phase": "Pending"})
    if chosen is None:
        chosen = min((one for one in volumes if fits(claim, one)), key=_tightest(claim), default=None)
    if chosen is not None:
        return _bind(claim, chosen)
    return _provision(claim, classes, space, folder)


def fits(claim: WorkloadObject, volume: WorkloadObject) -> bool:
    """Return whether a volume may be bound to a claim; one that names the claim need not be of its class."""
    wanted, spec, reference = claim.spec, volume.spec, volume.spec.get("claimRef")
    if volume.is_deleted or (reference and not is_of(volume, claim)):
        return False
    if not reference and (volume.status.get("phase") or "Available") not in ("Available", "Pending"):
        return False
    is_large = _bytes(spec.get("capacity")) >= _bytes((wanted.get("resources") or {}).get("requests"))
    has_modes = set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ())
    same_mode = wanted.get("volumeMode", "Filesystem") == spec.get("volumeMode", "Filesystem")
    if not (is_large and has_modes and same_mode):
        return False
    if reference:
        return True
    selector = wanted.get("selector")
    same_class = (wanted.get("storageClassName") or "") == (spec.get("storageClassName") or "")
    return same_class and (not selector or selects(selector, volume.metadata.labels))


def is_of(volume: WorkloadObject, claim: WorkloadObject) -> bool:
    """Return whether a volume is bound to a claim, or kept for it."""
    reference = volume.spec.get("claimRef") or {}
    names = (claim.metadata.namespace, claim.metadata.name)
    is_named = (reference.get("namespace"), reference.get("name")) == names
    return is_named and reference.get("uid") in (None, "", claim.metadata.uid)


def _tightest(claim: WorkloadObject) -> Any:
    return lambda volume: (
        not is_of(volume, claim),
        _bytes(volume.spec.get("capacity")),
        volume.metadata.name,
    )


def _bytes(amounts: dict[str, Any] | None) -> float:
    try:
        return float(parse_quantity((amounts or {}).get("storage") or 0))
    except ValueError:
        return 0.0


def _bind(claim: WorkloadObject, volume: WorkloadObject) -> StoragePlan:
    """Bind both ways: the volume first, so that two claims never get the same one."""
    meta, found = claim.metadata, volume.metadata
    if volume.spec.get("claimRef") and not is_of(volume, claim):
        taken = f'volume "{found.name}" already bound to a different claim.'
        event = ("Warning", "FailedBinding", taken)
        return StoragePlan(status={"phase": "Pending"}, event=event)
    if (volume.spec.get("claimRef") or {}).get("uid") != meta.uid:
        reference = {
            "apiVersion": "v1",
            "kind": PERSISTENT_VOLUME_CLAIMS.kind,
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
        }
        precondition = {"uid": found.uid, "resourceVersion": found.resource_version}
        body = {"metadata": precondition, "spec": {"claimRef": reference}}
        return StoragePlan(
            steps=(ApiWrite(verb="patch", resource=PERSISTENT_VOLUMES, meta=found, body=body),),
            status={"phase": "Pending"},
        )
    steps: tuple[ApiWrite, ...] = ()
    if claim.spec.get("volumeName") != found.name or BIND_COMPLETED not in meta.annotations:
        body = {
            "metadata": {"uid": meta.uid, "annotations": {BIND_COMPLETED: "yes"}},
            "spec": {"volumeName": found.name},
        }
        steps = (ApiWrite(verb="patch", resource=PERSISTENT_VOLUME_CLAIMS, meta=meta, body=body),)
    status = {
        "phase": "Bound",
        "accessModes": volume.spec.get("accessModes") or [],
        "capacity": {"storage": (volume.spec.get("capacity") or {}).get("storage", "0")},
    }
    return StoragePlan(steps=steps, status=status)


def _provision(
    claim: WorkloadObject, classes: Sequence[VolumeClass], space: Space, folder: PurePath
) -> StoragePlan:
    """Make a volume for a claim of a class of ours, where the file system has what it asks for."""
    name = claim.spec.get("storageClassName")
    found = next((one for one in classes if one.metadata.name == name), None) if name else None
    pending: dict[str, Any] = {"phase": "Pending"}
    if found is None or found.provisioner != PROVISIONER:
        if not name or found is None or found.provisioner == "kubernetes.io/no-provisioner":
            text = "no persistent volumes available for this claim and no storage class is set"
            if name:
                text = f'no persistent volumes available for this claim and class "{name}" makes none'
            return StoragePlan(status=pending, event=("Normal", "FailedBinding", text))
        text = (
            f"Waiting for a volume to be created either by the external provisioner '{found.provisioner}' "
            "or manually by the system administrator."
        )
        return StoragePlan(status=pending, event=("Normal", "ExternalProvisioning", text))
    wanted_bytes = _bytes((claim.spec.get("resources") or {}).get("requests"))
    if wanted_bytes > space.free_bytes:
        text = (
            f"the claim asks for {format_bytes(int(wanted_bytes))}, the file system of {folder} has "
            f"{format_bytes(space.free_bytes)} free; ask for less, or bind a folder elsewhere with "
            f"`gangline up --volume {claim.metadata.name}=FOLDER`"
        )
        return StoragePlan(status=pending, event=("Warning", "ProvisioningFailed", text))
    volume = f"pvc-{claim.metadata.uid}"
    body = folder_volume(
        volume, str(folder / volume), space.size_bytes, claim.metadata, modes=claim.spec.get("accessModes")
    )
    body["metadata"]["annotations"] = {PROVISIONED_BY: PROVISIONER}
    body["spec"] |= {
        "storageClassName": name,
        "persistentVolumeReclaimPolicy": found.reclaim_policy,
        "hostPath": {"path": str(folder / volume), "type": "DirectoryOrCreate"},
    }
    body["spec"]["claimRef"]["uid"] = claim.metadata.uid
    event = ("Normal", "ProvisioningSucceeded", f"Successfully provisioned volume {volume}")
    step = ApiWrite(verb="create", resource=PERSISTENT_VOLUMES, body=body, may_exist=True)
    return StoragePlan(steps=(step,), status=pending, event=event)


def folder_volume(
    name: str, path: str, size_bytes: int, claim: ObjectMeta, *, modes: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return a volume of a folder, kept for one claim; its capacity is what the file system can hold."""
    reference = {"apiVersion": "v1", "kind": PERSISTENT_VOLUME_CLAIMS.kind}
    return {
        "apiVersion": PERSISTENT_VOLUMES.api_version,
        "kind": PERSISTENT_VOLUMES.kind,
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": str(size_bytes // 2**20) + "Mi"},
            "accessModes": list(modes or ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany")),
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": path, "type": "Directory"},
            "claimRef": {**reference, "namespace": claim.namespace, "name": claim.name},
        },
    }


def plan_volume(volume: WorkloadObject, claims: Sequence[WorkloadObject], folder: PurePath) -> StoragePlan:
    """Decide what a volume needs: its phase, and its end once its claim is gone.

    Args:
        volume: with its status.
        claims: all of the cluster.
        folder: where folders are made for claims; no other one is ever removed.
    """
    reference = volume.spec.get("claimRef") or {}
    claim = next((one for one in claims if is_of(volume, one)), None) if reference else None
    if volume.is_deleted:
        steps = () if claim is not None else _released(PERSISTENT_VOLUMES, volume, VOLUME_PROTECTION)
        return StoragePlan(steps=steps)
    if not reference.get("uid"):
        return StoragePlan(status={"phase": "Available"})
    if claim is not None:
        return StoragePlan(status={"phase": "Bound"})
    if volume.spec.get("persistentVolumeReclaimPolicy") != "Delete":
        return StoragePlan(status={"phase": "Released"})
    path = (volume.spec.get("hostPath") or {}).get("path", "")
    if volume.metadata.annotations.get(PROVISIONED_BY) != PROVISIONER or PurePath(path).parent != folder:
        text = "only folders that were made for a claim are deleted; delete the volume, or use Retain"
        event = ("Warning", "VolumeFailedDelete", text)
        return StoragePlan(status={"phase": "Failed", "message": text}, event=event)
    step = ApiWrite(verb="delete", resource=PERSISTENT_VOLUMES, meta=volume.metadata)
    return StoragePlan(steps=(step,), status={"phase": "Released"}, remove_folder=path)


def _released(kind: Resource, obj: WorkloadObject, finalizer: str) -> tuple[ApiWrite, ...]:
    """Return the step that takes off a finalizer of ours, nothing where it is off."""
    meta = obj.metadata
    if finalizer not in meta.finalizers:
        return ()
    kept = [entry for entry in meta.finalizers if entry != finalizer]
    precondition = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    body = {"metadata": {**precondition, "finalizers": kept or None}}
    return (ApiWrite(verb="patch", resource=kind, meta=meta, body=body),)
