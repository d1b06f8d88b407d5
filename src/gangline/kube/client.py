"""A client of one API server: verbs on resources, lists in pages, watches, logs.

Objects that are written or passed through are dictionaries in wire form; ``list_as`` decodes into types. The
client retries what is safe to retry and no more: everything else is the caller's decision, who sees
:class:`~gangline.kube.errors.ApiError` and nothing of the transport. Read next: ``stream.py``, ``cache.py``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import cache
from typing import Any, Generic, Literal, TypeVar

import msgspec

from gangline.api.resources import PODS, Resource
from gangline.kube.deep_json import collector_paused, decode_json
from gangline.kube.errors import Gone, ServerError, Unavailable
from gangline.kube.pod_streams.web_socket import WebSocket
from gangline.kube.sender import Sender, request_timeout_s
from gangline.kube.stream import LineSplitter, WatchEvent, read_event

__all__ = ["Client", "Object", "ObjectList", "PatchKind", "WatchEvent"]

list_timeout_s = 60.0
"""Bound of one page of a list."""

watch_timeout_s = (300, 600)
"""A watch asks the server to end it after a random time in this range, so that watches spread out."""

watch_idle_timeout_s = 150.0
"""A watch without a byte for this long is given up; servers send bookmarks about once a minute."""

watch_gather_s = 0.01
"""Events of a busy watch are taken so often: a server sends each by itself, and half of its cost is that."""

list_limit = 500
"""Objects in a page."""

Object = dict[str, Any]
PatchKind = Literal["merge", "json", "strategic", "apply"]
T = TypeVar("T")
Items = list[T]  # inside the class `list` is a method

_PATCH_TYPES: dict[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ObjectList(msgspec.Struct, Generic[T]):
    """All objects of a list and the version from which a watch continues it."""

    items: list[T]
    resource_version: str


class ListPage(msgspec.Struct, Generic[T]):
    """A part of a list; the first one begins it, and once more where the list had to be begun anew."""

    items: list[T]
    resource_version: str
    is_first: bool


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[T]):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[T] | None = None


_decode_object = msgspec.json.Decoder(Object).decode
_decode_page = msgspec.json.Decoder(_Page[msgspec.Raw]).decode


@cache
def _decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(type_)


def _read_items(resource: Resource, type_: type[T], items: Sequence[msgspec.Raw]) -> list[T]:
    if type_ is msgspec.Raw:
        return items  # type: ignore[return-value]
    decode = _decoder(type_).decode  # type: ignore[arg-type]  # classes are hashable
    try:
        return [decode_json(decode, item) for item in items]
    except msgspec.MsgspecError as error:
        raise _unreadable(resource, error) from error


def _unreadable(resource: Resource, error: Exception) -> ServerError:
    return ServerError(0, "", f"the list of {resource.plural} cannot be read: {error}")


class Client(Sender):
    """A client of one API server; close it, or use it as an async context manager. Arguments as there."""

    async def is_ready(self) -> bool:
        """Return whether the server says that it is ready to serve; it is asked once."""
        return await self.probe("/readyz")

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = request_timeout_s,
    ) -> Object:
        """Send a request and return the object of the answer; arguments as for :meth:`send`."""
        answer = await self.send(
            method,
            path,
            params=params,
            body=body,
            content_type=content_type,
            headers=headers,
            timeout_s=timeout_s,
        )
        try:
            return decode_json(_decode_object, answer or b"{}")
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ServerError(0, "", f"{method} {path} was answered with no JSON object: {error}") from error

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """Return one object; ``namespace=None`` is the connection's namespace.

        Raises:
            NotFound: there is none.
        """
        return await self.request("GET", resource.path(self._namespace(resource, namespace), name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = list_limit,
    ) -> ObjectList[Object]:
        """Return all objects as dictionaries with ``kind`` and ``apiVersion``; see :meth:`list_as`."""
        found = await self.list_as(
            resource,
            Object,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
        )
        for item in found.items:  # servers leave both out of the items of a typed list
            item.setdefault("kind", resource.kind)
            item.setdefault("apiVersion", resource.api_version)
        return found

    async def list_as(
        self,
        resource: Resource,
        type_: type[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = list_limit,
    ) -> ObjectList[T]:
        """Return all objects of one version, decoded from the bytes, page by page.

        Args:
            resource: the kind.
            type_: what each item is decoded into; ``msgspec.Raw`` leaves it as it is.
            namespace: None means all namespaces.
            label_selector: in the syntax of the API.
            field_selector: in the syntax of the API.
            limit: objects in a page; 0 asks for one page. When a page's token expires on the way, the whole
                list is asked for once more in one page.

        Raises:
            ServerError: the answer is no list, or an item does not fit the type.
            ApiError: the server refused.
        """
        items: Items[T] = []
        selectors = {"label_selector": label_selector, "field_selector": field_selector}
        async with aclosing(self.list_pages(resource, namespace, **selectors, limit=limit)) as pages:
            async for page in pages:
                items = [] if page.is_first else items
                with collector_paused():
                    items += _read_items(resource, type_, page.items)
        return ObjectList(items, page.resource_version)

    async def list_pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = list_limit,
    ) -> AsyncGenerator[ListPage[msgspec.Raw], None]:
        """Yield all objects of one version as they are, page by page; the server works on the next meanwhile.

        Arguments and errors as for :meth:`list_as`. When a page's token expires on the way, the list begins
        anew, in one page.
        """
        path, version = resource.path(namespace), ""
        params = {"labelSelector": label_selector, "fieldSelector": field_selector, "limit": limit or None}
        ahead = asyncio.ensure_future(self.send("GET", path, params=params, timeout_s=list_timeout_s))
        is_first = True
        try:
            while True:
                try:
                    page = decode_json(_decode_page, await ahead)
                except msgspec.MsgspecError as error:
                    raise _unreadable(resource, error) from error
                except Gone:
                    if is_first:
                        raise
                    params, is_first = {**params, "limit": None, "continue": None}, True
                    ahead = asyncio.ensure_future(
                        self.send("GET", path, params=params, timeout_s=list_timeout_s)
                    )
                    continue
                version = page.metadata.resource_version
                if continue_ := page.metadata.continue_:
                    params = {**params, "continue": continue_}
                    ahead = asyncio.ensure_future(
                        self.send("GET", path, params=params, timeout_s=list_timeout_s)
                    )
                    await asyncio.sleep(0)  # it is sent before the caller works
                yield ListPage(page.items or [], version, is_first)
                is_first = False
                if not continue_:
                    return
        finally:
            if not ahead.cancel() and not ahead.cancelled():
                ahead.exception()  # nobody else asks for it

    async def any(
        self, resource: Resource, namespace: str | None = None, *, field_selector: str = ""
    ) -> bool:
        """Return whether there is an object of a kind, from one request that asks for one."""
        params = {"fieldSelector": field_selector, "limit": 1}
        page = await self.request("GET", resource.path(namespace), params=params)
        return bool(page.get("items"))

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield the changes after a version, from one request; bookmarks are asked for.

        Ends when the server ends it or is silent for ``watch_idle_timeout_s``; go on from the last version.

        Raises:
            Gone: the version is too old; list again.
            ApiError: the server refused, or the connection broke (:class:`Unavailable`).
        """
        duration_s = random.randint(*watch_timeout_s)
        params = {
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": resource_version,
            "timeoutSeconds": duration_s,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        until_s = asyncio.get_running_loop().time() + duration_s + request_timeout_s
        splitter = LineSplitter()
        path, idle_s = resource.path(namespace), watch_idle_timeout_s
        async with self.open(path, params, head_timeout_s=idle_s) as answer:
            try:
                async for piece in answer.pieces(
                    idle_timeout_s=idle_s, until_s=until_s, gather_s=watch_gather_s
                ):
                    for line in splitter.feed(piece):
                        yield read_event(line)
            except TimeoutError:
                return
            if splitter.rest():  # a server ends every event with a newline
                raise Unavailable(0, "", f"the watch of {resource.plural} ended in the middle of an event")

    async def open_pod_stream(
        self,
        pod: str,
        subresource: str,
        namespace: str | None = None,
        *,
        params: Mapping[str, Any],
        protocols: Sequence[str],
    ) -> tuple[WebSocket, str]:
        """Open ``exec``, ``attach`` or ``portforward`` of a pod; return it and the protocol that is spoken.

        What is built on it: ``pod_streams/program.py``, ``pod_streams/ports.py``.
        """
        path = PODS.path(self._namespace(PODS, namespace), pod, subresource)
        return await self.open_web_socket(path, params, protocols)

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
        """Yield a container's log in pieces as they come; pieces do not end where lines end.

        With ``follow`` it goes on until the container ends. Raises on the first piece.
        """
        params = {
            "container": container,
            "follow": follow or None,
            "tailLines": tail_lines,
            "previous": previous or None,
            "timestamps": timestamps or None,
            "sinceSeconds": since_s,
        }
        path = PODS.path(self._namespace(PODS, namespace), pod, "log")
        async with self.open(path, params) as answer:
            async for piece in answer.pieces():
                yield piece

    async def create(self, resource: Resource, obj: Object, *, dry_run: bool = False) -> Object:
        """Create an object in the namespace that it names, and return what the server made of it.

        Raises:
            AlreadyExists: the name is taken.
            Invalid: it breaks rules.
        """
        path = resource.path(self._namespace(resource, obj.get("metadata", {}).get("namespace")))
        return await self.request("POST", path, body=obj, params={"dryRun": "All" if dry_run else None})

    async def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        """Replace an object, or its ``subresource``; with a resource version only if it is unchanged.

        Raises:
            Conflict: it has changed since it was read.
        """
        metadata = obj["metadata"]
        namespace = self._namespace(resource, metadata.get("namespace"))
        return await self.request("PUT", resource.path(namespace, metadata["name"], subresource), body=obj)

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
        """Patch an object and return the result.

        Args:
            resource: the kind.
            name: of the object.
            patch: a dictionary; for ``json`` a list of operations; for ``apply`` the whole desired object.
            namespace: None means the connection's.
            kind: ``strategic`` is for built-in kinds only.
            subresource: for example ``status``.
            field_manager: who owns the fields; with ``apply`` the user agent's name by default.
            force: take over fields of other managers (``apply`` only).
            dry_run: change nothing.
        """
        if kind == "apply":
            field_manager = field_manager or self._user_agent
        params = {
            "fieldManager": field_manager,
            "force": force or None,
            "dryRun": "All" if dry_run else None,
        }
        path = resource.path(self._namespace(resource, namespace), name, subresource)
        return await self.request("PATCH", path, body=patch, params=params, content_type=_PATCH_TYPES[kind])

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
        """Delete an object; with ``uid`` only that very one (else :class:`Conflict`).

        Returns the object when it lives on for a while (finalizers, grace period), else a Status.
        """
        options = _delete_options(propagation, grace_period_s, uid)
        return await self.request(
            "DELETE", resource.path(self._namespace(resource, namespace), name), body=options
        )

    async def create_subresource(
        self, resource: Resource, name: str, subresource: str, body: Object, namespace: str | None = None
    ) -> Object:
        """POST to a subresource, for example ``binding`` of a pod."""
        path = resource.path(self._namespace(resource, namespace), name, subresource)
        return await self.request("POST", path, body=body)

    def _namespace(self, resource: Resource, namespace: str | None) -> str | None:
        if not resource.namespaced:
            return None
        return namespace or self.connection.namespace


def _delete_options(propagation: str, grace_period_s: int | None, uid: str) -> Object:
    options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    if uid:
        options["preconditions"] = {"uid": uid}
    return options
