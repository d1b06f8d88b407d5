"""PodGroups of both dialects: what the scheduler keeps in their status through the life of a gang."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gangline.api.crds import gang_crds
from gangline.api.resources import (
    CRDS,
    EVENTS,
    NODES,
    PODS,
    SCHEDULER_PLUGINS_POD_GROUPS,
    VOLCANO_POD_GROUPS,
    VOLCANO_QUEUES,
    Resource,
)
from gangline.kube.apply import apply
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, ServerError, Unavailable
from gangline.scheduler.scheduler import Scheduler

WAIT_S = 60.0
DIALECTS = [
    pytest.param(SCHEDULER_PLUGINS_POD_GROUPS, id="scheduler-plugins"),
    pytest.param(VOLCANO_POD_GROUPS, id="volcano"),
]


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(WAIT_S):
        while not (found := await condition()):
            await asyncio.sleep(0.01)
        return found


class Scene:
    def __init__(self, client: Client, namespace: str, node: str) -> None:
        self.client, self.namespace, self.node = client, namespace, node

    async def add_group(self, resource: Resource, name: str, *, size: int = 2, **annotations: str) -> None:
        metadata: dict[str, Any] = {"name": name, "namespace": self.namespace, "annotations": annotations}
        group = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        await self.client.create(resource, {**group, "spec": {"minMember": size}})

    async def add_pods(
        self, resource: Resource, gang: str, *, count: int = 2, scheduler: str = "ours"
    ) -> None:
        for index in range(count):
            metadata: dict[str, Any] = {"name": f"{gang}-{index}", "namespace": self.namespace}
            if resource == VOLCANO_POD_GROUPS:
                metadata["annotations"] = {"scheduling.k8s.io/group-name": gang}
            else:
                metadata["labels"] = {"scheduling.x-k8s.io/pod-group": gang}
            container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "2"}}}
            rules = {"tolerations": [{"operator": "Exists"}], "schedulerName": scheduler}
            spec = {"containers": [container], "nodeSelector": {"name": self.node}, **rules}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            await self.client.create(PODS, pod)

    async def set_phase(self, gang: str, phase: str) -> None:
        for index in range(2):
            patch = {"status": {"phase": phase}}
            await self.client.patch(PODS, f"{gang}-{index}", patch, self.namespace, subresource="status")

    async def status(self, resource: Resource, name: str) -> dict[str, Any]:
        return (await self.client.get(resource, name, self.namespace)).get("status") or {}

    async def until_phase(self, resource: Resource, name: str, phase: str) -> dict[str, Any]:
        async def found() -> Any:
            status = await self.status(resource, name)
            return status if status.get("phase") == phase else None

        return dict(await until(found))


@pytest.fixture
async def scene(api: Any) -> AsyncIterator[Scene]:
    node = f"node-{uuid.uuid4().hex[:8]}"
    async with api.client() as client:
        for definition in gang_crds():
            await apply(client, CRDS, definition)

        async def are_served() -> bool:
            with contextlib.suppress(ApiError):
                for resource in (VOLCANO_POD_GROUPS, SCHEDULER_PLUGINS_POD_GROUPS):
                    await client.list(resource, api.namespace)
                await client.list(VOLCANO_QUEUES)
                return True
            return False

        await until(are_served)
        metadata = {"name": node, "labels": {"name": node}}
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": ready}}
        await client.patch(NODES, node, status, subresource="status")
        scheduler = asyncio.create_task(Scheduler(client, names=("ours",)).run())
        try:
            yield Scene(client, api.namespace, node)
        finally:
            scheduler.cancel()
            await asyncio.gather(scheduler, return_exceptions=True)
            for one in (await client.list(PODS, api.namespace)).items:
                await client.delete(PODS, one["metadata"]["name"], api.namespace, grace_period_s=0)
            await client.delete(NODES, node)


async def test_a_status_that_the_server_could_not_take_is_written_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.scheduler.group_watch.WRITE_AGAIN_S", 0.01)
    patch, failures = scene.client.patch, [Unavailable(0, "", "gone"), ServerError(500, "", "boom")]

    async def fail_at_first(resource: Resource, *args: Any, **options: Any) -> Any:
        if resource == SCHEDULER_PLUGINS_POD_GROUPS and failures:
            raise failures.pop()
        return await patch(resource, *args, **options)

    await scene.add_group(SCHEDULER_PLUGINS_POD_GROUPS, "first")
    await scene.add_pods(SCHEDULER_PLUGINS_POD_GROUPS, "first")
    await scene.until_phase(SCHEDULER_PLUGINS_POD_GROUPS, "first", "Scheduled")
    monkeypatch.setattr(scene.client, "patch", fail_at_first)

    await scene.set_phase("first", "Running")

    await scene.until_phase(SCHEDULER_PLUGINS_POD_GROUPS, "first", "Running")
    assert not failures


@pytest.mark.parametrize("resource", DIALECTS)
async def test_the_status_follows_the_gang_from_waiting_to_its_end(scene: Scene, resource: Resource) -> None:
    is_volcano = resource == VOLCANO_POD_GROUPS
    for name in ("first", "second"):
        await scene.add_group(resource, name)
    await scene.add_pods(resource, "first")
    found = await scene.until_phase(resource, "first", "Inqueue" if is_volcano else "Scheduled")
    assert [one["message"] for one in found["conditions"]] == ["2 pods are placed"]

    await scene.set_phase("first", "Running")
    assert (await scene.until_phase(resource, "first", "Running"))["running"] == 2
    await scene.add_pods(resource, "second")

    async def second_waits() -> Any:
        status = await scene.status(resource, "second")
        found = (one for one in status.get("conditions", []) if one["type"] == "Unschedulable")
        # Before its second pod is there, the gang may say that it has only one.
        return next((one for one in found if not one["message"].startswith("has ")), None)

    condition = await until(second_waits)
    assert condition["reason"] == ("NotEnoughResources" if is_volcano else "NoRoom")
    assert condition["message"] == (
        f"needs 2 cpu on one node; best node {scene.node} has 0 free; "
        f"fits when gang {scene.namespace}/first ends"
    )
    assert (await scene.status(resource, "second"))["phase"] == "Pending"

    async def told() -> Any:
        selector = "involvedObject.kind=PodGroup,involvedObject.name=second"
        events = (await scene.client.list(EVENTS, scene.namespace, field_selector=selector)).items
        return condition["message"] in [one["message"] for one in events if one["reason"] == "Unschedulable"]

    await until(told)

    await scene.set_phase("first", "Succeeded")
    found = await scene.until_phase(resource, "first", "Completed" if is_volcano else "Finished")
    assert (found["succeeded"], found.get("running", 0)) == (2, 0)
    await scene.until_phase(resource, "second", "Inqueue" if is_volcano else "Scheduled")


async def test_the_groups_of_other_schedulers_keep_what_these_say(scene: Scene) -> None:
    resource = VOLCANO_POD_GROUPS
    for name in ("theirs", "ours"):
        await scene.add_group(resource, name)
    status = {"status": {"phase": "Inqueue"}}
    await scene.client.patch(resource, "theirs", status, scene.namespace, subresource="status")
    await scene.add_pods(resource, "theirs", scheduler="volcano")
    await scene.add_pods(resource, "ours")
    await scene.until_phase(resource, "ours", "Inqueue")

    assert await scene.status(resource, "theirs") == {"phase": "Inqueue"}


async def test_a_queue_that_is_not_there_is_said_and_keeps_no_gang_waiting(scene: Scene) -> None:
    resource = SCHEDULER_PLUGINS_POD_GROUPS
    await scene.add_group(resource, "queued", **{"scheduling.volcano.sh/queue-name": "research"})
    await scene.add_pods(resource, "queued")
    await scene.until_phase(resource, "queued", "Scheduled")

    async def told() -> Any:
        selector = "involvedObject.kind=PodGroup,involvedObject.name=queued"
        found = (await scene.client.list(EVENTS, scene.namespace, field_selector=selector)).items
        return [event for event in found if event["reason"] == "QueueNotFound"]

    [event] = await until(told)
    assert event["message"] == "Queue research does not exist: the gang is placed without a quota"


async def test_a_queues_quota_holds_whatever_room_there_is(scene: Scene) -> None:
    resource = SCHEDULER_PLUGINS_POD_GROUPS
    queue = {"apiVersion": VOLCANO_QUEUES.api_version, "kind": "Queue", "metadata": {"name": scene.namespace}}
    await scene.client.create(VOLCANO_QUEUES, {**queue, "spec": {"capability": {"cpu": "3"}}})
    note = {"scheduling.volcano.sh/queue-name": scene.namespace}
    await scene.add_group(resource, "one", size=1, **note)
    await scene.add_pods(resource, "one", count=1)
    await scene.until_phase(resource, "one", "Scheduled")
    await scene.add_group(resource, "two", size=1, **note)
    await scene.add_pods(resource, "two", count=1)

    async def waits() -> Any:
        status = await scene.status(resource, "two")
        return next((one for one in status.get("conditions", []) if one["type"] == "Unschedulable"), None)

    assert (await until(waits))["reason"] == "Quota"
    await scene.client.delete(PODS, "one-0", scene.namespace, grace_period_s=0)
    await scene.until_phase(resource, "two", "Scheduled")
    await scene.client.delete(VOLCANO_QUEUES, scene.namespace)
