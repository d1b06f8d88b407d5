"""Resource claims of gangs on a real API server, with the rights of deploy/scheduler.yaml alone."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from service_account import installed, make_namespace, refusals, serving, until

from gangline.api.crds import gang_crds
from gangline.api.resources import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SCHEDULER_PLUGINS_POD_GROUPS,
)
from gangline.client.jobs.cluster_view import look
from gangline.devices.simulated import simulate
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.scheduler.claim_watch import FINALIZER
from gangline.scheduler.service import SchedulerOptions, SchedulerService
from gangline.workloads.device_class import DEVICE_CLASS, DRIVER
from gangline.workloads.requests import GPU

pytest.importorskip("grpc", reason="needs grpcio")
from gangline.deviceplugin.dra_objects import resource_slice

pytestmark = pytest.mark.kubernetes


@pytest.fixture
async def scene(real_cluster: Any) -> AsyncIterator[tuple[Client, Client, str]]:
    """An administrator, the scheduler's client, and the name of a namespace and of a node with four GPUs."""
    name = f"claims-{uuid.uuid4().hex[:8]}"
    async with installed(real_cluster.kubeconfig, "scheduler.yaml", gang_crds()) as admin:
        await make_namespace(admin, name)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": name}}}
        made = await admin.create(NODES, node)
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
        ready = [{"type": "Ready", "status": "True", "reason": "x", "message": "x"}]
        status = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": ready}}
        await admin.patch(NODES, name, status, subresource="status")
        told = resource_slice(simulate(name, 4, "v100-dgx1"), name, made["metadata"]["uid"])
        await admin.create(RESOURCE_SLICES, told)
        await admin.create(DEVICE_CLASSES, DEVICE_CLASS)
        options = SchedulerOptions(leader_elect=True, node_selector=f"pool={name}")
        account = "gangline-system/gangline-scheduler"
        async with serving(
            admin, real_cluster.kubeconfig, account, lambda client: SchedulerService(client, options)
        ) as client:
            yield admin, client, name
        for one in (await admin.list(PODS, name)).items:
            with contextlib.suppress(NotFound):
                await admin.delete(PODS, one["metadata"]["name"], name, grace_period_s=0)
        await admin.delete(RESOURCE_SLICES, told["metadata"]["name"])
        await admin.delete(DEVICE_CLASSES, DRIVER)
        await admin.delete(NODES, name)
        await admin.delete(NAMESPACES, name)


async def add_gang(client: Client, where: str, gang: str) -> None:
    """Add a gang of two pods that ask for two GPUs each."""
    about = {"name": gang, "namespace": where}
    version, kind = SCHEDULER_PLUGINS_POD_GROUPS.api_version, SCHEDULER_PLUGINS_POD_GROUPS.kind
    group = {"apiVersion": version, "kind": kind, "metadata": about, "spec": {"minMember": 2}}
    await client.create(SCHEDULER_PLUGINS_POD_GROUPS, group)
    for name in (f"{gang}-0", f"{gang}-1"):
        request = {"name": "gpus", "exactly": {"deviceClassName": DRIVER, "count": 2}}
        claim = {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": RESOURCE_CLAIMS.kind,
            "metadata": {"name": name, "namespace": where},
            "spec": {"devices": {"requests": [request]}},
        }
        await client.create(RESOURCE_CLAIMS, claim)
        container = {"name": "main", "image": "x", "resources": {"claims": [{"name": "mine"}]}}
        spec = {
            "containers": [container],
            "schedulerName": "gangline-scheduler",
            "tolerations": [{"operator": "Exists"}],
            "resourceClaims": [{"name": "mine", "resourceClaimName": name}],
        }
        labels = {"scheduling.x-k8s.io/pod-group": gang}
        metadata = {"name": name, "namespace": where, "labels": labels}
        await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


async def test_claims_of_a_gang_are_allocated_all_or_none(scene: tuple[Client, Client, str]) -> None:
    admin, client, where = scene
    await add_gang(admin, where, "first")

    async def bound() -> list[str]:
        pods = (await admin.list(PODS, where)).items
        return sorted(one["metadata"]["name"] for one in pods if one["spec"].get("nodeName") == where)

    async def is_bound() -> bool:
        return await bound() == ["first-0", "first-1"]

    await until(is_bound)
    claims = {one["metadata"]["name"]: one for one in (await admin.list(RESOURCE_CLAIMS, where)).items}
    given = {
        name: [found["device"] for found in one["status"]["allocation"]["devices"]["results"]]
        for name, one in claims.items()
    }
    # By the ring of the four: each pod has two GPUs that are next to each other in it.
    assert sorted(device for devices in given.values() for device in devices) == [
        f"gpu-{index}" for index in range(4)
    ]
    for name, one in claims.items():
        assert [pod["name"] for pod in one["status"]["reservedFor"]] == [name]
        assert one["metadata"]["finalizers"] == [FINALIZER]

    await add_gang(admin, where, "second")

    async def is_protected() -> bool:  # before there is room, so that allocating takes a write less
        claim = await admin.get(RESOURCE_CLAIMS, "second-1", where)
        return claim["metadata"].get("finalizers") == [FINALIZER] and not claim.get("status")

    await until(is_protected)

    async def reason() -> str:
        group = await admin.get(SCHEDULER_PLUGINS_POD_GROUPS, "second", where)
        conditions = group.get("status", {}).get("conditions") or []
        return next((one["message"] for one in conditions if GPU in one["message"]), "")

    assert "needs 2 simulated nvidia.com/gpu on one node" in await until(reason)
    assert await bound() == ["first-0", "first-1"]
    waiting = await admin.get(RESOURCE_CLAIMS, "second-0", where)
    assert "allocation" not in waiting.get("status", {})
    # What a command sees of the cluster says the same.
    seen = await look(admin)
    (view,) = (one for one in seen.views.values() if one.key == f"{where}/second-0")
    assert view.request[GPU] == 2
    assert not refusals(client)
