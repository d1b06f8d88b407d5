"""Schedulers that are killed while they bind gangs: another one leads, and no gang is left half."""

from __future__ import annotations

import asyncio

from killed_schedulers import NAME, SIZE, WAIT_S, Scene, pod, scene

from gangline.api.resources import EVENTS, PODS

__all__ = ["scene"]


async def test_gangs_are_bound_once_and_whole_though_their_scheduler_dies_in_between(scene: Scene) -> None:
    for index in range(3):
        await scene.add_node(f"node-{index}", cpu=10)
    await scene.schedulers.start()
    for index, binding in enumerate((2, 1, 4, 3)):
        scene.schedulers.plan = [binding]
        await scene.add_gang(f"g{index}")
        await scene.until_settled(whole=index + 1)
    for index in range(4, 7):
        await scene.add_gang(f"g{index}")

    used = await scene.until_settled(whole=7)

    assert scene.schedulers.kills == 4
    assert {node: n for node, n in used.items() if n > 10} == {}
    assert sum(used.values()) == 7 * SIZE
    assert all(len(nodes) == 1 for nodes in scene.nodes_of.values())


async def test_what_a_dead_leader_bound_half_is_taken_back_where_it_cannot_be_completed(scene: Scene) -> None:
    await scene.add_node("node-0", cpu=4)
    scene.schedulers.plan = [2]
    await scene.add_gang("g")

    await start_and_fill(scene)

    used = await scene.until_settled(whole=0)
    assert (used["node-0"], used[""]) == (1, SIZE)

    await scene.client.delete(PODS, "theirs", "default", grace_period_s=0)
    used = await scene.until_settled(whole=1)
    assert used["node-0"] == SIZE


async def test_bare_pods_that_a_dead_leader_bound_half_stay_and_the_rest_joins_them(scene: Scene) -> None:
    await scene.add_node("node-0", cpu=4)
    scene.schedulers.plan = [2]
    await scene.add_gang("g", is_bare=True)
    before = {one["metadata"]["uid"] for one in await scene.pods()}

    await start_and_fill(scene)

    async def told() -> list[str]:
        events = (await scene.client.list(EVENTS, "default")).items
        return [one["message"] for one in events if one["reason"] == "HalfBound"]

    async with asyncio.timeout(WAIT_S):
        while not (messages := await told()):
            await asyncio.sleep(0.05)
    assert "no controller would make it again" in messages[0]

    await scene.client.delete(PODS, "theirs", "default", grace_period_s=0)
    used = await scene.until_settled(whole=1)
    assert used["node-0"] == SIZE
    left = (await scene.client.list(PODS, "default", label_selector=NAME)).items
    assert {one["metadata"]["uid"] for one in left} == before


async def start_and_fill(scene: Scene) -> None:
    """Start schedulers, and bind a pod beside the first that they bind, as another scheduler would."""

    async def fill() -> None:
        while not any(one["spec"].get("nodeName") for one in await scene.pods()):
            await asyncio.sleep(0.005)
        await scene.client.create(PODS, pod("theirs", nodeName="node-0", schedulerName="other"))

    filling = asyncio.create_task(fill())
    await scene.schedulers.start()
    await filling
