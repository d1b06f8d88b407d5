"""Nodes where the stock device plugin hands out ids: counted, said, and no id claimed."""

import json
from typing import Any

from gangline.api.resources import EVENTS, NODES, PODS
from gangline.topology.known import known_machine


async def test_no_ids_are_claimed_where_the_device_plugin_chooses_and_events_say_so(cluster: Any) -> None:
    await cluster.add_node("a")
    await cluster.client.patch(NODES, "a", {"metadata": {"labels": {"ack.node.gpu.schedule": "topology"}}})
    amounts = {"nvidia.com/gpu": "8"}
    await cluster.client.patch(
        NODES, "a", {"status": {"capacity": amounts, "allocatable": amounts}}, subresource="status"
    )
    limits = {"limits": {"nvidia.com/gpu": "5"}}
    for name in ("one", "two"):
        await cluster.add_pod(name, containers=[{"name": "w", "image": "x", "resources": limits}])

    await cluster.until_bound("one")
    assert "Insufficient nvidia.com/gpu" in await cluster.until_unschedulable("two")
    one = await cluster.client.get(PODS, "one", "default")
    assert not {key for key in one["metadata"].get("annotations") or {} if "gpu" in key}

    async def messages() -> Any:
        found = {}
        for namespace in (None, "default"):
            for event in (await cluster.client.list(EVENTS, namespace)).items:
                found[event["reason"], event["involvedObject"]["name"]] = event["message"]
        wanted = {("Scheduled", "one"), ("UnknownTopology", "a")}
        return wanted <= set(found) and found

    found = await cluster.until(messages)
    assert found["Scheduled", "one"] == (
        "Successfully assigned default/one to a; which nvidia.com/gpu it gets there, the device plugin of "
        "the node chooses"
    )
    assert "its own device plugin goes on choosing GPUs" in found["UnknownTopology", "a"]


async def test_an_unhealthy_gpu_under_a_pod_of_no_gang_is_said(cluster: Any) -> None:
    await cluster.add_node("a")
    amounts = {"nvidia.com/gpu": "8"}
    await cluster.client.patch(
        NODES, "a", {"status": {"capacity": amounts, "allocatable": amounts}}, subresource="status"
    )

    async def publish(*unhealthy: int) -> None:
        note = known_machine("v100-dgx1").annotation([f"a-{i}" for i in range(8)], unhealthy=unhealthy)
        annotations = {"gangline.dev/gpu-topology": json.dumps(note)}
        await cluster.client.patch(NODES, "a", {"metadata": {"annotations": annotations}})

    await publish()
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    await cluster.add_pod("one", containers=[{"name": "w", "image": "x", "resources": limits}])
    await cluster.until_bound("one")
    await publish(0)

    async def told() -> Any:
        events = (await cluster.client.list(EVENTS, "default")).items
        return next((event for event in events if event["reason"] == "UnhealthyGPU"), None)

    event = await cluster.until(told)
    assert event["message"] == (
        "GPU 0 of node a, which default/one holds, is unhealthy; it keeps it, for a pod of no gang would not "
        "be made again"
    )
    assert "deletionTimestamp" not in (await cluster.client.get(PODS, "one", "default"))["metadata"]
