"""Claims are allocated as kube-scheduler does: the same devices, configuration, nodes and refusals."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from claim_scenes import CASES, CLASSES, Case

from gangline.api.resources import DEVICE_CLASSES, NAMESPACES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from gangline.kube.errors import NotFound
from gangline.scheduler.scheduler import Scheduler

pytestmark = pytest.mark.gangs
THEIRS, OURS = "default-scheduler", "ours"


@pytest.fixture
async def scene(kube_scheduler_scene: Any) -> AsyncIterator[Any]:
    """A namespace whose claims may ask for the access of administrators, and one node."""
    found, more = kube_scheduler_scene, {"resource.kubernetes.io/admin-access": "true"}
    await found.client.patch(NAMESPACES, found.namespace, {"metadata": {"labels": more}}, kind="merge")
    await found.add_node(rack="r1", cpu="64")
    service = Scheduler(found.client, names=(OURS,), node_selector=f"of={found.namespace}")
    async with found.running(service):
        yield found
    for resource in (RESOURCE_SLICES, DEVICE_CLASSES):
        for one in (await found.client.list(resource, None)).items:
            if one["metadata"]["name"].startswith(found.namespace):
                await found.client.delete(resource, one["metadata"]["name"])


def named(scene: Any, value: Any) -> Any:
    """Return a value with the name of the node, and of classes that are this test's own."""
    text = json.dumps(value).replace('"NODE"', json.dumps(scene.nodes[0])).replace("POOL", scene.namespace)
    return json.loads(text.replace('"deviceClassName": "', f'"deviceClassName": "{scene.namespace}-'))


async def publish(scene: Any, case: Case) -> None:
    for resource, specs in (
        (DEVICE_CLASSES, CLASSES),
        (RESOURCE_SLICES, dict(enumerate(case.slices))),
    ):
        for name, spec in specs.items():
            body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": named(scene, spec)}
            await scene.client.create(resource, body | {"metadata": {"name": f"{scene.namespace}-{name}"}})


async def allocations(scene: Any, case: Case, scheduler: str) -> list[list[Any] | None]:
    """Create the pods one after another; return what their claims get, None for those that have to wait."""
    found: list[list[Any] | None] = []
    for number, claims in enumerate(case.pods):
        names = [f"pod-{number}-{index}" for index in range(len(claims))]
        for name, devices in zip(names, claims, strict=True):
            await scene.add(RESOURCE_CLAIMS, name, {"devices": named(scene, devices)})
        used = [{"name": f"c{index}", "resourceClaimName": name} for index, name in enumerate(names)]
        spec = scene.pod_spec("1", schedulerName=scheduler, resourceClaims=used)
        spec["containers"][0]["resources"]["claims"] = [{"name": one["name"]} for one in used]
        await scene.add(PODS, f"pod-{number}", spec)
        found.append(await outcome(scene, f"pod-{number}", names))
    return found


async def outcome(scene: Any, pod: str, claims: list[str]) -> list[Any] | None:
    async def told() -> str:
        seen = await scene.client.get(PODS, pod, scene.namespace)
        said = (seen.get("status") or {}).get("conditions") or []
        waits = any((one["type"], one["status"]) == ("PodScheduled", "False") for one in said)
        return seen["spec"].get("nodeName") or ("waits" if waits else "")

    is_bound = await scene.until(told) != "waits"
    read = [await scene.client.get(RESOURCE_CLAIMS, name, scene.namespace) for name in claims]
    given = [(one.get("status") or {}).get("allocation") for one in read]
    if not is_bound:
        assert not any(given)
        seen = await scene.client.get(PODS, pod, scene.namespace)
        print(pod, "waits:", [one["message"] for one in seen["status"]["conditions"]])  # shown on failure
        return None
    for one in given:
        one.pop("allocationTimestamp", None)
    return given


async def clear(scene: Any) -> None:
    """Delete pods and claims, which a controller of Kubernetes gives back first."""
    for one in (await scene.client.list(PODS, scene.namespace)).items:
        await scene.client.delete(PODS, one["metadata"]["name"], scene.namespace, grace_period_s=0)
    for one in (await scene.client.list(RESOURCE_CLAIMS, scene.namespace)).items:
        try:
            await scene.client.delete(RESOURCE_CLAIMS, one["metadata"]["name"], scene.namespace)
        except NotFound:
            continue

    async def is_gone() -> bool:
        return not (await scene.client.list(RESOURCE_CLAIMS, scene.namespace)).items

    await scene.until(is_gone)


def devices(given: list[list[Any] | None]) -> list[list[list[str]] | None]:
    return [
        None if some is None else [[one["device"] for one in of["devices"]["results"]] for of in some]
        for some in given
    ]


@pytest.mark.parametrize("name", CASES)
async def test_claims_get_what_kube_scheduler_gives_them(scene: Any, name: str) -> None:
    case = CASES[name]
    await publish(scene, case)

    theirs = await allocations(scene, case, THEIRS)
    await clear(scene)
    ours = await allocations(scene, case, OURS)

    assert devices(theirs) == case.gets, "what is expected of Kubernetes"
    assert ours == theirs
