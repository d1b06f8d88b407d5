"""The rights of deploy/operator.yaml are enough for the operator, on a real API server with RBAC."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.api.crds import crds, gang_crds
from gangline.api.resources import (
    CRDS,
    EVENTS,
    JOBS,
    MPIJOBS,
    NAMESPACES,
    PODS,
    SCHEDULER_PLUGINS_POD_GROUPS,
    SERVICE_ACCOUNTS,
)
from gangline.jobs.settings import Settings
from gangline.kube.apply import apply
from gangline.kube.client import Client
from gangline.kube.config import load_kubeconfig
from gangline.kube.discovery import resource_for
from gangline.kube.errors import NotFound
from gangline.operator.service import OperatorService, ServiceOptions

MANIFEST = Path(__file__).resolve().parents[3] / "deploy" / "operator.yaml"
WAIT_S = 60.0

pytestmark = pytest.mark.kubernetes


@pytest.fixture
async def admin(real_cluster: Any) -> AsyncIterator[Client]:
    async with Client(load_kubeconfig(real_cluster.kubeconfig)) as client:
        for crd in [*crds(), *gang_crds()]:
            await apply(client, CRDS, crd)
        for obj in yaml.safe_load_all(MANIFEST.read_text()):
            await apply(client, await resource_for(client, obj["apiVersion"], obj["kind"]), obj)
        yield client


async def until(condition: Any) -> Any:
    async with asyncio.timeout(WAIT_S):
        while True:
            with contextlib.suppress(NotFound):
                if found := await condition():
                    return found
            await asyncio.sleep(0.02)


@pytest.fixture
async def operator(real_cluster: Any, admin: Client) -> AsyncIterator[tuple[Client, str]]:
    """The operator with the rights of its service account, and the namespace that it looks at."""
    namespace = f"rights-{uuid.uuid4().hex[:8]}"
    await admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    await until(lambda: admin.get(SERVICE_ACCOUNTS, "default", namespace))
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await admin.create_subresource(
        SERVICE_ACCOUNTS, "gangline-operator", "token", request, "mpi-operator"
    )
    found = load_kubeconfig(real_cluster.kubeconfig)
    connection = replace(found, token=answer["status"]["token"], client_cert=None, client_key=None)
    settings = Settings(gang_scheduling="scheduler-plugins-scheduler")
    options = ServiceOptions(namespace=namespace, settings=settings, leader_elect=True)
    async with Client(connection) as client:
        task = asyncio.create_task(OperatorService(client, options).run())
        yield client, namespace
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
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
    refused = {key: count for key, count in client.answers().items() if key[1] in ("401", "403")}
    assert refused == {}


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
