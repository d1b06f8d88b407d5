"""Gangs by Workloads of Kubernetes 1.35, on a real API server that has them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from control_plane import ControlPlane
from service_account import until

from gangline.api.crds import crds
from gangline.api.resources import NODES, PODS, WORKLOADS
from gangline.kube.client import Client
from gangline.kube.config import load_kubeconfig
from gangline.scheduler.scheduler import Scheduler

OPTIONS = ("--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha1=true")

pytestmark = pytest.mark.kubernetes


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A node, and a scheduler, on an API server with the gate open."""
    with ControlPlane(controllers=False, crds=crds(), apiserver_options=OPTIONS) as plane:
        async with Client(load_kubeconfig(plane.kubeconfig)) as client:
            await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
            amounts = {"cpu": "4", "memory": "8Gi", "pods": "100"}
            ready = [{"type": "Ready", "status": "True", "reason": "Test", "message": "test"}]
            status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
            await client.patch(NODES, "a", {"status": status}, kind="merge", subresource="status")
            task = asyncio.create_task(Scheduler(client, names=("gangline-scheduler",)).run())
            yield client
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def pod(name: str, replica: str) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    ref = {"name": "train", "podGroup": "workers", "podGroupReplicaKey": replica}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [container],
            "schedulerName": "gangline-scheduler",
            "workloadRef": ref,
            "tolerations": [{"operator": "Exists"}],  # nobody here takes the taint of a new node away
        },
    }


async def test_each_replica_of_a_pod_group_starts_whole_or_waits(client: Client) -> None:
    for replica in ("x", "y"):
        for index in range(3):
            await client.create(PODS, pod(f"{replica}-{index}", replica))

    async def why() -> str:
        found = await client.get(PODS, "x-0", "default")
        conditions = found["status"].get("conditions") or []
        return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")

    assert "default/train/workers/x does not exist" in await until(why)

    workload = {
        "apiVersion": "scheduling.k8s.io/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": 3}}}]},
    }
    await client.create(WORKLOADS, workload)

    async def bound() -> set[str]:
        pods = (await client.list(PODS, "default")).items
        return {found["metadata"]["name"] for found in pods if found["spec"].get("nodeName")}

    assert await until(bound)
    whole = await until(lambda: _three(bound))
    assert whole in ({"x-0", "x-1", "x-2"}, {"y-0", "y-1", "y-2"})


async def _three(bound: Callable[[], Awaitable[set[str]]]) -> set[str]:
    found = await bound()
    return found if len(found) >= 3 else set()
