"""What reading jobs takes: objects of a kind and logs, of an API server or of what is kept after a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol

from gangline.api.resources import Resource
from gangline.kube.client import ObjectList


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
