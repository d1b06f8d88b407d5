"""What others ask of a client, as protocols: to read objects and logs, and all that is done with objects.

Whatever takes a client takes one of these. The client of an API server has all of it, what is kept after a
run has the reading, and so has the tests' client in memory, which serves both.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from gangline.api.resources import Resource
from gangline.kube.client import ListPage, Object, ObjectList, PatchKind, WatchEvent
from gangline.kube.config import Connection
from gangline.kube.errors import ApiError

T = TypeVar("T")


class ObjectReader(Protocol):
    """The reading half of :class:`gangline.kube.client.Client`, as far as a job's report needs it."""

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList[Object]:
        """Return all objects of a kind, with ``kind`` and ``apiVersion``."""

    def logs(
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
        """Yield a container's log in pieces."""


class ObjectClient(ObjectReader, Protocol):
    """The verbs of :class:`gangline.kube.client.Client`, whose documentation holds here too."""

    connection: Connection

    def answers(self) -> dict[tuple[str, str], int]:
        """Return how many requests were sent since the start, by method and status."""

    async def request(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any | None = None
    ) -> Object:
        """Send a request and return the object of the answer."""

    async def send(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any | None = None
    ) -> bytes:
        """Send a request and return the body of the answer."""

    async def post_all(self, requests: Sequence[tuple[str, Any]]) -> list[ApiError | None]:
        """POST bodies, each to a path, at once."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """Return one object."""

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = ...,
    ) -> ObjectList[Object]:
        """Return all objects of a kind."""

    async def any(
        self, resource: Resource, namespace: str | None = None, *, field_selector: str = ""
    ) -> bool:
        """Return whether there is an object of a kind, from one request."""

    async def list_as(
        self,
        resource: Resource,
        type_: type[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = ...,
    ) -> ObjectList[T]:
        """Return all objects of a kind, decoded into a type."""

    def list_pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = ...,
    ) -> AsyncGenerator[ListPage[msgspec.Raw], None]:
        """Yield all objects of a kind as they are, page by page."""

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield the changes after a version."""

    async def create(self, resource: Resource, obj: Object, *, dry_run: bool = False) -> Object:
        """Create an object."""

    async def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        """Replace an object, or its subresource."""

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
        """Patch an object."""

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
        """Delete an object; with ``uid`` only that very one."""

    async def create_subresource(
        self, resource: Resource, name: str, subresource: str, body: Object, namespace: str | None = None
    ) -> Object:
        """POST to a subresource."""
