"""Deciding alone, without an API: a large gang, many small ones, and the snapshot after a change.

The cluster is 70 % full of jobs of 1, 2, 4 and 8 GPUs with priorities, deadlines and queues, in scattered
places; its nodes are DGX-1 V100 whose GPUs are chosen by the wires, under three levels of the network. All
policies are on: quotas, guarantees and borrowing of three queues, priorities, preemption, backfill. Each
decision follows a change of the nodes, so that nothing is left of the one before. Beside it a bare loop puts
pod after pod, in numpy, on the fullest node that has a GPU: no gangs, GPU ids, levels or rules.
"""

from __future__ import annotations

import json
import random
import time
from datetime import UTC, datetime
from functools import partial

from figures import Figure, elapsed_s
from laboratory import Laboratory

FULL = 0.7
CUT = 0.03
"""What the average loses because no node can be more than full."""

SEED = 1
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CREATED = "2026-01-01T11:59:00Z"
STARTED = "2026-01-01T11:00:00Z"
QUEUES = ("research", "product", "default")
LEVELS = ("example.com/spine", "example.com/block", "example.com/rack")
RACK, BLOCK, SPINE = 20, 500, 2500
"""Nodes of a domain of each level."""

CHANGES = 20
"""Changes for one sample of the refresh; the sample is the slowest of them."""


