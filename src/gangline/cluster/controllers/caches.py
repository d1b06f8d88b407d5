"""The caches that the controllers share: every kind is listed and watched once, whoever asks for it."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from gangline.api.core import OwnerReference, Wire
from gangline.api.resources import Resource
from gangline.kube.cache import Cache
from gangline.kube.errors import Unavailable
from gangline.kube.verbs import ObjectClient

T = TypeVar("T")


class BareMeta(Wire, frozen=True, kw_only=True):
    """The part of ``metadata`` by which objects are owned and deleted; the rest stays out of memory."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []

    @property
    def key(self) -> str:
        """``NAMESPACE/NAME``, or ``NAME`` for kinds without a namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class BareObject(Wire, frozen=True, kw_only=True):
    """Any object, as garbage collection sees it."""

    metadata: BareMeta = BareMeta()


class Caches:
    """One cache for each kind. Ask for the typed ones first, then run; bare ones may be added at any time."""

    def __init__(self, client: ObjectClient) -> None:
        self._client = client
        self._caches: dict[Resource, Cache[Any]] = {}
        self._types: dict[Resource, type[Any]] = {}
        self._tasks: dict[Resource, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    def typed(self, resource: Resource, type_: type[T]) -> Cache[T]:
        """Return the cache of a kind, decoded into ``type_``.

        Raises:
            ValueError: the kind is cached as another type.
        """
        if resource not in self._caches:
            self._add(resource, type_)
        if self._types[resource] is not type_:
            found = self._types[resource].__name__
            raise ValueError(f"{resource.plural} are cached as {found}, not as {type_.__name__}")
        return self._caches[resource]

    def bare(self, resource: Resource) -> Cache[Any]:
        """Return the cache of a kind, whatever its type: every object has ``metadata``."""
        if resource not in self._caches:
            self._add(resource, BareObject)
        return self._caches[resource]

    def has(self, resource: Resource) -> bool:
        """Whether a kind is cached already."""
        return resource in self._caches

    def drop(self, resource: Resource) -> None:
        """Forget a kind that is served no more."""
        self._caches.pop(resource, None)
        self._types.pop(resource, None)
        if task := self._tasks.pop(resource, None):
            task.cancel()

    async def run(self) -> None:
        """Keep all caches up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for resource in list(self._caches):
                self._start(resource)
            await asyncio.Event().wait()

    async def wait_synced(self) -> None:
        """Wait for the first list of every kind asked for so far, however long the server takes."""
        await wait_synced(*self._caches.values())

    def _add(self, resource: Resource, type_: type[Any]) -> None:
        self._caches[resource] = Cache(self._client, resource, type_)
        self._types[resource] = type_
        if self._group is not None:
            self._start(resource)

    def _start(self, resource: Resource) -> None:
        assert self._group is not None
        run = self._caches[resource].run()
        self._tasks[resource] = self._group.create_task(run, name=f"cache {resource.plural}")


async def wait_synced(*caches: Cache[Any]) -> None:
    """Wait for the first list of each, however long the server takes to come up."""
    for cache in caches:
        while True:
            try:
                await cache.wait_synced()
                break
            except Unavailable:
                continue
