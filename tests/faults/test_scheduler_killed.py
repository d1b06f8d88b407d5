"""Schedulers that are killed while they bind gangs: another one leads, and no gang is left half."""

from __future__ import annotations

import asyncio

from killed_schedulers import SIZE, Scene, pod, scene

from gangline.api.resources import PODS

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

    async def fill() -> None:
        """Bind a pod beside them, as another scheduler would, as soon as some are bound."""
        while not any(one["spec"].get("nodeName") for one in await scene.pods()):
            await asyncio.sleep(0.005)
        await scene.client.create(PODS, pod("theirs", nodeName="node-0", schedulerName="other"))

    filling = asyncio.create_task(fill())
    await scene.schedulers.start()
    await filling

    used = await scene.until_settled(whole=0)
    assert (used["node-0"], used[""]) == (1, SIZE)

    await scene.client.delete(PODS, "theirs", "default", grace_period_s=0)
    used = await scene.until_settled(whole=1)
    assert used["node-0"] == SIZE
