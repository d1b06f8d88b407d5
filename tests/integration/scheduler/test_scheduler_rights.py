"""The rights of deploy/scheduler.yaml are enough for the scheduler, on a real API server with RBAC."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from service_account import installed, make_namespace, refusals, serving, until

from gangline.api.crds import gang_crds
from gangline.api.resources import (
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SCHEDULER_PLUGINS_POD_GROUPS,
    VOLCANO_POD_GROUPS,
    Resource,
)
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, Forbidden, NotFound
from gangline.scheduler.explained.published import Published
from gangline.scheduler.service import SchedulerOptions, SchedulerService
from gangline.workloads.suspension import FIELD_MANAGER, SuspendableJob, resume_patch, suspend_patch

WHERE = "gangline-system"

pytestmark = pytest.mark.kubernetes


@pytest.fixture
async def admin(real_cluster: Any) -> AsyncIterator[Client]:
    async with installed(real_cluster.kubeconfig, "scheduler.yaml", gang_crds()) as client:
        yield client


@pytest.fixture
async def scene(real_cluster: Any, admin: Client) -> AsyncIterator[tuple[Client, str]]:
    """The scheduler with the rights of its service account, and a namespace; one node is its own."""
    name = f"rights-{uuid.uuid4().hex[:8]}"
    await make_namespace(admin, name)
    labels = {"pool": name, "ack.node.gpu.schedule": "topology"}
    metadata = {"name": name, "labels": labels}
    await admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    ready = [{"type": "Ready", "status": "True", "reason": "x", "message": "x"}]
    status = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": ready}}
    await admin.patch(NODES, name, status, subresource="status")
    options = SchedulerOptions(leader_elect=True, node_selector=f"pool={name}")
    account = f"{WHERE}/gangline-scheduler"
    async with serving(
        admin, real_cluster.kubeconfig, account, lambda client: SchedulerService(client, options)
    ) as client:
        yield client, name
    for one in (await admin.list(PODS, name)).items:  # the next scheduler must not see them
        with contextlib.suppress(NotFound):
            await admin.delete(PODS, one["metadata"]["name"], name, grace_period_s=0)
    await admin.delete(NODES, name)
    await admin.delete(NAMESPACES, name)


def pod(namespace: str, name: str, gang: str, resource: Resource, **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if resource == VOLCANO_POD_GROUPS:
        metadata["annotations"] = {"scheduling.k8s.io/group-name": gang}
    else:
        metadata["labels"] = {"scheduling.x-k8s.io/pod-group": gang}
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "2"}}}
    rules = {"tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 0}
    spec = {"containers": [container], "schedulerName": "gangline-scheduler", **rules, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def group(namespace: str, name: str, resource: Resource) -> dict[str, Any]:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": 2},
    }


@pytest.mark.parametrize("resource", [SCHEDULER_PLUGINS_POD_GROUPS, VOLCANO_POD_GROUPS], ids=["x", "volcano"])
async def test_gangs_are_placed_wait_and_give_way_without_a_refusal(
    admin: Client, scene: tuple[Client, str], resource: Resource
) -> None:
    client, where = scene
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": where}}
    await admin.create(PRIORITY_CLASSES, {**urgent, "value": 1000})
    for gang in ("first", "waits", "urgent"):
        await admin.create(resource, group(where, gang, resource))

    async def add(gang: str, **spec: Any) -> None:
        for index in range(2):
            await admin.create(PODS, pod(where, f"{gang}-{index}", gang, resource, **spec))

    async def is_bound(gang: str) -> bool:
        pods = [await admin.get(PODS, f"{gang}-{index}", where) for index in range(2)]
        return all(one["spec"].get("nodeName") == where for one in pods)

    async def condition(gang: str) -> Any:
        found = (await admin.get(resource, gang, where)).get("status", {}).get("conditions", [])
        return found and found[0]["type"]

    async def taints() -> Any:
        return [one["key"] for one in (await admin.get(NODES, where))["spec"].get("taints", [])]

    try:
        await add("first")
        await until(lambda: is_bound("first"))

        async def is_tainted() -> bool:
            return "gangline.dev/gpu-schedule" in await taints()

        async def waits() -> bool:
            return await condition("waits") == "Unschedulable"

        await until(is_tainted)
        await add("waits")
        await until(waits)
        await add("urgent", priorityClassName=where)
        await until(lambda: is_bound("urgent"))

        async def events() -> Any:
            reasons = {one["reason"] for one in (await admin.list(EVENTS, where)).items}
            return reasons >= {"Scheduled", "FailedScheduling", "Preempted"}

        await until(events)
        lease = await admin.get(LEASES, "gangline-scheduler", WHERE)
        assert lease["spec"]["holderIdentity"]
        assert Published.of(lease) is not None
        assert refusals(client) == {}
    finally:
        await admin.delete(PRIORITY_CLASSES, where)


async def test_it_may_not_do_what_it_need_not(admin: Client, scene: tuple[Client, str]) -> None:
    client, where = scene
    secrets = Resource("", "v1", "secrets", "Secret")
    for attempt in (
        client.list(secrets, where),
        client.create(PODS, pod(where, "x", "x", SCHEDULER_PLUGINS_POD_GROUPS)),
        client.patch(PODS, "x", {"metadata": {"labels": {"a": "b"}}}, where),
        client.delete(NODES, where),
        client.create(SCHEDULER_PLUGINS_POD_GROUPS, group(where, "x", SCHEDULER_PLUGINS_POD_GROUPS)),
        client.get(LEASES, "kube-scheduler", "kube-system"),
    ):
        with pytest.raises((Forbidden, ApiError)) as caught:
            await attempt
        assert caught.value.status == 403


async def test_it_suspends_and_resumes_jobs_and_knows_what_others_have_suspended(
    admin: Client, scene: tuple[Client, str]
) -> None:
    client, where = scene
    template = pod(where, "x", "x", SCHEDULER_PLUGINS_POD_GROUPS, restartPolicy="Never")["spec"]
    metadata = {"name": "job", "namespace": where}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
    made = await admin.create(JOBS, {**body, "spec": {"template": {"spec": template}}})
    uid = made["metadata"]["uid"]

    async def is_ours() -> bool:
        found = await client.get(JOBS, "job", where)
        job = msgspec.json.decode(msgspec.json.encode(found), type=SuspendableJob)
        assert job.service() == (144_000, 1)
        return job.is_suspended_by_us

    suspend = suspend_patch(JOBS, uid, "gives way", device_s=144_000, suspensions=1)
    await client.patch(JOBS, "job", suspend, where, field_manager=FIELD_MANAGER)
    assert await is_ours()

    labels = {"metadata": {"labels": {"a": "b"}}, "spec": {"suspend": True}}
    await admin.patch(JOBS, "job", labels, where, field_manager="kubectl-patch")
    assert await is_ours()  # which changes nothing of it

    for value in (False, True):
        await admin.patch(JOBS, "job", {"spec": {"suspend": value}}, where, field_manager="kubectl-patch")
    assert not await is_ours()

    await client.patch(JOBS, "job", resume_patch(JOBS, uid), where, field_manager=FIELD_MANAGER)
    assert (await client.get(JOBS, "job", where))["spec"]["suspend"] is False
    assert refusals(client) == {}
