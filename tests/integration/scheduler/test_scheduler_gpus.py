"""The scheduler and GPUs on the embedded API server: taints by label, gangs taken back from broken GPUs."""

import asyncio
import json
from typing import Any

from gangline.api.resources import NODES, PODS
from gangline.placement import Policy
from gangline.scheduler.scheduler import Scheduler
from gangline.topology.known import known_machine

TAINT = {"key": "gangline.dev/gpu-schedule", "value": "topology", "effect": "NoSchedule"}

CONTROLLER = {"apiVersion": "example.com/v1", "kind": "Job", "name": "job", "uid": "1", "controller": True}


async def add_gpus(cluster: Any, name: str, unhealthy: tuple[int, ...] = ()) -> None:
    note = known_machine("v100-dgx1").annotation([f"{name}-{i}" for i in range(8)], unhealthy=unhealthy)
    annotations = {"gangline.dev/gpu-topology": json.dumps(note)}
    await cluster.client.patch(NODES, name, {"metadata": {"annotations": annotations}})
    amounts = {"nvidia.com/gpu": "8"}
    await cluster.client.patch(
        NODES, name, {"status": {"capacity": amounts, "allocatable": amounts}}, subresource="status"
    )


async def add_gang(cluster: Any, name: str, size: int) -> None:
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": name,
        "pod-group.scheduling.sigs.k8s.io/min-available": str(size),
    }
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    for index in range(size):
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{index}",
                "namespace": "default",
                "labels": labels,
                "ownerReferences": [CONTROLLER],
            },
            "spec": {
                "containers": [{"name": "w", "image": "x", "resources": limits}],
                "schedulerName": "gangline-scheduler",
            },
        }
        await cluster.client.create(PODS, manifest)


async def indices(cluster: Any, name: str, size: int) -> list[int]:
    for index in range(size):
        await cluster.until_bound(f"{name}-{index}")
    pods = [await cluster.client.get(PODS, f"{name}-{index}", "default") for index in range(size)]
    key = "topology.kubernetes.io/gpu-group"
    return sorted(int(pod["metadata"]["annotations"][key]) for pod in pods)


async def test_the_label_brings_a_taint_that_our_pods_tolerate_and_takes_it_away(cluster):
    await cluster.add_node("a")
    label = {"metadata": {"labels": {"ack.node.gpu.schedule": "topology"}}}
    await cluster.client.patch(NODES, "a", label)

    async def taints() -> list[Any]:
        return (await cluster.client.get(NODES, "a")).get("spec", {}).get("taints") or []

    async def is_tainted() -> bool:
        return await taints() == [TAINT]

    async def is_clean() -> bool:
        return await taints() == []

    await cluster.until(is_tainted)
    await cluster.add_pod("ours")
    assert await cluster.until_bound("ours") == "a"
    await cluster.client.patch(NODES, "a", {"metadata": {"labels": {"ack.node.gpu.schedule": "default"}}})
    await cluster.until(is_clean)


async def test_a_gang_is_taken_back_whole_when_one_of_its_gpus_breaks_and_goes_elsewhere(cluster):
    await cluster.add_node("a")
    await add_gpus(cluster, "a")
    await cluster.client.patch(NODES, "a", {"metadata": {"labels": {"ack.node.gpu.schedule": "topology"}}})
    await add_gang(cluster, "g", 4)
    first = await indices(cluster, "g", 4)

    await add_gpus(cluster, "a", unhealthy=(first[0],))

    async def is_gone() -> bool:
        return not (await cluster.client.list(PODS, "default")).items

    # Pods without a node agent stay until somebody confirms their end; a delete without grace does.
    async def all_marked() -> bool:
        pods = (await cluster.client.list(PODS, "default")).items
        marked = [pod for pod in pods if pod["metadata"].get("deletionTimestamp")]
        return len(marked) == len(pods)

    await cluster.until(all_marked)
    for pod in (await cluster.client.list(PODS, "default")).items:
        kinds = {condition["type"] for condition in pod["status"].get("conditions") or []}
        assert "DisruptionTarget" in kinds
        await cluster.client.delete(PODS, pod["metadata"]["name"], "default", grace_period_s=0)
    await cluster.until(is_gone)
    await add_gang(cluster, "g", 4)
    again = await indices(cluster, "g", 4)
    assert first[0] not in again
    assert {tuple(first), tuple(again)} == {(0, 1, 2, 3), (4, 5, 6, 7)}  # the quads joined wholly by NVLink


async def test_a_gang_is_cut_when_it_has_waited_long_enough_though_nothing_else_changes(idle_cluster):
    cluster = idle_cluster
    for name in ("a", "b"):
        await cluster.add_node(name)
        await add_gpus(cluster, name)
    scheduler = asyncio.create_task(Scheduler(cluster.client, policy=Policy(whole_for_s=4.0)).run())
    for name in ("x", "y"):  # five of the eight GPUs of each node
        await add_gang(cluster, name, 5)
        await indices(cluster, name, 5)

    await add_gang(cluster, "g", 6)

    assert "fits on 2 nodes now; waits for room on one node" in await cluster.until_unschedulable("g-0")
    async with asyncio.timeout(20):  # passes without a moment of their own are a minute apart
        await indices(cluster, "g", 6)
    scheduler.cancel()
