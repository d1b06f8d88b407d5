"""The rights of deploy/operator.yaml are enough for the operator, on a real API server with RBAC."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from service_account import installed, make_namespace, refusals, serving, until

from gangline.api.crds import crds, gang_crds
from gangline.api.resources import (
    EVENTS,
    JOBS,
    MPIJOBS,
    NAMESPACES,
    PODS,
    SCHEDULER_PLUGINS_POD_GROUPS,
)
from gangline.jobs.settings import Settings
from gangline.kube.client import Client
from gangline.kube.config import load_kubeconfig
from gangline.operator.service import OperatorOptions, OperatorService

pytestmark = pytest.mark.kubernetes


@pytest.fixture
async def admin(real_cluster: Any) -> AsyncIterator[Client]:
    async with installed(real_cluster.kubeconfig, "operator.yaml", [*crds(), *gang_crds()]) as client:
        yield client


@pytest.fixture
async def operator(real_cluster: Any, admin: Client) -> AsyncIterator[tuple[Client, str]]:
    """The operator with the rights of its service account, and the namespace that it looks at."""
    namespace = f"rights-{uuid.uuid4().hex[:8]}"
    await make_namespace(admin, namespace)
    settings = Settings(gang_scheduling="scheduler-plugins-scheduler")
    options = OperatorOptions(
        namespace=namespace, settings=settings, leader_elect=True, lock_namespace="gangline-system"
    )
    account = "gangline-system/gangline-operator"
    async with serving(
        admin, real_cluster.kubeconfig, account, lambda client: OperatorService(client, options)
    ) as client:
        yield client, namespace
    await admin.delete(NAMESPACES, namespace)


async def test_a_job_lives_through_all_its_states_without_a_refusal(
    admin: Client, operator: tuple[Client, str]
) -> None:
    client, namespace = operator
    await admin.create(MPIJOBS, mpijob(namespace))

    async def has(resource: Any, count: int) -> Any:
        found = (await admin.list(resource, namespace)).items
        return len(found) == count and (found or True)

    async def edit(**spec: Any) -> None:
        await admin.patch(MPIJOBS, "pi", {"spec": spec}, namespace)

    def workers(count: int) -> Any:
        return lambda: _count_workers(admin, namespace, count)

    await until(workers(2))
    await until(lambda: has(SCHEDULER_PLUGINS_POD_GROUPS, 1))
    await edit(runPolicy={"suspend": True})
    await until(workers(0))
    await until(lambda: has(SCHEDULER_PLUGINS_POD_GROUPS, 0))
    await edit(runPolicy={"suspend": False})
    await until(workers(2))
    await edit(mpiReplicaSpecs={"Worker": {"replicas": 3}})
    await until(workers(3))

    async def released() -> bool:
        return not (await admin.get(JOBS, "pi-launcher", namespace))["spec"].get("suspend")

    await until(released)
    await until(lambda: _reasons(admin, namespace, "MPIJobResumed"))
    assert refusals(client) == {}


async def test_the_role_of_one_namespace_is_enough_there(real_cluster: Any) -> None:
    """The account of deploy/namespaced, whose namespace is `jobs`; only definitions may not be read."""
    options = OperatorOptions(namespace="jobs", leader_elect=True, lock_namespace="jobs")
    async with contextlib.AsyncExitStack() as stack:
        other = await stack.enter_async_context(Client(load_kubeconfig(real_cluster.kubeconfig)))
        await make_namespace(other, "jobs")
        stack.push_async_callback(other.delete, NAMESPACES, "jobs")
        file = "namespaced/operator.yaml"
        admin = await stack.enter_async_context(installed(real_cluster.kubeconfig, file, crds()))
        serve = serving(
            admin,
            real_cluster.kubeconfig,
            "jobs/gangline-operator",
            lambda client: OperatorService(client, options),
        )
        client = await stack.enter_async_context(serve)
        await admin.create(MPIJOBS, mpijob("jobs"))

        await until(lambda: _count_workers(admin, "jobs", 2))
        await admin.patch(MPIJOBS, "pi", {"spec": {"runPolicy": {"suspend": True}}}, "jobs")
        await until(lambda: _reasons(admin, "jobs", "MPIJobSuspended"))
        await until(lambda: _count_workers(admin, "jobs", 0))
        await admin.patch(MPIJOBS, "pi", {"spec": {"runPolicy": {"suspend": False}}}, "jobs")
        await until(lambda: _count_workers(admin, "jobs", 2))
        assert {method for method, _ in refusals(client)} <= {"GET"}


def mpijob(namespace: str) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "image": "gangline/base", "command": ["true"]}]}}
    roles = {"Launcher": {"template": template}, "Worker": {"replicas": 2, "template": template}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "pi", "namespace": namespace},
        "spec": {"mpiReplicaSpecs": roles},
    }


async def _count_workers(admin: Client, namespace: str, count: int) -> bool:
    pods = (await admin.list(PODS, namespace)).items
    roles = [pod["metadata"]["labels"].get("training.kubeflow.org/job-role") for pod in pods]
    return roles.count("worker") == count


async def _reasons(admin: Client, namespace: str, reason: str) -> bool:
    return any(event["reason"] == reason for event in (await admin.list(EVENTS, namespace)).items)
