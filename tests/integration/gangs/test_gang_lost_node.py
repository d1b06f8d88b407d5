"""A worker whose node is lost while its Node object stays: the job waits, says what for, and goes on.

In scope: operator, scheduler and controllers of the embedded server. The test is the node agent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gangline.api.crds import crds, gang_crds
from gangline.api.resources import CRDS, MPIJOBS, NAMESPACES, NODES, PODS, SCHEDULER_PLUGINS_POD_GROUPS
from gangline.cluster.controllers.all import run_controllers
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server.resources import STORED_KINDS
from gangline.cluster.server.server import ApiServer
from gangline.jobs.settings import Settings
from gangline.kube.apply import apply
from gangline.kube.client import Client
from gangline.kube.config import Connection
from gangline.kube.errors import ApiError, Conflict, NotFound
from gangline.operator.operator import Operator
from gangline.scheduler.scheduler import Scheduler

WAIT_S = 60.0
SCHEDULER = "gangline-scheduler"


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(WAIT_S):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
        return found


def job() -> dict[str, Any]:
    def role(cpu: str, **more: Any) -> dict[str, Any]:
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
        return {"template": {"spec": spec}, **more}

    return {
        "apiVersion": MPIJOBS.api_version,
        "kind": MPIJOBS.kind,
        "metadata": {"name": "pi", "namespace": "default"},
        "spec": {"mpiReplicaSpecs": {"Launcher": role("1"), "Worker": role("3", replicas=2)}},
    }


class Scene:
    """A cluster whose nodes confirm the ends of their pods, except those that are lost."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.lost: set[str] = set()

    async def add_node(self, name: str) -> None:
        await self.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
        await self.set_ready(name, "True", capacity=amounts, allocatable=amounts)

    async def set_ready(self, name: str, ready: str, **status: Any) -> None:
        patch = {"status": {"conditions": [{"type": "Ready", "status": ready}], **status}}
        await self.client.patch(NODES, name, patch, subresource="status")

    async def pods(self) -> list[dict[str, Any]]:
        return (await self.client.list(PODS, "default")).items

    async def confirm(self) -> None:
        """Run what is bound, and confirm what ends."""
        while True:
            for one in await self.pods():
                name, node = one["metadata"]["name"], one["spec"].get("nodeName")
                if not node or node in self.lost:
                    continue
                with contextlib.suppress(NotFound, Conflict):
                    if one["metadata"].get("deletionTimestamp"):
                        await self.client.delete(PODS, name, "default", grace_period_s=0)
                    elif one["status"].get("phase") != "Running":
                        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                        await self.client.patch(
                            PODS, name, {"status": status}, "default", subresource="status"
                        )
            await asyncio.sleep(0.05)

    async def condition(self, type_: str) -> dict[str, Any]:
        status = (await self.client.get(MPIJOBS, "pi", "default")).get("status") or {}
        found = [one for one in status.get("conditions") or [] if one["type"] == type_]
        return found[0] if found else {"status": "", "reason": ""}


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("gangline.workloads.unconfirmed_end.END_LATE_S", 0.5)
    server = ApiServer(ClusterPaths.of("test"))
    await server.start()
    async with Client(Connection(server=f"unix://{server.paths.api_socket}")) as client:
        with contextlib.suppress(ApiError):
            manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
            await client.create(NAMESPACES, manifest)
        for definition in [*crds(), *gang_crds()]:
            await apply(client, CRDS, definition)

        async def are_served() -> bool:
            with contextlib.suppress(ApiError):
                await client.list(MPIJOBS, "default")
                await client.list(SCHEDULER_PLUGINS_POD_GROUPS, "default")
                return True
            return False

        await until(are_served)
        found = Scene(client)
        operator = Operator(client, settings=Settings(gang_scheduling=SCHEDULER))
        parts = [run_controllers(client, STORED_KINDS), Scheduler(client).run(), operator.run()]
        running = [asyncio.create_task(part) for part in [*parts, found.confirm()]]
        yield found
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    await server.stop()


async def delete_node(scene: Scene, node: str) -> None:
    await scene.client.delete(NODES, node)


async def take_out_of_service(scene: Scene, node: str) -> None:
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    await scene.client.patch(NODES, node, {"spec": {"taints": [taint]}})


@pytest.mark.parametrize("give_up", [delete_node, take_out_of_service])
async def test_a_job_says_what_lets_a_pod_of_a_lost_node_go_and_goes_on_then(
    scene: Scene, give_up: Callable[[Scene, str], Awaitable[None]]
) -> None:
    for name in ("a", "b"):
        await scene.add_node(name)
    await scene.client.create(MPIJOBS, job())

    async def runs() -> bool:
        return (await scene.condition("Running"))["status"] == "True"

    await until(runs)
    worker = await scene.client.get(PODS, "pi-worker-1", "default")
    node = worker["spec"]["nodeName"]
    scene.lost.add(node)
    await scene.set_ready(node, "Unknown")
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    await scene.client.patch(NODES, node, {"spec": {"taints": [taint]}})
    # As the taint manager does when the five minutes are over that pods have.
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    status = {"status": {"conditions": [disrupted]}}
    await scene.client.patch(PODS, "pi-worker-1", status, "default", kind="strategic", subresource="status")
    await scene.client.delete(PODS, "pi-worker-1", "default")

    async def says_why() -> dict[str, Any] | None:
        found = await scene.condition("Waiting")
        return found if (found["status"], found["reason"]) == ("True", "Terminating") else None

    found = await until(says_why)
    assert f"node {node} does not confirm its end" in found["message"]
    assert f"`kubectl delete node {node}`" in found["message"]
    kept = await scene.client.get(PODS, "pi-worker-1", "default")
    assert kept["metadata"]["uid"] == worker["metadata"]["uid"]

    await give_up(scene, node)
    await scene.add_node("c")

    await until(runs)
    assert (await scene.condition("Waiting"))["status"] == "False"
    again = await scene.client.get(PODS, "pi-worker-1", "default")
    assert again["metadata"]["uid"] != worker["metadata"]["uid"]
