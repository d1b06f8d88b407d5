"""The scheduler beside others that bind to the same nodes: what a node refuses is taken back whole."""

import asyncio
import contextlib
from typing import Any

import pytest

from gangline.api.resources import EVENTS, NODES, PODS
from gangline.kube.errors import NotFound, ServerError
from gangline.scheduler.scheduler import Scheduler

NAME = "pod-group.scheduling.sigs.k8s.io/name"
SIZE = 4


CONTROLLER = {"apiVersion": "example.com/v1", "kind": "Job", "name": "job", "uid": "1", "controller": True}


def pod(name: str, *, cpu: str = "1", gang: str = "", is_bare: bool = False, **spec: Any) -> dict[str, Any]:
    owners = [] if is_bare or not gang else [CONTROLLER]
    labels = {NAME: gang, "pod-group.scheduling.sigs.k8s.io/min-available": str(SIZE)} if gang else {}
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    spec = {"containers": [container], "schedulerName": "gangline-scheduler", **spec}
    metadata = {"name": name, "namespace": "default", "labels": labels, "ownerReferences": owners}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Hands:
    """What kubelets and job controllers do, done by the test."""

    def __init__(self, cluster: Any) -> None:
        self.cluster, self.client = cluster, cluster.client

    async def add_gang(self, name: str, **spec: Any) -> None:
        for index in range(SIZE):
            await self.client.create(PODS, pod(f"{name}-{index}", gang=name, **spec))

    async def nodes_of(self, name: str) -> set[str]:
        """Wait until a gang is bound, and return its nodes."""
        return {await self.cluster.until_bound(f"{name}-{index}") for index in range(SIZE)}

    async def bind_theirs(self, name: str, node: str, cpu: str) -> None:
        """Bind a pod as another scheduler does: create it, and post its binding."""
        await self.client.create(PODS, pod(name, cpu=cpu, schedulerName="theirs"))
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await self.client.create_subresource(PODS, name, "binding", body, "default")

    async def refuse(self, name: str, reason: str) -> None:
        """Refuse a pod as a kubelet does whose node is full."""
        status = {"phase": "Failed", "reason": reason, "message": "Pod was rejected"}
        await self.client.patch(PODS, name, {"status": status}, "default", subresource="status")

    async def until_taken_away(self, name: str) -> None:
        """Wait until all pods of a gang are on their way out, marked, and confirm their end."""

        async def all_going() -> Any:
            pods = (await self.client.list(PODS, "default", label_selector=f"{NAME}={name}")).items
            return all("deletionTimestamp" in one["metadata"] for one in pods) and (pods or True)

        pods = await self.cluster.until(all_going)
        for one in [] if pods is True else pods:
            kinds = [condition["type"] for condition in one["status"].get("conditions", [])]
            assert "DisruptionTarget" in kinds
            with contextlib.suppress(NotFound):
                await self.client.delete(PODS, one["metadata"]["name"], "default", grace_period_s=0)

    async def events(self, reason: str) -> list[str]:
        events = (await self.client.list(EVENTS, "default")).items
        return sorted(one["involvedObject"]["name"] for one in events if one["reason"] == reason)


@pytest.fixture
def hands(cluster: Any) -> Hands:
    return Hands(cluster)


@pytest.mark.parametrize(
    "reason", ["OutOfcpu", "OutOfnvidia.com/gpu", "OutOfpods", "UnexpectedAdmissionError", "NodeAffinity"]
)
async def test_a_gang_of_which_a_full_node_refuses_a_pod_goes_elsewhere_whole(
    cluster: Any, hands: Hands, reason: str
) -> None:
    await cluster.add_node("a", cpu="4")
    await hands.add_gang("g")
    assert await hands.nodes_of("g") == {"a"}
    await cluster.add_node("b", cpu="4")

    await hands.bind_theirs("theirs", "a", cpu="4")
    await hands.refuse("g-3", reason)

    await hands.until_taken_away("g")
    await hands.add_gang("g")
    assert await hands.nodes_of("g") == {"b"}

    async def told() -> list[str]:
        return await hands.events("NodeRefused")

    async def all_told() -> bool:
        return await told() == [f"g-{index}" for index in range(SIZE)]

    await cluster.until(all_told)


