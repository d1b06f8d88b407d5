"""A namespace in which controllers act: our own on the embedded server, upstream's on a real one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gangline.api.resources import PODS, Resource
from gangline.clock import format_time, now
from gangline.cluster.controllers.all import run_controllers
from gangline.cluster.server.resources import STORED_KINDS
from gangline.kube.client import Client

WAIT_S = 120.0


class Workloads:
    """Objects of one namespace; the test is the node agent of pods that no node has."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace

    async def create(self, resource: Resource, name: str, **body: Any) -> dict[str, Any]:
        metadata = {"name": name, "namespace": self.namespace}
        head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        return await self.client.create(resource, {**head, **body})

    async def get(self, resource: Resource, name: str) -> dict[str, Any]:
        return await self.client.get(resource, name, self.namespace)

    async def patch(self, resource: Resource, name: str, **body: Any) -> None:
        await self.client.patch(resource, name, body, self.namespace)

    async def list(self, resource: Resource) -> list[dict[str, Any]]:
        return (await self.client.list(resource, self.namespace)).items

    async def until(self, condition: Callable[[], Awaitable[Any]]) -> Any:
        """Wait until the condition gives something true, and return it."""
        async with asyncio.timeout(WAIT_S):
            while not (found := await condition()):
                await asyncio.sleep(0.02)
            return found

    async def pods(self, count: int) -> list[dict[str, Any]]:
        """Wait until there are so many pods; return them by name."""

        async def enough() -> list[dict[str, Any]]:
            pods = await self.list(PODS)
            return pods if len(pods) == count else []

        return sorted(await self.until(enough), key=lambda pod: pod["metadata"]["name"])

    async def ends(self, pod: dict[str, Any], phase: str) -> None:
        """Report how a pod ended."""
        await self._report(pod, {"phase": phase})

    async def is_ready(self, pod: dict[str, Any]) -> None:
        """Report that a pod runs and is ready."""
        stamp = format_time(now())
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": stamp}
        await self._report(pod, {"phase": "Running", "conditions": [condition]})

    async def _report(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        await self.client.patch(PODS, name, {"status": status}, self.namespace, subresource="status")


@pytest.fixture
async def workloads(api: Any) -> AsyncIterator[Workloads]:
    async with api.client() as client, contextlib.AsyncExitStack() as ending:
        if api.embedded is not None:
            own = await ending.enter_async_context(api.client())
            running = asyncio.create_task(run_controllers(own, STORED_KINDS))

            async def end() -> None:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

            ending.push_async_callback(end)
        yield Workloads(client, api.namespace)
