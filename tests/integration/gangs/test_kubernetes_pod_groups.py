"""Gangs by Kubernetes' own PodGroup: made by hand or by the operator, placed whole, with its conditions."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gangline.api.crds import crds
from gangline.api.resources import CRDS, KUBERNETES_POD_GROUPS, MPIJOBS, NODES, PODS
from gangline.jobs.settings import Settings
from gangline.kube.apply import apply
from gangline.kube.client import Client
from gangline.kube.errors import ApiError
from gangline.operator.operator import Operator
from gangline.scheduler.scheduler import Scheduler

WAIT_S = 60.0


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(WAIT_S):
        while not (found := await condition()):
            await asyncio.sleep(0.01)
        return found


class Scene:
    """A namespace, and a node of four CPUs that only its pods may use."""

    def __init__(self, client: Client, namespace: str, node: str) -> None:
        self.client, self.namespace, self.node = client, namespace, node

    def pod_spec(self, cpu: str) -> dict[str, Any]:
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
        rules = {"tolerations": [{"operator": "Exists"}], "schedulerName": "ours"}
        return {"containers": [container], "nodeSelector": {"name": self.node}, **rules}

    async def add_pod(self, name: str) -> None:
        spec = {**self.pod_spec("1"), "schedulingGroup": {"podGroupName": "g"}}
        metadata = {"name": name, "namespace": self.namespace}
        await self.client.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )

    async def bound(self) -> set[str]:
        pods = (await self.client.list(PODS, self.namespace)).items
        return {one["metadata"]["name"] for one in pods if one["spec"].get("nodeName")}

    async def until_condition(self, name: str, status: str) -> dict[str, Any]:
        async def found() -> Any:
            groups = (await self.client.list(KUBERNETES_POD_GROUPS, self.namespace)).items
            group = next((one for one in groups if one["metadata"]["name"] == name), {})
            said = (group.get("status") or {}).get("conditions") or []
            return next((one for one in said if one["status"] == status), None)

        return dict(await until(found))


@pytest.fixture
async def scene(api: Any) -> AsyncIterator[Scene]:
    if not api.embedded:
        pytest.skip("the release of Kubernetes that the other tests have does not serve the kind")
    node = f"node-{uuid.uuid4().hex[:8]}"
    async with api.client() as client:
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "100"}
        meta = {"name": node, "labels": {"name": node}}
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        ready = [{"type": "Ready", "status": "True", "reason": "Test", "message": "test"}]
        status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
        await client.patch(NODES, node, {"status": status}, kind="merge", subresource="status")
        task = asyncio.create_task(Scheduler(client, names=("ours",)).run())
        yield Scene(client, api.namespace, node)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await client.delete(NODES, node)


async def test_a_group_made_by_hand_waits_whole_and_starts_whole(scene: Scene) -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": scene.namespace},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }
    await scene.client.create(KUBERNETES_POD_GROUPS, group)
    for name in ("a", "b"):
        await scene.add_pod(name)

    waits = await scene.until_condition("g", "False")
    assert (waits["type"], waits["reason"]) == ("PodGroupInitiallyScheduled", "Unschedulable")
    assert await scene.bound() == set()

    await scene.add_pod("c")

    placed = await scene.until_condition("g", "True")
    assert (placed["type"], placed["reason"]) == ("PodGroupInitiallyScheduled", "Scheduled")
    assert await scene.bound() == {"a", "b", "c"}


async def test_the_pods_of_a_job_are_placed_by_the_group_that_the_operator_wrote(scene: Scene) -> None:
    for definition in crds():
        await apply(scene.client, CRDS, definition)

    async def is_served() -> bool:
        with contextlib.suppress(ApiError):
            await scene.client.list(MPIJOBS, scene.namespace)
            return True
        return False

    await until(is_served)
    settings = Settings(gang_scheduling="kubernetes", has_remote_shell=True)
    running = asyncio.create_task(Operator(scene.client, namespace=scene.namespace, settings=settings).run())
    try:
        role = {"template": {"spec": scene.pod_spec("2")}}
        job = {
            "apiVersion": MPIJOBS.api_version,
            "kind": MPIJOBS.kind,
            "metadata": {"name": "pi", "namespace": scene.namespace},
            "spec": {
                "launcherCreationPolicy": "WaitForWorkersReady",
                "mpiReplicaSpecs": {"Launcher": role, "Worker": {"replicas": 2, **role}},
            },
        }
        await scene.client.create(MPIJOBS, job)

        await scene.until_condition("pi", "True")

        group = await scene.client.get(KUBERNETES_POD_GROUPS, "pi", scene.namespace)
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
        assert await scene.bound() == {"pi-worker-0", "pi-worker-1"}
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
