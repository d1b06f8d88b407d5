"""Gangs that compete for room while their scheduler is killed at bindings: none half bound, none overbooked.

``GANGLINE_HOSTILE_ROUNDS`` (50) decides how many gangs, ``GANGLINE_HOSTILE_SEED`` (1) where the kills fall.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest
from killed_schedulers import NAME, SIZE, Scene, scene

from gangline.api.resources import PODS

GANGS = max(int(os.environ.get("GANGLINE_HOSTILE_ROUNDS", "50")) // 5, 2)
SEED = int(os.environ.get("GANGLINE_HOSTILE_SEED", "1"))
FIT = 3
"""Gangs that find room at the same time."""

__all__ = ["scene"]
pytestmark = [pytest.mark.hostile, pytest.mark.timeout(7200)]


async def test_of_more_gangs_than_fit_whole_ones_run_and_half_ones_never(scene: Scene) -> None:
    random_ = random.Random(SEED)
    await scene.add_node("node-0", cpu=SIZE * FIT)
    await scene.schedulers.start()
    for index in range(FIT + 1):
        await scene.add_gang(f"g{index}")
    ended = 0
    await scene.until_settled(whole=FIT)
    while ended < GANGS:
        # One of those that run ends, its successor comes, and the leader dies at one of the bindings.
        scene.schedulers.plan = [random_.randint(1, SIZE)]
        bound = {one["metadata"]["labels"][NAME] for one in await scene.pods() if one["spec"].get("nodeName")}
        gone = random_.choice(sorted(bound))
        scene.gangs -= 1
        for rank in range(SIZE):
            status = {"status": {"phase": "Succeeded"}}
            await scene.client.patch(PODS, f"{gone}-{rank}", status, "default", subresource="status")
        for rank in range(SIZE):
            await scene.client.delete(PODS, f"{gone}-{rank}", "default", grace_period_s=0)
        ended += 1
        await scene.add_gang(f"g{FIT + ended}")
        used = await scene.until_settled(whole=FIT)
        assert used["node-0"] == SIZE * FIT, "overbooked, or room is lost"
        await asyncio.sleep(0)
    print(
        f"{ended} gangs in turn on room for {FIT}, {scene.schedulers.kills} schedulers killed at a binding, "
        f"seed {SEED}: 0 half bound, 0 overbooked"
    )
    assert scene.schedulers.kills >= ended // 2
    assert all(len(nodes) == 1 for nodes in scene.nodes_of.values())
