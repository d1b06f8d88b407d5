"""Our scheduler by the groups of the Kubernetes that has them: conditions, domains, groups of groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gangline.api.resources import (
    COMPOSITE_POD_GROUPS,
    KUBERNETES_POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    Resource,
)
from gangline.scheduler.scheduler import Scheduler

pytestmark = pytest.mark.gangs

WORKLOADS = Resource("scheduling.k8s.io", "v1beta1", "workloads", "Workload")


@pytest.fixture
async def scene(open_scene: Any) -> AsyncIterator[Any]:
    async with open_scene.running(Scheduler(open_scene.client, names=("ours",))):
        yield open_scene


def gang(least: int, **more: Any) -> dict[str, Any]:
    return {"schedulingPolicy": {"gang": {"minCount": least}}, **more}


async def conditions(scene: Any, resource: Resource, name: str) -> dict[str, dict[str, Any]]:
    found = await scene.client.get(resource, name, scene.namespace)
    return {one["type"]: one for one in (found.get("status") or {}).get("conditions") or []}


async def test_a_gang_waits_unschedulable_starts_whole_and_stays_scheduled(scene: Any) -> None:
    await scene.add_node()
    await scene.add(KUBERNETES_POD_GROUPS, "g", gang(3))
    for name in ("a", "b", "c"):
        await scene.add_pod(name, "g", "2", schedulerName="ours")

    waits = await scene.until_condition(KUBERNETES_POD_GROUPS, "g", "False")
    assert (waits["type"], waits["reason"]) == ("PodGroupInitiallyScheduled", "Unschedulable")
    made = await scene.client.get(KUBERNETES_POD_GROUPS, "g", scene.namespace)
    assert waits.get("observedGeneration", 0) == made["metadata"].get("generation", 0)
    assert await scene.bound() == set()

    await scene.add_node()

    placed = await scene.until_condition(KUBERNETES_POD_GROUPS, "g", "True")
    assert placed["reason"] == "Scheduled"
    assert await scene.bound() == {"a", "b", "c"}

    await scene.client.delete(PODS, "a", scene.namespace)
    await scene.add_pod("d", "g", "8", schedulerName="ours")
    await scene.until_pod_waits("d")

    assert (await conditions(scene, KUBERNETES_POD_GROUPS, "g"))["PodGroupInitiallyScheduled"] == placed


async def test_what_is_not_honoured_is_a_scheduler_error_and_never_bound(scene: Any) -> None:
    await scene.add_node()
    claims = [{"name": "shared", "resourceClaimName": "shared"}]
    await scene.add(KUBERNETES_POD_GROUPS, "g", gang(1, resourceClaims=claims))
    await scene.add_pod("a", "g", schedulerName="ours")

    waits = await scene.until_condition(KUBERNETES_POD_GROUPS, "g", "False")

    assert waits["reason"] == "SchedulerError"
    assert "spec.resourceClaims" in waits["message"]
    assert await scene.bound() == set()


async def test_a_gang_that_gives_way_is_a_disruption_target(scene: Any) -> None:
    await scene.add_node()
    for name, value in (("low", 1), ("high", 1000)):
        body = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass"}
        meta = {"metadata": {"name": f"{scene.namespace}-{name}"}, "value": value}
        await scene.client.create(PRIORITY_CLASSES, body | meta)
    low, high = f"{scene.namespace}-low", f"{scene.namespace}-high"
    await scene.add(KUBERNETES_POD_GROUPS, "weak", gang(2, priorityClassName=low, disruptionMode={"all": {}}))
    for name in ("a", "b"):
        await scene.add_pod(name, "weak", "2", schedulerName="ours", priorityClassName=low)
    await scene.until_condition(KUBERNETES_POD_GROUPS, "weak", "True")

    await scene.add(KUBERNETES_POD_GROUPS, "strong", gang(2, priorityClassName=high))
    for name in ("x", "y"):
        await scene.add_pod(name, "strong", "2", schedulerName="ours", priorityClassName=high)

    async def disrupted() -> Any:
        return (await conditions(scene, KUBERNETES_POD_GROUPS, "weak")).get("DisruptionTarget")

    said = await scene.until(disrupted)
    assert (said["status"], said["reason"]) == ("True", "PreemptionByScheduler")
    await scene.remove_ending_pods()  # the kubelet's part
    await scene.until_condition(KUBERNETES_POD_GROUPS, "strong", "True")
    assert await scene.bound() == {"x", "y"}


async def test_all_pods_of_a_group_lie_in_one_domain_of_its_topology(scene: Any) -> None:
    await scene.add_node(cpu="2", rack="one")
    await scene.add_node(cpu="1", rack="two")
    right = await scene.add_node(cpu="2", rack="two")
    await scene.add(
        KUBERNETES_POD_GROUPS, "g", gang(3, schedulingConstraints={"topology": [{"key": "rack"}]})
    )
    for name in ("a", "b", "c"):
        await scene.add_pod(name, "g", "1", schedulerName="ours")

    await scene.until_condition(KUBERNETES_POD_GROUPS, "g", "True")

    assert sorted((await scene.pods()).values()) == [f"{scene.namespace}-1", right, right]


async def test_groups_of_a_composite_start_together_or_not_at_all(scene: Any) -> None:
    await scene.add_node()
    ref = {"workloadName": "job", "templateName": "all"}
    policy = {"schedulingPolicy": {"gang": {"minGroupCount": 2}}}
    await scene.add(COMPOSITE_POD_GROUPS, "all", {**policy, "workloadRef": ref})
    for group in ("x", "y"):
        own = {"workloadRef": {**ref, "templateName": group}, "parentCompositePodGroupName": "all"}
        await scene.add(KUBERNETES_POD_GROUPS, group, gang(2, **own))
        for index in range(2):
            await scene.add_pod(f"{group}-{index}", group, "2", schedulerName="ours")

    waits = await scene.until_condition(COMPOSITE_POD_GROUPS, "all", "False")
    assert (waits["type"], waits["reason"]) == ("CompositePodGroupInitiallyScheduled", "Unschedulable")
    assert (await scene.until_condition(KUBERNETES_POD_GROUPS, "x", "False"))["reason"] == "Unschedulable"
    assert await scene.bound() == set()

    await scene.add_node()

    await scene.until_condition(COMPOSITE_POD_GROUPS, "all", "True")
    assert await scene.bound() == {"x-0", "x-1", "y-0", "y-1"}
