"""The operator with the API server and its controllers in this process; the test plays the nodes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gangline.api.crds import crds
from gangline.api.resources import CRDS, EVENTS, JOBS, MPIJOBS, NAMESPACES, NODES, PODS, Resource
from gangline.kube.client import Client
from gangline.kube.config import Connection
from gangline.kube.errors import ApiError, NotFound
from gangline.local.apiserver.server import ApiServer
from gangline.local.controllers.all import run_controllers
from gangline.local.paths import ClusterPaths
from gangline.operator.operator import Operator

WAIT_S = 15.0


def mpijob(name: str = "pi", workers: int = 2, **spec: Any) -> dict[str, Any]:
    """A job that the API server takes; ``spec`` is laid over it."""
    container = {"name": "main", "image": "gangline/base"}
    replicas: dict[str, Any] = {
        "Launcher": {"template": {"spec": {"containers": [{**container, "command": ["mpirun", "true"]}]}}}
    }
    if workers:
        replicas["Worker"] = {"replicas": workers, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"mpiReplicaSpecs": replicas, **spec},
    }


@pytest.fixture
def make_job() -> Callable[..., dict[str, Any]]:
    """Return the builder of jobs: ``make_job(name, workers, **spec)``."""
    return mpijob


class Cluster:
    """What the tests talk to."""

    def __init__(self, client: Client, operator: Operator) -> None:
        self.client = client
        self.operator = operator

    async def until(self, condition: Callable[[], Awaitable[Any]]) -> Any:
        """Wait until the condition gives something true, and return it."""
        async with asyncio.timeout(WAIT_S):
            while True:
                if found := await condition():
                    return found
                await asyncio.sleep(0.005)

    async def submit(self, job: dict[str, Any]) -> dict[str, Any]:
        return await self.client.create(MPIJOBS, job)

    async def job(self, name: str = "pi") -> dict[str, Any]:
        return await self.client.get(MPIJOBS, name, "default")

    async def edit(self, patch: dict[str, Any], name: str = "pi") -> None:
        await self.client.patch(MPIJOBS, name, patch, "default")

    async def condition(self, type_: str, status: str = "True", name: str = "pi") -> dict[str, Any]:
        async def found() -> Any:
            job = await self.job(name)
            conditions = job.get("status", {}).get("conditions", [])
            return next((c for c in conditions if c["type"] == type_ and c["status"] == status), None)

        try:
            return await self.until(found)
        except TimeoutError:
            raise AssertionError(f"no {type_}={status}: {await self.job(name)}") from None

    async def get(self, resource: Resource, name: str) -> dict[str, Any] | None:
        try:
            return await self.client.get(resource, name, "default")
        except NotFound:
            return None

    async def exists(self, resource: Resource, name: str) -> dict[str, Any]:
        return await self.until(lambda: self.get(resource, name))

    async def gone(self, resource: Resource, name: str) -> None:
        async def is_gone() -> bool:
            return await self.get(resource, name) is None

        await self.until(is_gone)

    async def pods(self, role: str = "") -> list[dict[str, Any]]:
        selector = f"training.kubeflow.org/job-role={role}" if role else ""
        return (await self.client.list(PODS, "default", label_selector=selector)).items

    async def some_pods(self, role: str, count: int) -> list[dict[str, Any]]:
        """Wait for so many pods of a role, those of an earlier job of the name not counted."""

        async def enough() -> list[dict[str, Any]]:
            owners = {job["metadata"]["uid"] for job in (await self.client.list(MPIJOBS, "default")).items}
            for job in (await self.client.list(JOBS, "default")).items:
                if job["metadata"]["ownerReferences"][0]["uid"] in owners:
                    owners.add(job["metadata"]["uid"])
            pods = await self.pods(role)
            pods = [pod for pod in pods if pod["metadata"]["ownerReferences"][0]["uid"] in owners]
            return pods if len(pods) == count else []

        return await self.until(enough)

    async def set_phase(self, pod: dict[str, Any], phase: str, *, ready: bool = True, **status: Any) -> None:
        """What a node agent would report."""
        meta = pod["metadata"]
        conditions = [{"type": "Ready", "status": "True" if ready and phase == "Running" else "False"}]
        patch = {"status": {"phase": phase, "conditions": conditions, **status}}
        await self.client.patch(PODS, meta["name"], patch, meta["namespace"], subresource="status")

    async def fail(self, pod: dict[str, Any], code: int) -> None:
        container = pod["spec"]["containers"][0]["name"]
        state = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}}
        await self.set_phase(pod, "Failed", containerStatuses=[{"name": container, "state": state}])

    async def events(self, reason: str) -> list[dict[str, Any]]:
        await self.operator._recorder.flush()
        found = (await self.client.list(EVENTS, "default")).items
        return [event for event in found if event["reason"] == reason]

    async def run_to_launcher(self, workers: int = 2) -> dict[str, Any]:
        """Let workers and launcher run; return the launcher's pod."""
        for pod in await self.some_pods("worker", workers):
            await self.set_phase(pod, "Running")
        (launcher,) = await self.some_pods("launcher", 1)
        await self.set_phase(launcher, "Running")
        return launcher

    async def settle(self) -> None:
        """Wait until the operator has nothing in hand."""

        async def is_quiet() -> bool:
            queue = self.operator._queue.statistics()
            return not queue.ready and not queue.in_work

        await self.until(is_quiet)

    async def launcher_job(self, name: str = "pi") -> dict[str, Any]:
        return await self.exists(JOBS, f"{name}-launcher")


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    server = ApiServer(ClusterPaths.of("test"))
    await server.start()
    async with Client(Connection(server=f"unix://{server.paths.api_socket}")) as one:
        yield one
    await server.stop()


@pytest.fixture
async def cluster(client: Client) -> AsyncIterator[Cluster]:
    """A cluster with the MPIJob kind, controllers and operator, and no node."""
    with contextlib.suppress(ApiError):
        await client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
        )
    for crd in crds():
        await client.create(CRDS, crd)
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}})
    operator = Operator(client)
    tasks = [asyncio.create_task(run_controllers(client)), asyncio.create_task(operator.run())]
    yield Cluster(client, operator)
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task
