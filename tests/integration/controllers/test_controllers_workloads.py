"""Workloads from a template, on a server with all controllers; a stand-in makes pods ready and ends them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gangline.api.core import Pod
from gangline.api.resources import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from gangline.cluster.controllers.apps.daemon_set import node_of
from gangline.kube.errors import ApiError

READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}


def workload(kind: str, name: str = "web", image: str = "one", **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "resources": {},
                }
            ]
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template, **spec},
    }


@pytest.fixture
async def nodes_at_work(cluster: Any) -> AsyncIterator[None]:
    """Every pod is bound, runs and is ready; one that is deleted ends at once."""
    cache = cluster.pods
    pods: asyncio.Queue[Pod] = asyncio.Queue()
    cache.on_change(lambda old, new: pods.put_nowait(new) if new is not None else None)

    async def serve() -> None:
        while True:
            pod = await pods.get()
            wire = {"metadata": {"name": pod.metadata.name, "namespace": "default", "uid": pod.metadata.uid}}
            with contextlib.suppress(ApiError):
                if pod.metadata.deletion_timestamp:
                    await cluster.confirm_deletion(wire)
                    continue
                if not pod.spec.node_name:
                    await cluster.bind(wire, node_of(pod) or "node-0")
                if pod.status.phase == "Pending":
                    await cluster.set_status(wire, "Running", conditions=[READY])

    tasks = [asyncio.create_task(cache.run()), asyncio.create_task(serve())]
    yield
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def status_with(cluster: Any, resource: Any, name: str, **wanted: Any) -> dict[str, Any]:
    async def read() -> dict[str, Any] | None:
        obj = await cluster.client.get(resource, name, "default")
        status = obj.get("status") or {}
        observed = status.get("observedGeneration") == obj["metadata"]["generation"]
        return obj if observed and all(status.get(key) == value for key, value in wanted.items()) else None

    found: dict[str, Any] = await cluster.until(read)
    return found


@pytest.mark.usefixtures("nodes_at_work")
class TestDeployment:
    async def test_rolls_over_to_a_new_template_and_deletes_what_it_made(self, cluster: Any) -> None:
        await cluster.client.create(DEPLOYMENTS, workload("Deployment", replicas=3))
        first = await status_with(cluster, DEPLOYMENTS, "web", availableReplicas=3, updatedReplicas=3)
        conditions = {c["type"]: c["reason"] for c in first["status"]["conditions"]}
        assert conditions["Available"] == "MinimumReplicasAvailable"
        patch = {"spec": workload("Deployment", image="two", replicas=3)["spec"]}
        await cluster.client.patch(DEPLOYMENTS, "web", patch, "default")

        async def is_over() -> bool:
            pods = await cluster.list(PODS)
            return len(pods) == 3 and all(p["spec"]["containers"][0]["image"] == "two" for p in pods)

        await cluster.until(is_over)
        done = await status_with(cluster, DEPLOYMENTS, "web", availableReplicas=3, replicas=3)
        assert done["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
        sets = await cluster.list(REPLICA_SETS)
        assert sorted(one["spec"]["replicas"] for one in sets) == [0, 3]
        await cluster.client.delete(DEPLOYMENTS, "web", "default")

        async def is_empty() -> bool:
            return not await cluster.list(REPLICA_SETS) and not await cluster.list(PODS)

        await cluster.until(is_empty)

    async def test_adopts_a_pod_that_its_replica_set_selects_and_lets_go_of_one_that_it_does_not(
        self, cluster: Any
    ) -> None:
        alone = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "alone", "namespace": "default", "labels": {"app": "set"}},
            "spec": {"containers": [{"name": "main", "image": "one"}]},
        }
        await cluster.client.create(PODS, alone)
        await cluster.client.create(REPLICA_SETS, workload("ReplicaSet", "set", replicas=1))
        await status_with(cluster, REPLICA_SETS, "set", readyReplicas=1)
        assert [pod["metadata"]["name"] for pod in await cluster.list(PODS)] == ["alone"]
        await cluster.client.patch(PODS, "alone", {"metadata": {"labels": {"app": "free"}}}, "default")

        async def is_replaced() -> bool:
            pods = {pod["metadata"]["name"]: pod["metadata"] for pod in await cluster.list(PODS)}
            return len(pods) == 2 and not pods["alone"].get("ownerReferences")

        await cluster.until(is_replaced)


@pytest.mark.usefixtures("nodes_at_work")
class TestStatefulSet:
    async def test_starts_in_order_and_updates_from_the_last_down_to_the_partition(
        self, cluster: Any
    ) -> None:
        spec = {"replicas": 3, "serviceName": "web"}
        await cluster.client.create(STATEFUL_SETS, workload("StatefulSet", **spec))
        await status_with(cluster, STATEFUL_SETS, "web", readyReplicas=3, updatedReplicas=3)
        pods = await cluster.list(PODS)
        assert sorted(pod["spec"]["hostname"] for pod in pods) == ["web-0", "web-1", "web-2"]
        born = {pod["metadata"]["name"]: int(pod["metadata"]["resourceVersion"]) for pod in pods}
        assert len(born) == 3
        update = workload("StatefulSet", image="two", **spec)["spec"]
        update["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        await cluster.client.patch(STATEFUL_SETS, "web", {"spec": update}, "default")

        async def images() -> bool:
            found = {
                p["metadata"]["name"]: p["spec"]["containers"][0]["image"] for p in await cluster.list(PODS)
            }
            return found == {"web-0": "one", "web-1": "two", "web-2": "two"}

        await cluster.until(images)
        assert len(await cluster.list(CONTROLLER_REVISIONS)) == 2


@pytest.mark.usefixtures("nodes_at_work")
class TestDaemonSet:
    async def test_runs_on_each_node_that_its_pods_fit(self, cluster: Any) -> None:
        for name, labels in (("node-1", {"disk": "ssd"}), ("node-2", {})):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
            await cluster.client.create(NODES, node)
        spec = workload("DaemonSet", "agent")
        spec["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
        await cluster.client.create(DAEMON_SETS, spec)
        await status_with(cluster, DAEMON_SETS, "agent", desiredNumberScheduled=1, numberReady=1)
        await cluster.client.patch(NODES, "node-2", {"metadata": {"labels": {"disk": "ssd"}}})
        await status_with(cluster, DAEMON_SETS, "agent", desiredNumberScheduled=2, numberReady=2)
        await cluster.client.patch(NODES, "node-1", {"metadata": {"labels": {"disk": None}}})
        await status_with(cluster, DAEMON_SETS, "agent", desiredNumberScheduled=1, numberReady=1)
        pods = await cluster.list(PODS)
        assert len(pods) == 1


class TestClaims:
    async def test_a_folder_is_made_for_a_claim_kept_while_a_pod_uses_it_and_removed(
        self, cluster: Any
    ) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
        }
        user = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "user", "namespace": "default"},
            "spec": {
                "containers": [{"name": "main", "image": "one"}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        }
        await cluster.client.create(PODS, user)
        await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, body)

        async def bound() -> Any:
            claim = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, "data", "default")
            return claim["spec"].get("volumeName") if claim["status"]["phase"] == "Bound" else None

        name = await cluster.until(bound)
        folder = Path((await cluster.client.get(PERSISTENT_VOLUMES, name))["spec"]["hostPath"]["path"])
        folder.mkdir()  # the node agent's part
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, "data", "default")
        claim = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, "data", "default")
        assert claim["metadata"]["deletionTimestamp"]
        await cluster.client.delete(PODS, "user", "default")
        await cluster.until_gone(PERSISTENT_VOLUME_CLAIMS, "data", "default")
        await cluster.until_gone(PERSISTENT_VOLUMES, name)
        assert not folder.exists()
