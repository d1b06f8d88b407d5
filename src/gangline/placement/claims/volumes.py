"""Volume claims: which nodes the volumes of a pod allow, and what an unbound claim waits for.

Source: Kubernetes documentation, "Persistent Volumes" and "Storage Classes", volume binding mode.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gangline.placement.snapshot import PodView

NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAITS_FOR_CONSUMER = "WaitForFirstConsumer"
BOUND = "Bound"

Terms = tuple[dict[str, Any], ...]
Obj = dict[str, Any]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A PersistentVolumeClaim.

    Attributes:
        volume: the volume that it is bound to, or empty.
        storage_class: the name of its class, or empty.
        owner: uid of the object that controls it, or empty.
    """

    volume: str = ""
    owner: str = ""
    storage_class: str = ""


class StorageClass(msgspec.Struct, frozen=True, kw_only=True):
    """A StorageClass.

    Attributes:
        waits: volumes are made where the first pod goes, and not before.
        provisioner: who makes them.
    """

    waits: bool = False
    provisioner: str = ""


def read_claim(obj: Obj) -> Claim:
    """Return a PersistentVolumeClaim; one that is not bound yet has no volume, whatever its spec asks for."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    volume = spec.get("volumeName") if status.get("phase") == BOUND else ""
    owners = (obj.get("metadata") or {}).get("ownerReferences") or ()
    owner = next((str(one.get("uid") or "") for one in owners if one.get("controller")), "")
    return Claim(volume=volume or "", storage_class=spec.get("storageClassName") or "", owner=owner)


def read_volume(obj: Obj) -> Terms | None:
    """Return the node affinity terms of a PersistentVolume, one of which must hold; None for any node."""
    required = ((obj.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    return tuple(required.get("nodeSelectorTerms") or ()) if required else None


def read_class(obj: Obj) -> StorageClass:
    """Return a StorageClass."""
    waits = obj.get("volumeBindingMode") == WAITS_FOR_CONSUMER
    return StorageClass(waits=waits, provisioner=str(obj.get("provisioner") or ""))


class Storage:
    """All claims, volumes and classes of a cluster.

    Attributes:
        is_known: all has been read; until then, and where nobody may read it, claims decide nothing.
        claims: by ``NAMESPACE/NAME``.
        volumes: node affinity terms by name.
        classes: by name.
    """

    def __init__(self) -> None:
        self.is_known = False
        self.claims: dict[str, Claim] = {}
        self.volumes: dict[str, Terms | None] = {}
        self.classes: dict[str, StorageClass] = {}

    def take(self, claims: Iterable[Obj], volumes: Iterable[Obj], classes: Iterable[Obj]) -> None:
        """Take all objects of a cluster, in wire form; from now on all is known."""
        for claim in claims:
            meta = claim["metadata"]
            self.claims[f"{meta['namespace']}/{meta['name']}"] = read_claim(claim)
        self.volumes.update({volume["metadata"]["name"]: read_volume(volume) for volume in volumes})
        self.classes.update({entry["metadata"]["name"]: read_class(entry) for entry in classes})
        self.is_known = True

    def applied(self, pod: PodView) -> PodView:
        """Return a waiting pod with what its claims say: nodes that their volumes allow, or why it waits."""
        if not pod.claims or pod.node_name or pod.refusal or not self.is_known:
            return pod
        terms: list[Terms] = []
        for name in pod.claims:
            refusal, found = self._one(f"{pod.namespace}/{name}", pod.uid if name in pod.own_claims else "")
            if refusal:
                return msgspec.structs.replace(pod, refusal=refusal, shape=pod.shape + refusal.encode())
            if found is not None:
                terms.append(found)
        if not terms:
            return pod
        shape = pod.shape + msgspec.json.encode(terms)
        return msgspec.structs.replace(pod, volume_terms=tuple(terms), shape=shape)

    def selects_node(self, pod: PodView) -> list[str]:
        """Return the claims whose volumes are made on the node that the pod gets."""
        found = [(name, self.claims.get(f"{pod.namespace}/{name}")) for name in pod.claims]
        return [name for name, claim in found if claim is not None and not claim.volume]

    def _one(self, key: str, owner: str) -> tuple[str, Terms | None]:
        """Return why a pod waits for a claim, or what its volume allows; one made for it has an owner."""
        claim = self.claims.get(key)
        if claim is None and owner:
            return f"waits for claim {key} of its ephemeral volume, which is being made", None
        if claim is None:
            return f"waits for claim {key}, which does not exist", None
        if owner and claim.owner != owner:
            return (
                f"waits for claim {key} of its ephemeral volume: one of that name exists and is not its own",
                None,
            )
        if claim.volume:
            if claim.volume not in self.volumes:
                return f"waits for volume {claim.volume} of claim {key}, which does not exist", None
            return "", self.volumes[claim.volume]
        known = self.classes.get(claim.storage_class)
        if known is None or not known.waits:
            return f"waits for claim {key} to be bound to a volume", None
        if known.provisioner == NO_PROVISIONER:
            return (
                f"waits for claim {key}: this scheduler chooses no volume of class {claim.storage_class}, "
                "name one in spec.volumeName",
                None,
            )
        return "", None
