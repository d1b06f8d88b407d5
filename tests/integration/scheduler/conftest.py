"""An API server with a scheduler in this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gangline.api.resources import NAMESPACES, NODES, PODS
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server.server import ApiServer
from gangline.kube.client import Client
from gangline.kube.config import Connection
from gangline.kube.errors import ApiError
from gangline.scheduler.scheduler import Scheduler

WAIT_S = 60.0


class Cluster:
    """What the tests talk to."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def until(self, condition: Callable[[], Awaitable[Any]]) -> Any:
        """Wait until the condition gives something true, and return it."""
        async with asyncio.timeout(WAIT_S):
            while True:
                if found := await condition():
                    return found
                await asyncio.sleep(0.005)

    async def add_node(self, name: str, *, cpu: str = "4", pods: str = "1000") -> None:
        manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        await self.client.create(NODES, manifest)
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": pods}
        conditions = [{"type": "Ready", "status": "True"}]
        patch = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions}}
        await self.client.patch(NODES, name, patch, subresource="status")

    async def add_pod(
        self, name: str, *, cpu: str = "", labels: dict[str, str] | None = None, **spec: Any
    ) -> dict[str, Any]:
        container: dict[str, Any] = {"name": "main", "image": "x"}
        if cpu:
            container["resources"] = {"requests": {"cpu": cpu}}
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
            "spec": {"containers": [container], "schedulerName": "gangline-scheduler", **spec},
        }
        return await self.client.create(PODS, manifest)

    async def node_of(self, name: str) -> str:
        pod = await self.client.get(PODS, name, "default")
        return str(pod["spec"].get("nodeName", ""))

    async def until_bound(self, name: str) -> str:
        return str(await self.until(lambda: self.node_of(name)))

    async def until_unschedulable(self, name: str) -> str:
        async def message() -> str:
            pod = await self.client.get(PODS, name, "default")
            for condition in pod.get("status", {}).get("conditions", []):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return str(condition["message"])
            return ""

        return str(await self.until(message))


@pytest.fixture
async def idle_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """A server alone; the test starts the scheduler."""
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    server = ApiServer(ClusterPaths.of("test"))
    await server.start()
    async with Client(Connection(server=f"unix://{server.paths.api_socket}")) as client:
        with contextlib.suppress(ApiError):
            manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
            await client.create(NAMESPACES, manifest)
        yield Cluster(client)
    await server.stop()
    with contextlib.suppress(OSError):
        server.paths.run.rmdir()


@pytest.fixture
async def cluster(idle_cluster: Cluster) -> AsyncIterator[Cluster]:
    scheduler = asyncio.create_task(Scheduler(idle_cluster.client).run())
    yield idle_cluster
    scheduler.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await scheduler
