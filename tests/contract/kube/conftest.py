"""Our client on both servers, and small objects to write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gangline.kube.client import Client

Object = dict[str, Any]


@pytest.fixture
async def client(api: Any) -> AsyncIterator[Client]:
    async with api.client() as one:
        yield one


@pytest.fixture
def config_map(api: Any) -> Callable[..., Object]:
    """Return a builder: ``config_map(name, labels={...}, **data)``."""

    def build(name: str = "cm", labels: dict[str, str] | None = None, **data: str) -> Object:
        meta: Object = {"name": name, "namespace": api.namespace}
        if labels:
            meta["labels"] = labels
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}

    return build


@pytest.fixture
def pod(api: Any) -> Callable[..., Object]:
    """Return a builder of pods that nobody schedules."""

    def build(name: str = "p", **spec: Any) -> Object:
        containers = [{"name": "main", "image": "gangline/base", "command": ["true"]}]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": api.namespace, "labels": {"app": "x"}},
            "spec": {"schedulerName": "nobody", "containers": containers, **spec},
        }

    return build