async def test_bare_pods_of_a_gang_are_told_that_a_node_refused_one_and_stay(
    cluster: Any, hands: Hands
) -> None:
    await cluster.add_node("a", cpu="4")
    await hands.add_gang("g", is_bare=True)
    assert await hands.nodes_of("g") == {"a"}
    before = (await hands.client.list(PODS, "default", label_selector=f"{NAME}=g")).items

    await hands.refuse("g-3", "OutOfcpu")

    async def all_told() -> bool:
        return await hands.events("NodeRefused") == [f"g-{index}" for index in range(SIZE)]

    await cluster.until(all_told)
    after = (await hands.client.list(PODS, "default", label_selector=f"{NAME}=g")).items
    assert [one["metadata"]["uid"] for one in after] == [one["metadata"]["uid"] for one in before]
    assert not any("deletionTimestamp" in one["metadata"] for one in after)


async def test_a_bare_gang_that_is_bound_half_is_bound_whole_when_it_can_be(
    cluster: Any, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    post_all, failures = hands.client.post_all, ["pods/g-2/binding"]

    async def fail_once(requests: Any) -> Any:
        failing = [one for one in requests if failures and one[0].endswith(failures[0])]
        told = iter(await post_all([one for one in requests if one not in failing]))
        del failures[: len(failing)]
        return [ServerError(500, "", "boom") if one in failing else next(told) for one in requests]

    monkeypatch.setattr(hands.client, "post_all", fail_once)
    made = [await hands.client.create(PODS, pod(f"g-{i}", gang="g", is_bare=True)) for i in range(SIZE)]

    await cluster.add_node("a", cpu="4")

    assert await hands.nodes_of("g") == {"a"}
    assert not failures
    found = (await hands.client.list(PODS, "default", label_selector=f"{NAME}=g")).items
    assert {one["metadata"]["uid"] for one in found} == {one["metadata"]["uid"] for one in made}


async def test_gangs_of_other_schedulers_are_left_alone(cluster: Any, hands: Hands) -> None:
    await cluster.add_node("a", cpu="100")
    for index in range(SIZE):
        await hands.client.create(PODS, pod(f"v-{index}", gang="v", nodeName="a", schedulerName="volcano"))
    await hands.refuse("v-0", "OutOfcpu")
    await hands.add_gang("g")
    await hands.nodes_of("g")
    await hands.refuse("g-0", "OutOfcpu")
    await hands.until_taken_away("g")

    left = (await hands.client.list(PODS, "default", label_selector=f"{NAME}=v")).items
    assert [one["metadata"].get("deletionTimestamp") for one in left] == [None] * SIZE


async def test_only_nodes_of_the_selector_are_used_and_tainted(cluster: Any, hands: Hands) -> None:
    for name, labels in (("a", {}), ("b", {"example.com/pool": "training"})):
        await cluster.add_node(name, cpu="4")
        labels = {**labels, "ack.node.gpu.schedule": "topology"}
        await hands.client.patch(NODES, name, {"metadata": {"labels": labels}})
    names = ("part-scheduler",)
    part = asyncio.create_task(
        Scheduler(hands.client, names=names, node_selector="example.com/pool=training").run()
    )
    try:
        await hands.add_gang("g", schedulerName="part-scheduler")
        assert await hands.nodes_of("g") == {"b"}
        await hands.client.create(PODS, pod("more", schedulerName="part-scheduler"))
        assert await cluster.until_unschedulable("more") == "0/1 nodes are available: 1 Insufficient cpu."
        await hands.client.patch(NODES, "a", {"metadata": {"labels": {"example.com/pool": "training"}}})
        assert await cluster.until_bound("more") == "a"
    finally:
        part.cancel()
        await asyncio.gather(part, return_exceptions=True)
