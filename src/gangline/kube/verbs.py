"""What others ask of a client, as protocols: to read objects and logs, and to change objects.

The client of an API server has all of it, what is kept after a run has the reading, and the tests' client in
memory the objects.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol

from gangline.api.resources import Resource
from gangline.kube.client import ObjectList, WatchEvent
from gangline.kube.config import Connection


class ObjectReader(Protocol):
    """The reading half of :class:`gangline.kube.client.Client`, as far as a job's report needs it."""

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList[dict[str, Any]]:
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


class ObjectClient(Protocol):
    """The verbs on objects of :class:`gangline.kube.client.Client`, whose documentation holds here too."""

    connection: Connection

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> dict[str, Any]:
        """Return one object."""

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = ...,
    ) -> ObjectList[dict[str, Any]]:
        """Return all objects of a kind."""

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

    async def create(
        self, resource: Resource, obj: dict[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Create an object."""

    async def update(
        self, resource: Resource, obj: dict[str, Any], *, subresource: str = ""
    ) -> dict[str, Any]:
        """Replace an object, or its subresource."""

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: str = "Background",
        grace_period_s: int | None = None,
        uid: str = "",
    ) -> dict[str, Any]:
        """Delete an object; with ``uid`` only that very one."""
