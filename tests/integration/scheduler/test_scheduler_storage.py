"""Volumes on a real API server: its controllers bind claims, and the scheduler goes by what they say."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from service_account import until

from gangline.api.resources import (
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SERVICE_ACCOUNTS,
    STORAGE_CLASSES,
)
from gangline.kube.client import Client
from gangline.kube.config import load_kubeconfig
from gangline.scheduler.scheduler import Scheduler
from gangline.scheduler.storage_watch import SELECTED_NODE

RUN = uuid.uuid4().hex[:8]
NAMESPACE = f"storage-{RUN}"
LOCAL_NODE, OTHER_NODE = f"b-{RUN}", f"a-{RUN}"

pytestmark = pytest.mark.kubernetes


@pytest.fixture
async def client(real_cluster: Any) -> AsyncIterator[Client]:
    """Two nodes of our own, and a scheduler that places pods on these alone."""
    async with Client(load_kubeconfig(real_cluster.kubeconfig)) as client:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await client.create(NAMESPACES, namespace)
        await until(lambda: client.get(SERVICE_ACCOUNTS, "default", NAMESPACE))
        for name in (OTHER_NODE, LOCAL_NODE):
            labels = {"kubernetes.io/hostname": name, "run": RUN}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
            await client.create(NODES, node)
            amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
            ready = [{"type": "Ready", "status": "True", "reason": "Test", "message": "test"}]
            status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
            await client.patch(NODES, name, {"status": status}, kind="merge", subresource="status")
        scheduler = Scheduler(client, names=("storage-test",), node_selector=f"run={RUN}")
        task = asyncio.create_task(scheduler.run())
        yield client
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await client.delete(NAMESPACES, NAMESPACE)
        for name in (OTHER_NODE, LOCAL_NODE):
            await client.delete(NODES, name)


def claim(name: str, storage_class: str, volume: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
            **({"volumeName": volume} if volume else {}),
        },
    }


async def add_pod(client: Client, name: str, claim_name: str) -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}
    spec = {"schedulerName": "storage-test", "containers": [{"name": "c", "image": "x"}], "volumes": [volume]}
    tolerations = [{"operator": "Exists"}]  # the node controller taints nodes without a kubelet
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}}
    await client.create(PODS, pod | {"spec": spec | {"tolerations": tolerations}})


async def node_of(client: Client, name: str) -> str:
    return str((await client.get(PODS, name, NAMESPACE))["spec"].get("nodeName", ""))


async def test_pods_go_where_volumes_are_and_claims_hear_where_pods_go(client: Client):
    lazy, local = f"lazy-{RUN}", f"local-{RUN}"
    for name, provisioner, mode in (
        (lazy, "example.com/none", "WaitForFirstConsumer"),
        (local, "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
    ):
        body = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
        await client.create(STORAGE_CLASSES, body | {"provisioner": provisioner, "volumeBindingMode": mode})
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [LOCAL_NODE]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": local,
        "local": {"path": "/tmp"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"pv-{RUN}"}, "spec": spec}
    try:
        await client.create(PERSISTENT_VOLUMES, volume)
        await client.create(PERSISTENT_VOLUME_CLAIMS, claim("bound", local, f"pv-{RUN}"))
        await client.create(PERSISTENT_VOLUME_CLAIMS, claim("first", lazy))
        await client.create(PERSISTENT_VOLUME_CLAIMS, claim("never", f"absent-{RUN}"))
        for name in ("bound", "first", "never"):
            await add_pod(client, f"pod-{name}", name)

        assert await until(lambda: node_of(client, "pod-bound")) == LOCAL_NODE
        node = await until(lambda: node_of(client, "pod-first"))
        found = await client.get(PERSISTENT_VOLUME_CLAIMS, "first", NAMESPACE)
        assert found["metadata"]["annotations"][SELECTED_NODE] == node

        async def waits_for_its_claim() -> bool:
            status = (await client.get(PODS, "pod-never", NAMESPACE))["status"]
            why = f"waits for claim {NAMESPACE}/never to be bound to a volume"
            return any(why in one.get("message", "") for one in status.get("conditions", []))

        await until(waits_for_its_claim)  # a pod may be seen before its claim, and says so first
    finally:
        for name in (lazy, local):
            await client.delete(STORAGE_CLASSES, name)
        await client.delete(PERSISTENT_VOLUMES, f"pv-{RUN}")
