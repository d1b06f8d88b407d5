"""Every object of every kind, built-in and custom, as :class:`OwnerGraph` sees it; Events are left out.

Kinds come and go with their definitions (CRDs). Kinds that another controller caches are not cached twice.
Read next: ``garbage.py`` and ``namespaces.py``, which listen here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from gangline.api.core import Condition, ObjectMeta, OwnerReference, Wire, is_true
from gangline.api.resources import CRDS, EVENTS, Resource
from gangline.cluster.controllers.caches import Caches, wait_synced
from gangline.cluster.controllers.owner_graph import Owned, OwnerGraph
from gangline.kube.errors import Unavailable

CUSTOM_SYNC_S = 5.0
"""How long a start waits for the objects of one custom kind."""

Listener = Callable[[Owned, bool, set[str]], None]
"""Called with an object, whether it is gone, and the uids worth a look."""

InUse = Callable[[Callable[[Resource], None]], None]
"""Has its argument called with every built-in kind that has had an object, now or later."""


class CrdNames(Wire, frozen=True, kw_only=True):
    """``spec.names`` of a CRD."""

    plural: str = ""
    kind: str = ""


class CrdVersion(Wire, frozen=True, kw_only=True):
    """One version of a CRD."""

    name: str
    served: bool = False
    storage: bool = False


class CrdSpec(Wire, frozen=True, kw_only=True):
    """``spec`` of a CRD without its schemas."""

    group: str = ""
    scope: str = "Namespaced"
    names: CrdNames = CrdNames()
    versions: list[CrdVersion] = []


class CrdStatus(Wire, frozen=True, kw_only=True):
    """``status`` of a CRD."""

    conditions: list[Condition] = []


class Crd(Wire, frozen=True, kw_only=True):
    """A CustomResourceDefinition, as far as it says where its objects live."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CrdSpec = CrdSpec()
    status: CrdStatus = CrdStatus()

    @property
    def resource(self) -> Resource | None:
        """Where the objects are: the stored version if it is served, else any; None when not served yet."""
        served = sorted((v for v in self.spec.versions if v.served), key=lambda version: not version.storage)
        if not served or not is_true(self.status.conditions, "Established"):
            return None
        names, is_namespaced = self.spec.names, self.spec.scope == "Namespaced"
        return Resource(self.spec.group, served[0].name, names.plural, names.kind, namespaced=is_namespaced)


class ObjectInventory:
    """Keeps the graph and tells its listeners what is worth a look.

    Args:
        caches: where objects are listed and watched.
        kinds: those that the server stores besides custom ones.
        in_use: tells which of them have had objects; the others are not watched until they do. Without it
            all are watched from the start: each costs 0.2 MB.
    """

    def __init__(self, caches: Caches, kinds: Iterable[Resource], in_use: InUse | None = None) -> None:
        self.graph = OwnerGraph()
        self._caches = caches
        self._listeners: list[Listener] = []
        self._kinds: dict[tuple[str, str], Resource] = {}
        self._custom: dict[str, Resource] = {}
        self._crds = caches.typed(CRDS, Crd)
        self._served = {(resource.group, resource.kind): resource for resource in kinds if resource != EVENTS}
        for resource in self._served.values():
            if in_use is None or caches.has(resource):
                self._attach(resource)
        if in_use is not None:
            in_use(self._on_use)
        self._crds.on_change(self._on_crd)

    @property
    def namespaced_kinds(self) -> list[Resource]:
        """Kinds whose objects live in namespaces, Events included."""
        return [EVENTS, *(resource for resource in self._kinds.values() if resource.namespaced)]

    def kind(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind that is served, at any version of its group, or None."""
        key = (api_version.rpartition("/")[0], kind)
        return self._kinds.get(key) or self._served.get(key)

    def listen(self, listener: Listener) -> None:
        """Have ``listener`` called with every change."""
        self._listeners.append(listener)

    async def wait_synced(self) -> None:
        """Wait until everything that exists now is in the graph.

        A custom kind that cannot be listed holds nothing up for long: its objects, seen or not, are asked for
        before anything is deleted on their account.
        """
        await wait_synced(self._crds)  # custom kinds are known from here on
        built_in = [resource for resource in self._kinds.values() if resource not in self._custom.values()]
        await wait_synced(*(self._caches.bare(resource) for resource in built_in))
        for resource in list(self._custom.values()):
            with suppress(Unavailable):
                await self._caches.bare(resource).wait_synced(CUSTOM_SYNC_S)

    def _attach(self, resource: Resource) -> None:
        self._kinds[resource.group, resource.kind] = resource
        cache = self._caches.bare(resource)
        cache.on_change(partial(self._on_change, resource))

    def _on_use(self, resource: Resource) -> None:
        key = (resource.group, resource.kind)
        if key in self._served and key not in self._kinds:
            self._attach(resource)

    def _on_crd(self, old: Crd | None, new: Crd | None) -> None:
        name = (new or old or Crd()).metadata.name
        wanted = new.resource if new is not None and not new.metadata.deletion_timestamp else None
        known = self._custom.get(name)
        if new is not None and wanted is None and known is not None:
            return  # on its way out: its objects are still to be seen going
        if wanted == known:
            return
        if known is not None:
            self._detach(name, known)
        if wanted is not None:
            self._custom[name] = wanted
            self._attach(wanted)

    def _detach(self, name: str, resource: Resource) -> None:
        del self._custom[name]
        self._kinds.pop((resource.group, resource.kind), None)
        leftovers = [obj.metadata for obj in self._caches.bare(resource).items()]
        self._caches.drop(resource)
        for meta in leftovers:
            self._tell(to_owned(resource, meta), is_gone=True)

    def _on_change(self, resource: Resource, old: Any, new: Any) -> None:
        if new is None:
            self._tell(to_owned(resource, old.metadata), is_gone=True)
            return
        if old is not None and _is_same(old.metadata, new.metadata):
            return
        self._tell(to_owned(resource, new.metadata), is_gone=False)

    def _tell(self, obj: Owned, *, is_gone: bool) -> None:
        looks = self.graph.remove(obj.uid) if is_gone else self.graph.put(obj)
        for listener in self._listeners:
            listener(obj, is_gone, looks)


def _is_same(old: Any, new: Any) -> bool:
    """Whether two states of an object's metadata are equal as far as ownership goes; most changes are not."""
    before: list[OwnerReference] = old.owner_references
    return bool(
        before == new.owner_references
        and old.finalizers == new.finalizers
        and (old.deletion_timestamp is None) == (new.deletion_timestamp is None)
    )


def to_owned(resource: Resource, meta: Any) -> Owned:
    """Return what the graph keeps of an object."""
    return Owned(
        resource,
        meta.namespace,
        meta.name,
        meta.uid,
        tuple(meta.owner_references),
        meta.deletion_timestamp is not None,
        tuple(meta.finalizers),
    )
