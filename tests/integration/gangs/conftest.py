"""A control plane of the release of Kubernetes that has gangs of its own, and nodes that are objects only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from control_plane import WITH_GANGS, ControlPlane, NotBuilt
from jobset_controller import JobSetController

from gangline.api.crds import crds
from gangline.api.resources import NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS, Resource
from gangline.jobs.settings import Settings
from gangline.kube.client import Client
from gangline.kube.config import load_kubeconfig
from gangline.kube.errors import NotFound
from gangline.operator.operator import Operator

WAIT_S = 60.0
GANGS = ("GenericWorkload",)
ALL_GATES = (
    *GANGS,
    "TopologyAwareWorkloadScheduling",
    "CompositePodGroup",
    "PodGroupPreemptionPolicy",
    "DRAWorkloadResourceClaims",
)
SERVED = "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true"


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    """Wait until the condition gives something true, and return it."""
    async with asyncio.timeout(WAIT_S):
        while True:
            with contextlib.suppress(NotFound):
                if found := await condition():
                    return found
            await asyncio.sleep(0.02)


def started(gates: Sequence[str], *, scheduler: bool) -> Iterator[ControlPlane]:
    """Yield a control plane with these gates open."""
    plane = ControlPlane(
        release=WITH_GANGS, gates=gates, scheduler=scheduler, crds=crds(), apiserver_options=(SERVED,)
    )
    try:
        plane.start()
    except NotBuilt as error:
        pytest.fail(str(error))
    try:
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def kube_scheduler_plane() -> Iterator[ControlPlane]:
    """One with kube-scheduler, and the gate that its gangs need."""
    yield from started(GANGS, scheduler=True)


@pytest.fixture(scope="session")
def open_plane() -> Iterator[ControlPlane]:
    """One without a scheduler, with every gate of pod groups."""
    yield from started(ALL_GATES, scheduler=False)


@pytest.fixture(scope="session")
def job_sets(open_plane: ControlPlane) -> Iterator[JobSetController]:
    """JobSet's controller beside it, one for all that need it."""
    try:
        with JobSetController(open_plane) as controller:
            yield controller
    except NotBuilt as error:
        pytest.fail(str(error))


class GangScene:
    """A namespace of a cluster, and nodes that only its pods may use."""

    def __init__(self, client: Client, kubeconfig: Path) -> None:
        self.client, self.kubeconfig = client, kubeconfig
        self.namespace = f"gangs-{uuid.uuid4().hex[:8]}"
        self.nodes: list[str] = []

    async def add_namespace(self) -> None:
        metadata = {"name": self.namespace}
        await self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        await until(lambda: self.client.get(SERVICE_ACCOUNTS, "default", self.namespace))

    async def add_node(self, *, cpu: str = "4", **labels: str) -> str:
        name = f"{self.namespace}-{len(self.nodes)}"
        self.nodes.append(name)
        meta = {"name": name, "labels": {"of": self.namespace, "kubernetes.io/hostname": name, **labels}}
        await self.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": "100"}
        ready = [{"type": "Ready", "status": "True", "reason": "Test", "message": "test"}]
        status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
        await self.client.patch(NODES, name, {"status": status}, kind="merge", subresource="status")
        return name

    def pod_spec(self, cpu: str, **more: Any) -> dict[str, Any]:
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
        rules = {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"of": self.namespace}}
        return {"containers": [container], **rules, **more}

    async def add(
        self, resource: Resource, name: str, spec: dict[str, Any], **metadata: Any
    ) -> dict[str, Any]:
        meta = {"name": name, "namespace": self.namespace, **metadata}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}
        return await self.client.create(resource, body)

    async def add_pod(self, name: str, group: str, cpu: str = "1", **more: Any) -> dict[str, Any]:
        spec = self.pod_spec(cpu, schedulingGroup={"podGroupName": group}, **more)
        return await self.add(PODS, name, spec)

    async def pods(self) -> dict[str, str]:
        """Return the node of each pod, empty where it has none."""
        pods = (await self.client.list(PODS, self.namespace)).items
        return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in pods}

    async def bound(self) -> set[str]:
        return {name for name, node in (await self.pods()).items() if node}

    async def until_condition(self, resource: Resource, name: str, status: str) -> dict[str, Any]:
        """Wait for the condition by which a group says whether it is placed."""

        async def found() -> Any:
            group = await self.client.get(resource, name, self.namespace)
            said = (group.get("status") or {}).get("conditions") or []
            return next((one for one in said if "Scheduled" in one["type"] and one["status"] == status), None)

        return dict(await until(found))

    async def until_pod_waits(self, name: str) -> None:
        """Wait until a scheduler has said of a pod that it does not fit."""

        async def waits() -> bool:
            pod = await self.client.get(PODS, name, self.namespace)
            said = (pod.get("status") or {}).get("conditions") or []
            return any((one["type"], one["status"]) == ("PodScheduled", "False") for one in said)

        await until(waits)

    async def remove_ending_pods(self) -> None:
        """End the pods that are being deleted, as their kubelets would."""
        for pod in (await self.client.list(PODS, self.namespace)).items:
            meta = pod["metadata"]
            if meta.get("deletionTimestamp"):
                await self.client.delete(PODS, meta["name"], self.namespace, grace_period_s=0)

    async def explain(self, job: str) -> str:
        """Return what ``gangline explain`` prints about a job."""
        words = [sys.executable, "-m", "gangline", "explain", job, "--context", "tests", "-n", self.namespace]
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig), "COLUMNS": "2000"}
        process = await asyncio.create_subprocess_exec(
            *words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()
        return out.decode()

    async def until(self, condition: Callable[[], Awaitable[Any]]) -> Any:
        """Wait until the condition gives something true, and return it."""
        return await until(condition)

    @contextlib.asynccontextmanager
    async def running(self, service: Any) -> AsyncIterator[None]:
        """Run a service of ours meanwhile."""
        task = asyncio.create_task(service.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@contextlib.asynccontextmanager
async def scene_on(kubeconfig: Path) -> AsyncIterator[GangScene]:
    """Yield a scene on a cluster, and remove its nodes and pods afterwards."""
    async with Client(load_kubeconfig(kubeconfig)) as client:
        scene = GangScene(client, kubeconfig)
        await scene.add_namespace()
        try:
            yield scene
        finally:
            await client.delete(NAMESPACES, scene.namespace)
            for name in scene.nodes:
                await client.delete(NODES, name)


@pytest.fixture
async def kube_scheduler_scene(kube_scheduler_plane: ControlPlane) -> AsyncIterator[GangScene]:
    """A scene in which our operator writes PodGroups, and kube-scheduler decides."""
    async with scene_on(kube_scheduler_plane.kubeconfig) as scene:
        settings = Settings(gang_scheduling="kubernetes")
        async with scene.running(Operator(scene.client, namespace=scene.namespace, settings=settings)):
            yield scene


@pytest.fixture
async def open_scene(open_plane: ControlPlane) -> AsyncIterator[GangScene]:
    """A scene without a scheduler."""
    async with scene_on(open_plane.kubeconfig) as scene:
        yield scene
