"""Gangs whose pods ask for devices of another driver by claims: whole or not at all, on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from claim_scenes import CLASSES, DRIVER, FOUR, claim, pool, request

from gangline.api.resources import (
    DEVICE_CLASSES,
    KUBERNETES_POD_GROUPS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from gangline.scheduler.scheduler import Scheduler

pytestmark = pytest.mark.gangs


@pytest.fixture
async def scene(open_scene: Any) -> AsyncIterator[Any]:
    """Two nodes with four devices each, a class of the test's own, and our scheduler."""
    found = open_scene
    for _ in range(2):
        await found.add_node(cpu="16")
    await put(found, DEVICE_CLASSES, found.namespace, CLASSES["gpu"])
    for node in found.nodes:
        await put(found, RESOURCE_SLICES, node, published(FOUR, node))
    async with found.running(Scheduler(found.client, names=("ours",), node_selector=f"of={found.namespace}")):
        yield found
    for resource in (RESOURCE_SLICES, DEVICE_CLASSES):
        for one in (await found.client.list(resource, None)).items:
            if one["metadata"]["name"].startswith(found.namespace):
                await found.client.delete(resource, one["metadata"]["name"])


def published(spec: dict[str, Any], node: str) -> dict[str, Any]:
    return spec | {"nodeName": node, "pool": spec["pool"] | {"name": node}}


async def put(scene: Any, resource: Any, name: str, spec: dict[str, Any]) -> None:
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
    await scene.client.create(resource, body | {"metadata": {"name": name}})


async def add_gang(scene: Any, name: str, size: int, count: int, *, shared: bool = False) -> None:
    await scene.add(KUBERNETES_POD_GROUPS, name, {"schedulingPolicy": {"gang": {"minCount": size}}})
    asked = {"devices": claim(request(device_class=scene.namespace, count=count))}
    for index in range(size):
        claimed = name if shared else f"{name}-{index}"
        if not shared or not index:
            await scene.add(RESOURCE_CLAIMS, claimed, asked)
        used = [{"name": "gpu", "resourceClaimName": claimed}]
        spec = scene.pod_spec("1", schedulerName="ours", resourceClaims=used)
        spec["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
        await scene.add(PODS, f"{name}-{index}", spec | {"schedulingGroup": {"podGroupName": name}})


async def held(scene: Any) -> dict[str, list[str]]:
    """Return the devices of each claim that is allocated, as ``NODE/DEVICE``."""
    claims = (await scene.client.list(RESOURCE_CLAIMS, scene.namespace)).items
    given = {one["metadata"]["name"]: (one.get("status") or {}).get("allocation") for one in claims}
    return {
        name: [f"{one['pool']}/{one['device']}" for one in allocation["devices"]["results"]]
        for name, allocation in given.items()
        if allocation
    }


async def test_the_claims_of_a_gang_are_allocated_whole_or_not_at_all(scene: Any) -> None:
    await add_gang(scene, "first", 3, 2)

    async def are_bound() -> bool:
        return await scene.bound() == {"first-0", "first-1", "first-2"}

    await scene.until(are_bound)
    given = await held(scene)
    assert sorted(given) == ["first-0", "first-1", "first-2"]
    assert len({device for devices in given.values() for device in devices}) == 6
    nodes = await scene.pods()
    for name, devices in given.items():
        assert {device.partition("/")[0] for device in devices} == {nodes[name]}
        found = await scene.client.get(RESOURCE_CLAIMS, name, scene.namespace)
        assert [one["name"] for one in found["status"]["reservedFor"]] == [name]

    await add_gang(scene, "second", 2, 2)
    await scene.until_pod_waits("second-0")

    assert sorted(await held(scene)) == ["first-0", "first-1", "first-2"]
    told = await scene.explain("podgroup/second")
    assert "needs room for 2 pods with the devices of their claims at once; there is room for 1" in told

    await scene.client.delete(PODS, "first-0", scene.namespace, grace_period_s=0)

    async def is_second_bound() -> bool:
        return {"second-0", "second-1"} <= await scene.bound()

    await scene.until(is_second_bound)  # once Kubernetes' controller has given the claim back
    given = await held(scene)
    assert len({device for devices in given.values() for device in devices}) == 8


async def test_pods_of_a_gang_that_share_a_claim_use_its_devices_together(scene: Any) -> None:
    await add_gang(scene, "both", 3, 4, shared=True)

    async def are_bound() -> bool:
        return len(await scene.bound()) == 3

    await scene.until(are_bound)
    ((name, devices),) = (await held(scene)).items()
    assert name == "both"
    assert len(devices) == 4
    assert set((await scene.pods()).values()) == {devices[0].partition("/")[0]}
    found = await scene.client.get(RESOURCE_CLAIMS, name, scene.namespace)
    assert sorted(one["name"] for one in found["status"]["reservedFor"]) == ["both-0", "both-1", "both-2"]


async def test_a_claim_that_is_allocated_for_nobody_is_given_back(scene: Any) -> None:
    """As a scheduler leaves it that ends before it binds, on a node that has no room any more."""
    await put(
        scene, RESOURCE_SLICES, f"{scene.namespace}-gone", published(pool("d0"), f"{scene.namespace}-gone")
    )
    asked = {"devices": claim(request(device_class=scene.namespace))}
    made = await scene.add(RESOURCE_CLAIMS, "left", asked)
    where = {"key": "metadata.name", "operator": "In", "values": [f"{scene.namespace}-gone"]}
    result = {"request": "r", "driver": DRIVER, "pool": f"{scene.namespace}-gone", "device": "d0"}
    made["status"] = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [where]}]},
        }
    }
    await scene.client.update(RESOURCE_CLAIMS, made, subresource="status")
    used = [{"name": "gpu", "resourceClaimName": "left"}]
    await scene.add(PODS, "one", scene.pod_spec("1", schedulerName="ours", resourceClaims=used))

    async def is_bound() -> bool:
        return await scene.bound() == {"one"}

    await scene.until(is_bound)
    ((device,),) = (await held(scene)).values()
    assert device.partition("/")[0] == (await scene.pods())["one"]


async def test_explain_says_which_devices_a_pod_lacks(scene: Any) -> None:
    asked = {"devices": claim(request("big", scene.namespace, count=5))}
    await scene.add(RESOURCE_CLAIMS, "much", asked)
    used = [{"name": "gpu", "resourceClaimName": "much"}]
    await scene.add(PODS, "one", scene.pod_spec("1", schedulerName="ours", resourceClaims=used))
    await scene.until_pod_waits("one")

    told = await scene.explain("pod/one")

    assert f"too few devices of class {scene.namespace} for request big" in told
