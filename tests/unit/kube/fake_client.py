"""A client without a server: objects in memory, with the verbs and errors of an API server.

Objects get a uid, a version and the namespace of the client; merge patches and JSON bodies only, no
validation, no finalizers. What was asked is in ``actions``.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from gangline.api.resources import Resource
from gangline.kube.client import ObjectList, WatchEvent
from gangline.kube.config import Connection
from gangline.kube.errors import AlreadyExists, Conflict, NotFound

Object = dict[str, Any]
_Key = tuple[str, str, str]


class FakeClient:
    """Holds objects by plural, namespace and name.

    Attributes:
        actions: (verb, plural, name) of each call that names an object.
    """

    def __init__(self, namespace: str = "default") -> None:
        self.connection = Connection(server="unix:///fake", namespace=namespace)
        self.actions: list[tuple[str, str, str]] = []
        self._objects: dict[_Key, Object] = {}
        self._log: list[tuple[int, str, str, Object]] = []
        self._version = 0
        self._changed = asyncio.Condition()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        self.actions.append(("get", resource.plural, name))
        return copy.deepcopy(self._find(resource, name, namespace))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
    ) -> ObjectList[Object]:
        found = [
            copy.deepcopy(obj)
            for (plural, where, _), obj in self._objects.items()
            if plural == resource.plural
            and namespace in (None, where)
            and _is_selected(obj, label_selector, field_selector)
        ]
        return ObjectList(found, str(self._version))

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[WatchEvent, None]:
        seen = int(resource_version)
        while True:
            for version, type_, plural, obj in list(self._log):
                is_asked_for = plural == resource.plural and namespace in (None, obj["metadata"]["namespace"])
                if version > seen and is_asked_for and _is_selected(obj, label_selector, field_selector):
                    yield WatchEvent(type_, msgspec.json.encode(obj))
                seen = max(seen, version)
            async with self._changed:
                while self._version <= seen:
                    await self._changed.wait()

    async def create(self, resource: Resource, obj: Object, *, dry_run: bool = False) -> Object:
        name = obj["metadata"]["name"]
        self.actions.append(("create", resource.plural, name))
        key = self._key(resource, name, obj["metadata"].get("namespace"))
        if key in self._objects:
            raise AlreadyExists(409, "AlreadyExists", f'{resource.plural} "{name}" already exists')
        made = {"kind": resource.kind, "apiVersion": resource.api_version, **copy.deepcopy(obj)}
        made["metadata"] |= {"uid": f"uid-{self._version + 1}", "namespace": key[1]}
        return await self._put("ADDED", key, made)

    async def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        metadata = obj["metadata"]
        self.actions.append(("update", resource.plural, metadata["name"]))
        live = self._find(resource, metadata["name"], metadata.get("namespace"))
        if metadata.get("resourceVersion") not in (None, live["metadata"]["resourceVersion"]):
            raise Conflict(409, "Conflict", "the object has been modified")
        key = self._key(resource, metadata["name"], metadata.get("namespace"))
        return await self._put("MODIFIED", key, copy.deepcopy(obj))

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: str = "Background",
        grace_period_s: int | None = None,
        uid: str = "",
    ) -> Object:
        self.actions.append(("delete", resource.plural, name))
        live = self._find(resource, name, namespace)
        if uid and uid != live["metadata"]["uid"]:
            raise Conflict(409, "Conflict", "the uid in the precondition is another one's")
        key = self._key(resource, name, namespace)
        await self._put("DELETED", key, live)
        del self._objects[key]
        return live

    def _find(self, resource: Resource, name: str, namespace: str | None) -> Object:
        try:
            return self._objects[self._key(resource, name, namespace)]
        except KeyError:
            raise NotFound(404, "NotFound", f'{resource.plural} "{name}" not found') from None

    def _key(self, resource: Resource, name: str, namespace: str | None) -> _Key:
        where = (namespace or self.connection.namespace) if resource.namespaced else ""
        return resource.plural, where, name

    async def _put(self, type_: str, key: _Key, obj: Object) -> Object:
        async with self._changed:
            self._version += 1
            obj["metadata"]["resourceVersion"] = str(self._version)
            self._objects[key] = obj
            self._log.append((self._version, type_, key[0], copy.deepcopy(obj)))
            self._changed.notify_all()
        return copy.deepcopy(obj)


def _is_selected(obj: Object, labels: str, fields: str) -> bool:
    found = obj["metadata"].get("labels") or {}
    pairs = [part.split("=", 1) for part in labels.split(",") if part]
    name = fields.removeprefix("metadata.name=")
    return all(found.get(key) == value for key, value in pairs) and name in ("", obj["metadata"]["name"])
