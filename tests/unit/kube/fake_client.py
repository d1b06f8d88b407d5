"""A client without a server: objects in memory, with the verbs and errors of an API server.

Objects get a uid unless they name one, a version and the namespace of the client; every patch is merged, and
there is no validation and no finalizer. What was asked is in ``actions``, with what in ``options``.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from gangline.api.resources import EVENTS, PODS, Resource
from gangline.kube.client import ListPage, ObjectList, PatchKind, WatchEvent
from gangline.kube.config import Connection
from gangline.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Unavailable

Object = dict[str, Any]
T = TypeVar("T")
_Key = tuple[str, str, str]


class FakeClient:
    """Holds objects by plural, namespace and name.

    Attributes:
        actions: (verb, plural, name) of each call that names an object.
        options: the keyword arguments of each of these calls that are not empty; ``body`` of one that has it.
        failures: what the next of these calls raise, one each; None lets a call through.
        is_away: whether every call finds no server.
        answered: what plain requests are answered with, by method and path; others find nothing.
        logged: the logs of pods, by name.
    """

    def __init__(self, namespace: str = "default", *failures: Exception | None) -> None:
        self.connection = Connection(server="unix:///fake", namespace=namespace)
        self.actions: list[tuple[str, str, str]] = []
        self.options: list[Object] = []
        self.failures = list(failures)
        self.is_away = False
        self.answered: dict[tuple[str, str], bytes] = {}
        self.logged: dict[str, bytes] = {}
        self._objects: dict[_Key, Object] = {}
        self._log: list[tuple[int, str, str, Object]] = []
        self._version = 0
        self._changed = asyncio.Condition()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        self._note("get", resource, name)
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
        self._check_reachable()
        found = [
            copy.deepcopy(obj)
            for (plural, where, _), obj in self._objects.items()
            if plural == resource.plural
            and namespace in (None, where)
            and _is_selected(obj, label_selector, field_selector)
        ]
        return ObjectList(found, str(self._version))

    async def any(
        self, resource: Resource, namespace: str | None = None, *, field_selector: str = ""
    ) -> bool:
        return bool((await self.list(resource, namespace, field_selector=field_selector)).items)

    async def list_as(
        self,
        resource: Resource,
        type_: type[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
    ) -> ObjectList[T]:
        found = await self.list(
            resource, namespace, label_selector=label_selector, field_selector=field_selector
        )
        decoded = [msgspec.json.decode(msgspec.json.encode(obj), type=type_) for obj in found.items]
        return ObjectList(decoded, found.resource_version)

    async def list_pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
    ) -> AsyncGenerator[ListPage[msgspec.Raw], None]:
        found = await self.list(
            resource, namespace, label_selector=label_selector, field_selector=field_selector
        )
        items = [msgspec.Raw(msgspec.json.encode(obj)) for obj in found.items]
        yield ListPage(items, found.resource_version, is_first=True)

    def answers(self) -> dict[tuple[str, str], int]:
        return {}

    async def request(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any | None = None
    ) -> Object:
        found: Object = msgspec.json.decode(await self.send(method, path, params=params, body=body))
        return found

    async def send(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any | None = None
    ) -> bytes:
        self._check_reachable()
        if (method, path) not in self.answered:
            raise NotFound(404, "NotFound", f"{method} {path} finds nothing")
        return self.answered[method, path]

    async def logs(
        self,
        pod: str,
        namespace: str | None = None,
        *,
        container: str = "",
        follow: bool = False,
        tail_lines: int | None = None,
        previous: bool = False,
        timestamps: bool = False,
        since_s: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        self._check_reachable()
        yield self.logged[pod]

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

    async def post_all(self, requests: Sequence[tuple[str, Any]]) -> list[ApiError | None]:
        return [await self._post(path, body) for path, body in requests]

    async def _post(self, path: str, body: Object) -> ApiError | None:
        try:
            if body["kind"] == "Event":
                await self.create(EVENTS, body)
            else:
                await self.create_subresource(PODS, *path.split("/")[-2:], body)
        except ApiError as error:
            return error
        return None

    async def create(self, resource: Resource, obj: Object, *, dry_run: bool = False) -> Object:
        name = obj["metadata"]["name"]
        self._note("create", resource, name, body=obj, dry_run=dry_run)
        key = self._key(resource, name, obj["metadata"].get("namespace"))
        if key in self._objects:
            raise AlreadyExists(409, "AlreadyExists", f'{resource.plural} "{name}" already exists')
        made = {"kind": resource.kind, "apiVersion": resource.api_version, **copy.deepcopy(obj)}
        made["metadata"] = {"uid": f"uid-{self._version + 1}", **made["metadata"], "namespace": key[1]}
        return await self._put("ADDED", key, made)

    async def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        metadata = obj["metadata"]
        self._note("update", resource, metadata["name"], body=obj, subresource=subresource)
        live = self._find(resource, metadata["name"], metadata.get("namespace"))
        if metadata.get("resourceVersion") not in (None, live["metadata"]["resourceVersion"]):
            raise Conflict(409, "Conflict", "the object has been modified")
        key = self._key(resource, metadata["name"], metadata.get("namespace"))
        return await self._put("MODIFIED", key, copy.deepcopy(obj))

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str | None = None,
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> Object:
        self._note("patch", resource, name, body=patch, subresource=subresource, force=force)
        live = self._find(resource, name, namespace)
        _check_uid(live, (patch.get("metadata") or {}).get("uid"))
        return await self._put("MODIFIED", self._key(resource, name, namespace), _merged(live, patch))

    async def create_subresource(
        self, resource: Resource, name: str, subresource: str, body: Object, namespace: str | None = None
    ) -> Object:
        self._note(f"create {subresource}", resource, name, body=body)
        return body

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
        self._note("delete", resource, name, grace_period_s=grace_period_s, uid=uid)
        live = self._find(resource, name, namespace)
        _check_uid(live, uid)
        key = self._key(resource, name, namespace)
        await self._put("DELETED", key, live)
        del self._objects[key]
        return live

    def _note(self, verb: str, resource: Resource, name: str, **options: Any) -> None:
        self.actions.append((verb, resource.plural, name))
        self.options.append({key: value for key, value in options.items() if value or type(value) is int})
        self._check_reachable()
        if self.failures and (failure := self.failures.pop(0)):
            raise failure

    def _check_reachable(self) -> None:
        if self.is_away:
            raise Unavailable(0, "", "the server is away")

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


def _check_uid(live: Object, uid: str | None) -> None:
    if uid and uid != live["metadata"]["uid"]:
        raise Conflict(409, "Conflict", "the uid in the precondition is another one's")


def _merged(live: Any, patch: Any) -> Any:
    if not isinstance(live, dict) or not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = {**live, **{key: _merged(live.get(key), value) for key, value in patch.items()}}
    return {key: value for key, value in merged.items() if value is not None}


def _is_selected(obj: Object, labels: str, fields: str) -> bool:
    found = obj["metadata"].get("labels") or {}
    pairs = [part.split("=", 1) for part in labels.split(",") if part]
    path, _, wanted = fields.partition("=")
    field: Any = obj
    for part in path.split("."):
        field = field.get(part) if path else ""
    return all(found.get(key) == value for key, value in pairs) and field == wanted
