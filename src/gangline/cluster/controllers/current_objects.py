"""The objects of one kind as the server has them, our own last writes included.

A cache lags behind our own writes by a moment; a plan made in that moment would do the same thing twice. The
answer of a write stands in for the object until the cache shows that version or a later one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from gangline.api.core import ObjectMeta
from gangline.api.resources import Resource
from gangline.cluster.controllers.caches import Caches
from gangline.kube.cache import Cache

T = TypeVar("T")

WRITE_MEMORY_S = 30.0
"""A write that the cache has not shown for this long is taken to be overtaken."""


class CurrentObjects(Generic[T]):
    """Objects by key, by who controls them, and those that nobody does."""

    def __init__(self, caches: Caches, resource: Resource, type_: type[T]) -> None:
        self.resource = resource
        self.cache: Cache[T] = caches.typed(resource, type_)
        self._type = type_
        self._written: dict[str, tuple[float, T | None]] = {}
        self.cache.add_index("controlled by", lambda obj: [_controller(obj)] if _controller(obj) else [])
        self.cache.add_index("orphans of", lambda obj: [] if _controller(obj) else [_meta(obj).namespace])
        self.cache.on_change(self._on_change)

    def note(self, answer: dict[str, Any]) -> T | None:
        """Remember what the server answered to a write; None for a deletion that is complete."""
        if answer.get("kind") == "Status":
            self._remember(str((answer.get("details") or {}).get("uid") or ""), None)
            return None
        obj = msgspec.convert(answer, self._type)
        meta = _meta(obj)
        if meta.deletion_timestamp and not meta.finalizers and not meta.deletion_grace_period_seconds:
            self._remember(meta.uid, None)  # its last finalizer went with this write, and it with that
            return None
        cached = self.cache.get(meta.key)
        if cached is None or _meta(cached).uid != meta.uid or _version(cached) < _version(obj):
            self._remember(meta.uid, obj)
        return obj

    def get(self, key: str) -> T | None:
        """Return the object of a key, or None."""
        cached = self.cache.get(key)
        if cached is None:
            return None
        return self._written[_meta(cached).uid][1] if _meta(cached).uid in self._written else cached

    def all(self) -> list[T]:
        """Return all objects."""
        return self._current(self.cache.items(), lambda obj: True)

    def controlled_by(self, uid: str) -> list[T]:
        """Return the objects that an owner controls."""
        return self._current(self.cache.by_index("controlled by", uid), lambda obj: _controller(obj) == uid)

    def orphans_of(self, namespace: str) -> list[T]:
        """Return the objects of a namespace that nobody controls."""
        cached = self.cache.by_index("orphans of", namespace)
        return self._current(cached, lambda obj: not _controller(obj) and _meta(obj).namespace == namespace)

    def _current(self, cached: list[T], belongs: Any) -> list[T]:
        if not self._written:
            return cached
        found = {_meta(obj).uid: obj for obj in cached}
        for uid, obj in self._recent():
            if obj is not None and belongs(obj):
                found[uid] = obj
            else:
                found.pop(uid, None)
        return list(found.values())

    def _recent(self) -> Iterator[tuple[str, T | None]]:
        oldest_s = asyncio.get_running_loop().time() - WRITE_MEMORY_S
        for uid, (since_s, obj) in list(self._written.items()):
            if since_s < oldest_s:
                del self._written[uid]
            else:
                yield uid, obj

    def _remember(self, uid: str, obj: T | None) -> None:
        self._written[uid] = (asyncio.get_running_loop().time(), obj)

    def _on_change(self, old: T | None, new: T | None) -> None:
        uid = _meta(new or old).uid
        if uid not in self._written:
            return
        written = self._written[uid][1]
        if new is None or (written is not None and _version(new) >= _version(written)):
            del self._written[uid]


def _meta(obj: Any) -> ObjectMeta:
    meta: ObjectMeta = obj.metadata
    return meta


def _controller(obj: Any) -> str:
    owner = _meta(obj).controller
    return owner.uid if owner else ""


def _version(obj: Any) -> int:
    text = _meta(obj).resource_version
    return int(text) if text.isdigit() else 0
