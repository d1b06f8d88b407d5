"""Who owns whom, by uid, and what follows from it. Pure: the garbage collector carries the verdicts out.

Objects are *looked at* one by one; each change says which ones are worth a look. So the cost of a deletion is
that of its own dependents, whatever else there is.
Source: Kubernetes documentation, "Garbage Collection" and "Owners and Dependents".
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from gangline.api.core import OwnerReference
from gangline.api.resources import Resource

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class Owned(msgspec.Struct, frozen=True):
    """An object as far as ownership goes."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    owners: tuple[OwnerReference, ...] = ()
    is_deleting: bool = False
    finalizers: tuple[str, ...] = ()

    @property
    def waits_for_dependents(self) -> bool:
        """Whether it is being deleted in the foreground."""
        return self.is_deleting and FOREGROUND in self.finalizers


class DeleteDependent(msgspec.Struct, frozen=True):
    """Delete the object: none of its owners is left."""

    propagation: str
    has_foreign_owner: bool = False


class Verify(msgspec.Struct, frozen=True):
    """Ask the server whether these owners exist: they have not been seen."""

    owners: tuple[OwnerReference, ...]


class KeepOwners(msgspec.Struct, frozen=True):
    """Remove all owner references but those with these uids."""

    uids: tuple[str, ...]


class Release(msgspec.Struct, frozen=True):
    """Remove the object's references from its dependents, then the finalizer ``orphan``."""

    dependents: tuple[Owned, ...]


class Finish(msgspec.Struct, frozen=True):
    """Remove the finalizer ``foregroundDeletion``: nothing blocks the deletion any more."""


Verdict = DeleteDependent | Verify | KeepOwners | Release | Finish


class OwnerGraph:
    """All objects by uid, with indexes by owner and by namespace."""

    def __init__(self) -> None:
        self._objects: dict[str, Owned] = {}
        self._dependents: dict[str, set[str]] = {}
        self._by_namespace: dict[str, set[str]] = {}

    def get(self, uid: str) -> Owned | None:
        """Return the object with that uid, or None."""
        return self._objects.get(uid)

    def dependents(self, uid: str) -> list[Owned]:
        """Return the objects that name this uid as an owner."""
        return [self._objects[one] for one in sorted(self._dependents.get(uid, ()))]

    def in_namespace(self, namespace: str) -> list[Owned]:
        """Return everything in a namespace."""
        return [self._objects[uid] for uid in sorted(self._by_namespace.get(namespace, ()))]

    def put(self, obj: Owned) -> set[str]:
        """Take the newest state of an object; returns the uids worth a look."""
        old = self._objects.get(obj.uid)
        if old == obj:
            return set()
        self._unlink(old)
        self._objects[obj.uid] = obj
        if obj.namespace:
            self._by_namespace.setdefault(obj.namespace, set()).add(obj.uid)
        for owner in obj.owners:
            self._dependents.setdefault(owner.uid, set()).add(obj.uid)
        looks = {obj.uid} if obj.owners or obj.is_deleting else set()
        if obj.waits_for_dependents:
            looks |= self._dependents.get(obj.uid, set())
        if old is not None:  # a reference that went may have blocked its owner
            looks |= {owner.uid for owner in old.owners if owner not in obj.owners}
        return looks

    def remove(self, uid: str) -> set[str]:
        """Take the end of an object; returns the uids worth a look."""
        obj = self._objects.pop(uid, None)
        if obj is None:
            return set()
        self._unlink(obj)
        looks = set(self._dependents.get(uid, ()))
        return looks | {owner.uid for owner in obj.owners}

    def _unlink(self, obj: Owned | None) -> None:
        if obj is None:
            return
        _discard(self._by_namespace, obj.namespace, obj.uid)
        for owner in obj.owners:
            _discard(self._dependents, owner.uid, obj.uid)

    def judge(self, uid: str, absent: Container[str]) -> Verdict | None:
        """Say what is to be done about one object.

        Args:
            uid: of the object.
            absent: uids of owners that are known not to exist.
        """
        obj = self._objects.get(uid)
        if obj is None:
            return None
        if obj.is_deleting:
            return self._judge_deletion(obj)
        return self._judge_owners(obj, absent) if obj.owners else None

    def _judge_deletion(self, obj: Owned) -> Verdict | None:
        if ORPHAN in obj.finalizers:
            return Release(tuple(self.dependents(obj.uid)))
        if FOREGROUND not in obj.finalizers:
            return None
        for dependent in self.dependents(obj.uid):
            if any(owner.uid == obj.uid and owner.block_owner_deletion for owner in dependent.owners):
                return None
        return Finish()

    def _judge_owners(self, obj: Owned, absent: Container[str]) -> Verdict | None:
        alive: list[str] = []
        unknown: list[OwnerReference] = []
        is_waited_for = has_foreign_owner = False
        for ref in obj.owners:
            owner = self._objects.get(ref.uid)
            if owner is None:
                if ref.uid not in absent:
                    unknown.append(ref)
            elif obj.namespace and owner.namespace not in ("", obj.namespace):
                has_foreign_owner = True
            elif owner.waits_for_dependents:
                is_waited_for = True
            else:
                alive.append(ref.uid)
        if unknown:
            return Verify(tuple(unknown))
        if alive:
            return KeepOwners(tuple(alive)) if len(alive) < len(obj.owners) else None
        if (is_waited_for and self._dependents.get(obj.uid)) or FOREGROUND in obj.finalizers:
            return DeleteDependent("Foreground", has_foreign_owner)
        return DeleteDependent("Orphan" if ORPHAN in obj.finalizers else "Background", has_foreign_owner)


def _discard(index: dict[str, set[str]], key: str, uid: str) -> None:
    entries = index.get(key)
    if entries is None:
        return
    entries.discard(uid)
    if not entries:
        del index[key]