def policy(nodes: int) -> object:
    """Return a policy with quotas that bind nobody here, but must be looked at."""
    from gangline.placement import Policy, Queue

    gpus = 8 * nodes
    queues = {
        name: Queue(
            name=name,
            capability={"nvidia.com/gpu": gpus, "cpu": 96_000 * nodes},
            deserved={"nvidia.com/gpu": gpus // len(QUEUES)},
            guarantee={"nvidia.com/gpu": gpus // 100},
            weight=1 + index,
        )
        for index, name in enumerate(QUEUES)
    }
    return Policy(levels=LEVELS, queues=queues, whole_for_s=0.0)  # all are placed in one pass


class Scene:
    """A cluster as the scheduler keeps it.

    Args:
        nodes: how many.
    """

    def __init__(self, nodes: int) -> None:
        from gangline.placement import NodeTable
        from gangline.placement.allocations import Allocations

        self.random = random.Random(SEED)
        self.policy = policy(nodes)
        self.nodes = {node.name: node for node in (self._node(index) for index in range(nodes))}
        self.allocations = Allocations(pod for index in range(nodes) for pod in self._jobs(index))
        self.table = NodeTable.of(self.nodes.values(), self.allocations, LEVELS)

    def _node(self, index: int) -> object:
        from gangline.placement import NodeView
        from gangline.topology import known_machine, read_annotation

        machine = known_machine("dgx1-v100")
        assert machine is not None
        uuids = [f"GPU-{index:05}-{gpu}" for gpu in range(8)]
        values = (f"s{index // SPINE}", f"b{index // BLOCK}", f"r{index // RACK}")
        return NodeView(
            name=f"node-{index:05}",
            labels=dict(zip(LEVELS, values, strict=True)),
            allocatable={"cpu": 96_000, "memory": 1 << 40, "pods": 110, "nvidia.com/gpu": 8},
            gpus=read_annotation(json.dumps(machine.annotation(uuids))),
            by_wires=True,
        )

    def _jobs(self, index: int) -> list[object]:
        """Return the running pods of a node: nodes differ, and all are as full as wanted on average."""
        free = list(range(8))
        self.random.shuffle(free)
        used = min(8, max(0, round(8 * self.random.gauss(FULL + CUT, 0.3))))
        pods = []
        while len(free) > 8 - used:
            count = min(self.random.choice((1, 1, 1, 2, 4, 8)), len(free) - 8 + used)
            gpus = tuple(f"GPU-{index:05}-{free.pop()}" for _ in range(count))
            pods.append(
                self.pod(
                    f"running-{index}-{len(free)}",
                    count,
                    node_name=f"node-{index:05}",
                    gpu_uuids=gpus,
                    queue=self.random.choice(QUEUES),
                    priority=self.random.choice((0, 0, 100)),
                    started=STARTED,
                    limit_s=self.random.choice((None, 7200, 36_000)),
                )
            )
        return pods

    def pod(self, name: str, gpus: int, **more: object) -> object:
        """Return a pod with cores and memory for its GPUs."""
        from gangline.placement import PodView

        request = {"cpu": 4000 * gpus, "memory": gpus << 34, "nvidia.com/gpu": gpus, "pods": 1}
        return PodView(
            key=f"team/{name}",
            uid=name,
            request=request,
            shape=f"{gpus} GPUs".encode(),
            gpu_shares=(("worker", 0, gpus),),
            created=CREATED,
            **more,
        )

    def gangs(self, count: int, size: int) -> list[object]:
        """Return gangs of single-GPU pods, in all queues and of two priorities."""
        from gangline.placement import Gang, Group

        found = []
        for index in range(count):
            key, queue = f"team/gang-{index}", QUEUES[index % len(QUEUES)]
            group = Group(key=key, min_member=size, queue=queue, priority=index % 2 * 100, created=CREATED)
            pods = [self.pod(f"gang-{index}-{rank}", 1, gang=key) for rank in range(size)]
            found.append(Gang(key, pods, group))
        return found

    def decide_s(self, gangs: list[object]) -> float:
        """Return how long one pass takes that places all of these gangs, and take them away again."""
        from gangline.placement import SchedulingCycle

        started_s = time.perf_counter()
        decisions = SchedulingCycle(self.table, self.allocations, self.policy, now=NOW).run(gangs)
        took_s = time.perf_counter() - started_s
        if decisions.waits or len(decisions.bindings) != sum(len(gang.pods) for gang in gangs):
            raise SystemExit(f"only {len(decisions.bindings)} pods were placed")
        for binding in decisions.bindings:
            self.allocations.remove(binding.uid)
        for name in {binding.node for binding in decisions.bindings}:
            self.refresh(name)
        return took_s

    def refresh(self, name: str) -> None:
        """Bring the arrays up to date for one node."""
        self.table.set_node(self.nodes[name], self.allocations.by_node.get(name, {}).values())

    def change_s(self) -> float:
        """Return how long the arrays take after one pod has ended or come: the slowest of some changes."""
        slowest_s = 0.0
        for pod in self.random.sample(list(self.allocations), CHANGES):
            self.allocations.remove(pod.uid)
            slowest_s = max(slowest_s, elapsed_s(partial(self.refresh, pod.node_name)))
            self.allocations.add(pod)
            slowest_s = max(slowest_s, elapsed_s(partial(self.refresh, pod.node_name)))
        return slowest_s

    def bare_s(self, pods: int) -> float:
        """Return how long a bare loop takes."""
        import numpy as np

        def loop() -> None:
            free = np.bitwise_count(self.table.room.gpus.astype(np.uint64)).astype(np.int64)
            free[free == 0] = 9
            for _ in range(pods):
                row = int(np.argmin(free))
                free[row] = free[row] - 1 or 9

        return elapsed_s(loop)


def run(laboratory: Laboratory) -> list[Figure]:
    large, many = Scene(10_000), Scene(5_000)
    for scene in (large, many):
        held = sum(pod.request["nvidia.com/gpu"] for pod in scene.allocations) / 8 / len(scene.nodes)
        print(
            f"{len(scene.nodes)} nodes, {len(scene.allocations)} running pods, {held:.0%} of the GPUs in use"
        )
    one, small = large.gangs(1, 1024), many.gangs(1250, 8)
    large.decide_s(one)
    many.decide_s(small)
    decided_ms, rate, bare_rate, refresh_ms = [], [], [], []
    for _ in range(laboratory.rounds):
        decided_ms.append(large.decide_s(one) * 1e3)
        rate.append(10_000 / many.decide_s(small))
        bare_rate.append(10_000 / many.bare_s(10_000))
        refresh_ms.append(large.change_s() * 1e3)
    return [
        Figure("a gang of 1,024 pods on 10,000 nodes", "ms", decided_ms, goal="<= 12"),
        Figure("10,000 pods in gangs of 8 on 5,000 nodes", "pods/s", rate, goal=">= 30000"),
        Figure("- beside the bare loop", "pods/s", rate, bare_rate),
        Figure("snapshot of 10,000 nodes after a change", "ms", refresh_ms, goal="<= 2"),
    ]
