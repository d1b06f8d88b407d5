"""The taint of nodes whose GPUs are chosen by their links, on the embedded server and on a real one."""

import asyncio
import uuid
from typing import Any

from gangline.api.core import Node
from gangline.api.resources import NODES
from gangline.kube.cache import Cache
from gangline.scheduler.node_taints import NodeTaints

WAIT_S = 60.0
OURS = ("gangline.dev/gpu-schedule", "NoSchedule")
OTHER = ("example.com/dedicated", "NoSchedule")


async def test_the_taint_comes_and_goes_with_the_label_and_leaves_others_alone(api: Any) -> None:
    name = f"node-{uuid.uuid4().hex[:8]}"
    async with api.client() as client:
        taints = [{"key": OTHER[0], "effect": OTHER[1]}]
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": taints}}
        await client.create(NODES, node)
        nodes: Cache[Node] = Cache(client, NODES, Node)
        tasks = [asyncio.create_task(work) for work in (nodes.run(), NodeTaints(client, nodes).run())]

        async def until(*wanted: tuple[str, str]) -> None:
            async with asyncio.timeout(WAIT_S):
                while True:
                    found = (await client.get(NODES, name))["spec"].get("taints") or []
                    own = {(taint["key"], taint["effect"]) for taint in found}
                    if {one for one in own if not one[0].startswith("node.kubernetes.io/")} == set(wanted):
                        return
                    await asyncio.sleep(0.02)

        try:
            for mode, wanted in (
                ("topology", (OURS, OTHER)),
                ("default", (OTHER,)),
                ("topology", (OURS, OTHER)),
            ):
                patch = {"metadata": {"labels": {"ack.node.gpu.schedule": mode}}}
                await client.patch(NODES, name, patch)
                await until(*wanted)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.delete(NODES, name)
