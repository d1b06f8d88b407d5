"""Jobs in a queue of Kueue, by its own controller: suspended until it admits them, and where it says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from control_plane import ControlPlane, NotBuilt
from kueue_controller import KueueController

from gangline.api.resources import MPIJOBS, PODS, PYTORCHJOBS, Resource
from gangline.scheduler.scheduler import Scheduler

pytestmark = pytest.mark.gangs

VERSION = "v1beta2"
FLAVORS = Resource("kueue.x-k8s.io", VERSION, "resourceflavors", "ResourceFlavor", namespaced=False)
CLUSTER_QUEUES = Resource("kueue.x-k8s.io", VERSION, "clusterqueues", "ClusterQueue", namespaced=False)
TOPOLOGIES = Resource("kueue.x-k8s.io", VERSION, "topologies", "Topology", namespaced=False)
LOCAL_QUEUES = Resource("kueue.x-k8s.io", VERSION, "localqueues", "LocalQueue")
WORKLOADS = Resource("kueue.x-k8s.io", VERSION, "workloads", "Workload")
QUEUE = {"kueue.x-k8s.io/queue-name": "team"}
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
GATE = "kueue.x-k8s.io/topology"


@pytest.fixture(scope="session")
def kueue(kube_scheduler_plane: ControlPlane) -> Iterator[KueueController]:
    try:
        with KueueController(kube_scheduler_plane) as controller:
            yield controller
    except NotBuilt as error:
        pytest.fail(str(error))


@pytest.fixture
async def scene(kueue: KueueController, kube_scheduler_scene: Any) -> AsyncIterator[Any]:
    """Our operator and kube-scheduler beside Kueue."""
    yield kube_scheduler_scene


async def add_queue(scene: Any, cpu: str, **flavor: Any) -> None:
    """Make a queue of so many CPUs on the scene's nodes."""
    name = scene.namespace

    async def create(resource: Resource, spec: dict[str, Any]) -> None:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        await scene.client.create(resource, body | {"spec": spec})

    await create(FLAVORS, {"nodeLabels": {"of": name}, **flavor})
    quota = {"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    await create(CLUSTER_QUEUES, {"namespaceSelector": {}, "resourceGroups": groups})
    await scene.add(LOCAL_QUEUES, "team", {"clusterQueue": name})


def mpijob(scene: Any) -> dict[str, Any]:
    """A launcher and three workers of one CPU each; which nodes they may use Kueue says."""
    spec = scene.pod_spec("1")
    del spec["nodeSelector"]
    role = {"template": {"spec": spec}}
    roles = {"Launcher": role, "Worker": {"replicas": 3, **role}}
    return {"runPolicy": {"suspend": True}, "mpiReplicaSpecs": roles}


async def is_suspended(scene: Any, name: str) -> bool:
    job = await scene.client.get(MPIJOBS, name, scene.namespace)
    said = (job.get("status") or {}).get("conditions") or []
    return bool(job["spec"]["runPolicy"]["suspend"]) and any(
        (one["type"], one["status"]) == ("Suspended", "True") for one in said
    )


async def bound(scene: Any, job: str, count: int = 4) -> set[str]:
    found = {name for name in await scene.bound() if name.startswith(job)}
    return found if len(found) == count else set()


async def test_a_job_is_suspended_until_its_quota_is_free(scene: Any) -> None:
    await scene.add_node()
    await scene.add_node()
    await add_queue(scene, "4")
    await scene.add(MPIJOBS, "first", mpijob(scene), labels=QUEUE)
    await scene.until(lambda: bound(scene, "first"))
    pods = (await scene.client.list(PODS, scene.namespace)).items
    assert [pod["spec"]["nodeSelector"] for pod in pods] == [{"of": scene.namespace}] * 4

    await scene.add(MPIJOBS, "second", mpijob(scene), labels=QUEUE)
    await scene.until(lambda: is_suspended(scene, "second"))
    assert not [name for name in await scene.pods() if name.startswith("second")]
    assert "suspended by Kueue: it waits in queue `team`" in await scene.explain("second")

    await scene.client.delete(MPIJOBS, "first", scene.namespace)

    await scene.until(lambda: bound(scene, "second"))


async def test_a_job_that_kueue_takes_back_gives_its_pods_away_and_starts_again(scene: Any) -> None:
    await scene.add_node()
    await add_queue(scene, "4")
    await scene.add(MPIJOBS, "pi", mpijob(scene), labels=QUEUE)
    await scene.until(lambda: bound(scene, "pi"))
    [workload] = (await scene.client.list(WORKLOADS, scene.namespace)).items
    name = workload["metadata"]["name"]

    await scene.client.patch(WORKLOADS, name, {"spec": {"active": False}}, scene.namespace)
    await scene.until(lambda: is_suspended(scene, "pi"))

    async def is_empty() -> bool:
        await scene.remove_ending_pods()
        return not await scene.pods()

    await scene.until(is_empty)

    await scene.client.patch(WORKLOADS, name, {"spec": {"active": True}}, scene.namespace)
    await scene.until(lambda: bound(scene, "pi"))


async def test_pods_go_where_its_topology_assignment_says_once_their_gates_are_open(scene: Any) -> None:
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    body = {"apiVersion": TOPOLOGIES.api_version, "kind": "Topology", "metadata": {"name": scene.namespace}}
    await scene.client.create(TOPOLOGIES, {**body, "spec": {"levels": levels}})
    await scene.add_node(cpu="3", rack="one")
    there = {await scene.add_node(cpu="2", rack="two") for _ in range(2)}
    await add_queue(scene, "8", topologyName=scene.namespace)

    spec = scene.pod_spec("1", schedulerName="ours")
    del spec["nodeSelector"]
    spec["containers"][0]["name"] = "pytorch"
    together = {REQUIRED: "rack", "kueue.x-k8s.io/podset-group-name": "all"}
    role = {"template": {"metadata": {"annotations": together}, "spec": spec}}
    roles = {"Master": role, "Worker": {"replicas": 3, **role}}
    async with scene.running(Scheduler(scene.client, names=("ours",))):
        await scene.add(
            PYTORCHJOBS, "train", {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": roles}, labels=QUEUE
        )
        await scene.until(lambda: bound(scene, "train"))

    job = await scene.client.get(PYTORCHJOBS, "train", scene.namespace)
    template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert template["schedulingGates"] == [{"name": GATE}]  # each pod began with it
    pods = (await scene.client.list(PODS, scene.namespace)).items
    assert {pod["spec"]["nodeName"] for pod in pods} == there
    for pod in pods:
        assert pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] == pod["spec"]["nodeName"]
        assert GATE not in [gate["name"] for gate in pod["spec"].get("schedulingGates") or []]
