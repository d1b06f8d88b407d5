"""An API server with all controllers in this process, and a stand-in for the node agent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gangline.api.core import Pod
from gangline.api.resources import NAMESPACES, NODES, PODS, Resource
from gangline.cluster.controllers.all import run_controllers
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server.resources import STORED_KINDS
from gangline.cluster.server.server import ApiServer
from gangline.kube.cache import Cache
from gangline.kube.client import Client
from gangline.kube.config import Connection
from gangline.kube.errors import ApiError, NotFound

WAIT_S = 60.0
AUTHORITY = "-----BEGIN CERTIFICATE-----\nof the tests\n"


class Cluster:
    """What the tests talk to."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.pods: Cache[Pod] = Cache(client, PODS, Pod)

    async def until(self, condition: Callable[[], Awaitable[Any]]) -> Any:
        """Wait until the condition gives something true, and return it."""
        async with asyncio.timeout(WAIT_S):
            while True:
                if found := await condition():
                    return found
                await asyncio.sleep(0.005)

    async def until_gone(self, resource: Resource, name: str, namespace: str | None = None) -> None:
        async def is_gone() -> bool:
            try:
                await self.client.get(resource, name, namespace)
            except NotFound:
                return True
            return False

        await self.until(is_gone)

    async def list(self, resource: Resource, namespace: str | None = "default") -> list[dict[str, Any]]:
        return (await self.client.list(resource, namespace)).items

    async def bind(self, pod: dict[str, Any], node: str = "node-0") -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod["metadata"]["name"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        meta = pod["metadata"]
        await self.client.create_subresource(PODS, meta["name"], "binding", body, meta["namespace"])

    async def set_status(self, pod: dict[str, Any], phase: str, **status: Any) -> None:
        meta = pod["metadata"]
        patch = {"status": {"phase": phase, **status}}
        await self.client.patch(PODS, meta["name"], patch, meta["namespace"], subresource="status")

    async def confirm_deletion(self, pod: dict[str, Any]) -> None:
        """What the node agent does at the end of a pod."""
        meta = pod["metadata"]
        await self.client.delete(PODS, meta["name"], meta["namespace"], grace_period_s=0, uid=meta["uid"])


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiServer]:
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    api_server = ApiServer(ClusterPaths.of("test"))
    await api_server.start()
    yield api_server
    await api_server.stop()
    with contextlib.suppress(OSError):
        api_server.paths.run.rmdir()


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    async with Client(Connection(server=f"unix://{server.paths.api_socket}")) as one:
        yield one


@pytest.fixture
async def cluster(client: Client, server: ApiServer) -> AsyncIterator[Cluster]:
    """A cluster with controllers, a namespace ``default`` and a node."""
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}})
    with contextlib.suppress(ApiError):
        await client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
        )
    running = run_controllers(
        client,
        STORED_KINDS,
        authority=AUTHORITY,
        folders=server.paths.volumes,
        in_use=server.on_kind_in_use,
    )
    controllers = asyncio.create_task(running)
    yield Cluster(client)
    controllers.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await controllers
