"""A gang beside another scheduler: nodes are held against it while the gang is bound or waits for room."""

import asyncio
from typing import Any

import pytest

from gangline.api.resources import NODES, PODS
from gangline.placement import Policy
from gangline.scheduler import fence
from gangline.scheduler.scheduler import Scheduler

HELD = {"key": "gangline.dev/held", "value": "gang", "effect": "NoSchedule"}
OTHER = {
    "key": "example.com/dedicated",
    "value": "team",
    "effect": "NoExecute",
    "timeAdded": "2026-11-01T08:00:00Z",
}
GANG = {
    "pod-group.scheduling.sigs.k8s.io/name": "g",
    "pod-group.scheduling.sigs.k8s.io/min-available": "2",
}


async def bind_theirs(cluster: Any, name: str, node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    await cluster.client.create_subresource(PODS, name, "binding", body, "default")


async def taints_of(cluster: Any, node: str) -> list[dict[str, str]]:
    return (await cluster.client.get(NODES, node)).get("spec", {}).get("taints") or []


async def until_held(cluster: Any, node: str, is_held: bool = True) -> None:
    async def as_wanted() -> bool:
        return (HELD in await taints_of(cluster, node)) == is_held

    await cluster.until(as_wanted)


async def add_gang(cluster: Any, cpu: str = "2") -> None:
    for index in range(2):
        await cluster.add_pod(f"g-{index}", cpu=cpu, labels=GANG)


async def test_a_gang_alone_is_bound_at_once(cluster: Any) -> None:
    await cluster.add_node("a")
    before = await cluster.client.get(NODES, "a")
    await add_gang(cluster)

    assert await cluster.until_bound("g-0") == await cluster.until_bound("g-1") == "a"
    after = await cluster.client.get(NODES, "a")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_beside_another_scheduler_a_node_is_held_until_the_gang_is_bound(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "SETTLE_S", 1.0)
    await cluster.add_node("a")
    await cluster.client.patch(NODES, "a", {"spec": {"taints": [OTHER]}})
    await cluster.add_pod("theirs", schedulerName="theirs")
    tolerated = {"tolerations": [{"key": "example.com/dedicated", "operator": "Exists"}]}
    for index in range(2):
        await cluster.add_pod(f"g-{index}", cpu="2", labels=GANG, **tolerated)

    await until_held(cluster, "a")
    assert await taints_of(cluster, "a") == [OTHER, HELD]
    assert await cluster.node_of("g-0") == ""
    assert await cluster.until_bound("g-0") == await cluster.until_bound("g-1") == "a"
    await until_held(cluster, "a", is_held=False)
    assert await taints_of(cluster, "a") == [OTHER]


async def test_room_that_another_scheduler_took_meanwhile_is_not_given_twice(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "SETTLE_S", 1.0)
    await cluster.add_node("a")
    await cluster.add_pod("theirs", cpu="1", schedulerName="theirs")
    await add_gang(cluster)
    await until_held(cluster, "a")

    await bind_theirs(cluster, "theirs", "a")

    assert "there is room for 1" in await cluster.until_unschedulable("g-0")
    assert await cluster.node_of("g-1") == ""
    await cluster.add_node("b")
    assert {await cluster.until_bound("g-0"), await cluster.until_bound("g-1")} == {"b"}  # together


async def test_an_overdue_gang_has_the_nodes_held_until_its_room_is_free(idle_cluster: Any) -> None:
    cluster = idle_cluster
    policy = Policy(overdue_after_s=0)
    scheduler = asyncio.create_task(
        Scheduler(cluster.client, names=("gangline-scheduler",), policy=policy).run()
    )
    try:
        await cluster.add_node("a")
        for name in ("first", "next"):
            await cluster.add_pod(name, cpu="1", schedulerName="theirs")
        await bind_theirs(cluster, "first", "a")
        await add_gang(cluster)

        await until_held(cluster, "a")
        assert "there is room for 1" in await cluster.until_unschedulable("g-0")
        await cluster.client.delete(PODS, "first", "default", grace_period_s=0)

        assert await cluster.until_bound("g-0") == await cluster.until_bound("g-1") == "a"
        await until_held(cluster, "a", is_held=False)
    finally:
        scheduler.cancel()
        await asyncio.gather(scheduler, return_exceptions=True)


async def test_a_scheduler_that_ends_holds_nothing_any_more(
    idle_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "SETTLE_S", 60.0)
    monkeypatch.setattr(fence, "LIMIT_S", 60.0)
    cluster = idle_cluster
    scheduler = asyncio.create_task(Scheduler(cluster.client, names=("gangline-scheduler",)).run())
    await cluster.add_node("a")
    await cluster.add_pod("theirs", schedulerName="theirs")
    await add_gang(cluster)
    await until_held(cluster, "a")

    scheduler.cancel()
    await asyncio.gather(scheduler, return_exceptions=True)

    assert await taints_of(cluster, "a") == []


async def test_what_a_scheduler_that_was_killed_held_is_held_no_longer(idle_cluster: Any) -> None:
    cluster = idle_cluster
    await cluster.add_node("a")
    await cluster.client.patch(NODES, "a", {"spec": {"taints": [HELD]}})
    scheduler = asyncio.create_task(Scheduler(cluster.client).run())
    try:
        await until_held(cluster, "a", is_held=False)
    finally:
        scheduler.cancel()
        await asyncio.gather(scheduler, return_exceptions=True)
