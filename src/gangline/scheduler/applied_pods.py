"""Pods as other objects make them: volume claims, claims of devices, namespaces. No input or output.

A pod says which of them it is about; what these say decides where it may go. When one changes, the pods that
it is about are looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gangline.placement import DeviceClaims, Namespaces, PodView, Storage
from gangline.workloads.workload_sets import SetGang


class AppliedPods:
    """The pods that are about other objects, as they say it, and those objects.

    Attributes:
        storage: volume claims, volumes and storage classes.
        devices: claims of devices, device classes, and what nodes publish.
        namespaces: labels of namespaces.
    """

    def __init__(self) -> None:
        self.storage = Storage()
        self.devices = DeviceClaims()
        self.namespaces = Namespaces()
        self._said: dict[str, PodView] = {}

    def take(self, said: PodView) -> PodView:
        """Take a pod as it says it; return it as it is."""
        if said.claims or said.device_claims or _selects_namespaces(said):
            self._said[said.uid] = said
            self.devices.note(said)
        return self.view(said)

    def view(self, said: PodView) -> PodView:
        """Return a pod as it is."""
        return self.storage.applied(self.namespaces.applied(self.devices.applied(said)))

    def drop(self, uid: str) -> None:
        """Forget a pod that is over."""
        if said := self._said.pop(uid, None):
            self.devices.forget(said)

    def join(self, uid: str, gang: SetGang) -> None:
        """Note that a pod is in the gang of its set."""
        if said := self._said.get(uid):
            self._said[uid] = msgspec.structs.replace(said, gang=gang.key, gang_size=gang.size)

    def with_volumes(self) -> list[PodView]:
        """Return the pods with volume claims, as they say it."""
        return [said for said in self._said.values() if said.claims]

    def selecting(self) -> list[PodView]:
        """Return the pods that select namespaces, as they say it."""
        return [said for said in self._said.values() if _selects_namespaces(said)]

    def with_devices(self, claim: str = "") -> list[PodView]:
        """Return the pods that name a claim of devices, or any, as they say it."""
        users: Iterable[str] = self.devices.users.get(claim, ()) if claim else self._said
        return [said for uid in users if (said := self._said[uid]).device_claims]


def _selects_namespaces(said: PodView) -> bool:
    return said.relations is not None and said.relations.selects_namespaces
