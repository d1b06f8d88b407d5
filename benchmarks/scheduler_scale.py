"""What many shapes, a search for victims, an explanation and 100,000 pods cost the scheduler, without an API.

A thousand jobs whose requests and node selectors all differ are decided beside a thousand equal ones; both
when they are placed and when all wait. Victims are looked for on a full cluster of 2,000 nodes, by as many
gangs as one pass looks for. An explanation starts from objects in wire form, as a command gets them. Memory
is that of a process with the scheduler's caches and state, which has read 100,000 bound pods.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from figures import Figure
from laboratory import REPOSITORY, Laboratory
from scheduler_core import CREATED, LEVELS, NOW, STARTED, Scene

JOBS, MEMBERS = 1000, 2
KINDS = 10
"""Values of each of three labels: a thousand kinds of nodes."""

LOOKING_SIZES = (1, 8, 64, 512)
"""Pods of the gangs that look for victims, one after another in one pass."""

PODS, PODS_A_NODE = 100_000, 20


def labels_of(index: int) -> dict[str, str]:
    """Return the labels that tell a kind of nodes."""
    values = (index % KINDS, index // KINDS % KINDS, index // KINDS**2 % KINDS)
    return {f"example.com/kind-{place}": f"k{value}" for place, value in enumerate(values)}


class ShapesScene:
    """2,000 nodes of a thousand kinds, half full.

    Args:
        nodes: how many.
    """

    def __init__(self, nodes: int = 2 * KINDS**3) -> None:
        from gangline.placement import NodeView
        from gangline.placement.allocations import Allocations

        self.nodes = [
            NodeView(
                name=f"node-{index:05}",
                labels={
                    **dict(
                        zip(LEVELS, (f"s{index // 1000}", f"b{index // 200}", f"r{index // 20}"), strict=True)
                    ),
                    **labels_of(index),
                },
                allocatable={"cpu": 96_000, "memory": 1 << 40, "pods": 110, "nvidia.com/gpu": 8},
            )
            for index in range(nodes)
        ]
        self.allocations = Allocations()

    def gangs(self, *, are_equal: bool) -> list[Any]:
        """Return the jobs: of one request and no selector, or of a thousand different ones."""
        import msgspec

        from gangline.api.core import Pod
        from gangline.placement import Gang, Group, PodView

        found = []
        for index in range(JOBS):
            key = f"team/job-{index}"
            cpu = 1000 if are_equal else 1000 + index
            amounts = {"cpu": f"{cpu}m", "memory": "4Gi", "nvidia.com/gpu": "1"}
            spec = {
                "containers": [{"name": "worker", "resources": {"requests": amounts, "limits": amounts}}],
                "nodeSelector": {} if are_equal else labels_of(index),
            }
            pods = []
            for rank in range(MEMBERS):
                meta = {
                    "name": f"job-{index}-{rank}",
                    "namespace": "team",
                    "uid": f"{index}-{rank}",
                    "creationTimestamp": CREATED,
                    "labels": {"scheduling.x-k8s.io/pod-group": f"job-{index}"},
                }
                pods.append(PodView.from_pod(msgspec.convert({"metadata": meta, "spec": spec}, Pod)))
            found.append(Gang(key, pods, Group(key=key, min_member=MEMBERS, created=CREATED)))
        return found

    def pass_s(self, gangs: list[Any], *, are_placed: bool) -> float:
        """Return how long the second of two passes takes: the first one has seen the nodes change."""
        from gangline.placement import NodeTable, Policy, SchedulingCycle
        from gangline.placement.allocations import Allocations

        table = NodeTable.of(self.nodes, (), LEVELS)
        took_s = 0.0
        for _ in range(2):
            room = table.room
            table.room = room.copy()
            if not are_placed:
                table.room.free[:, table.column("nvidia.com/gpu")] = 0
            started_s = time.perf_counter()
            policy = Policy(levels=LEVELS, whole_for_s=0.0)
            decisions = SchedulingCycle(table, Allocations(), policy, now=NOW).run(gangs)
            took_s = time.perf_counter() - started_s
            table.room = room
            if len(decisions.bindings) != (JOBS * MEMBERS if are_placed else 0):
                raise SystemExit(f"{len(decisions.bindings)} pods were placed")
        return took_s


def victims_s(scene: Scene) -> float:
    """Return how long a pass takes in which gangs of high priority look for victims on a full cluster."""
    from gangline.placement import Gang, Group, Policy, SchedulingCycle

    gangs = []
    for size in LOOKING_SIZES:
        key = f"team/looking-{size}"
        group = Group(key=key, min_member=size, priority=1000, created=CREATED)
        pods = [scene.pod(f"looking-{size}-{rank}", 1, gang=key) for rank in range(size)]
        gangs.append(Gang(key, pods, group))
    policy = Policy(levels=LEVELS, whole_for_s=0.0)
    started_s = time.perf_counter()
    decisions = SchedulingCycle(scene.table, scene.allocations, policy, now=NOW).run(gangs)
    took_s = time.perf_counter() - started_s
    if not decisions.evictions:
        raise SystemExit("nobody gave way")
    return took_s


def full_scene(nodes: int) -> Scene:
    """Return a cluster whose GPUs are all in use, by gangs of up to 32 nodes and by single pods."""
    scene = Scene(nodes)
    draw = random.Random(2)
    for index, name in enumerate(scene.nodes):
        held = {uuid for pod in scene.allocations.by_node.get(name, {}).values() for uuid in pod.gpu_uuids}
        free = [uuid for uuid in (f"GPU-{index:05}-{gpu}" for gpu in range(8)) if uuid not in held]
        gang = f"team/filler-{index // draw.choice((1, 2, 8, 32))}"
        for uuid in free:
            scene.allocations.add(
                scene.pod(f"filler-{uuid}", 1, node_name=name, gpu_uuids=(uuid,), gang=gang, started=STARTED)
            )
        scene.refresh(name)
    return scene


def wire_node(index: int) -> dict[str, Any]:
    """Return a node in wire form."""
    from scheduler_binding import node

    return node(index, by_wires=True)


def wire_pod(index: int, *, name: str = "", is_bound: bool = True) -> dict[str, Any]:
    """Return a pod of a job in wire form, as the operator makes it and a kubelet has started it."""
    from scheduler_binding import OURS, pod

    found = pod(name or f"job-{index // PODS_A_NODE}", index, OURS)
    meta = found["metadata"]
    meta |= {
        "uid": f"{index:08x}-aaaa-bbbb-cccc-000000000000",
        "creationTimestamp": CREATED,
        "resourceVersion": str(index),
    }
    if is_bound:
        found["spec"]["nodeName"] = f"node-{index // PODS_A_NODE:04}"
        found["status"] = {"phase": "Running", "startTime": STARTED, "podIP": "10.0.0.1", "conditions": []}
    return found


def explain_s() -> float:
    """Return how long an explanation takes on 10,000 nodes with 8 pods each, from objects in wire form."""
    from gangline.client.explain.report import report
    from gangline.client.jobs.cluster_view import view_of
    from gangline.kube.deep_json import collector_paused
    from gangline.placement import Workload

    if not hasattr(explain_s, "objects"):
        nodes = [wire_node(index) for index in range(10_000)]
        pods = []
        for index in range(10_000):
            for gpu in range(8):
                one = wire_pod(index * PODS_A_NODE, name=f"job-{index // 4}")
                one["metadata"]["uid"] += f"-{gpu}"
                one["metadata"]["name"] += f"-{index}-{gpu}"
                pods.append(one)
        waiting = [wire_pod(rank, name="waits", is_bound=False) for rank in range(64)]
        group = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {
                "name": "waits",
                "namespace": waiting[0]["metadata"]["namespace"],
                "creationTimestamp": CREATED,
            },
            "spec": {"minMember": 64},
        }
        explain_s.objects = nodes, pods, waiting, group  # type: ignore[attr-defined]
    nodes, pods, waiting, group = explain_s.objects  # type: ignore[attr-defined]
    started_s = time.perf_counter()
    with collector_paused():  # as in the command
        view = view_of(nodes, [*pods, *waiting], [group], levels=LEVELS)
        seen_s = time.perf_counter() - started_s
        schedulers = {"gangline-scheduler"}
        value = report("job waits", None, waiting, view, [], schedulers, Workload(), NOW)
    took_s = time.perf_counter() - started_s
    if "fix" not in value:
        raise SystemExit(f"nothing is explained: {value}")
    print(f"explain: reading objects {seen_s:.2f} s of {took_s:.2f} s; {value['message']}; {value['fix']}")
    return took_s


def memory_mib() -> float:
    """Return the peak memory of a process that knows 100,000 pods and their nodes."""
    done = subprocess.run(
        [sys.executable, __file__, "--memory"], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    return float(done.stdout)


def _fill_memory() -> float:
    import msgspec

    from gangline.api.core import Node, Pod
    from gangline.kube.cache import _Held
    from gangline.scheduler.explained.published import DEFAULT_NAMES
    from gangline.scheduler.kept import kept_node, kept_pod
    from gangline.scheduler.state import SchedulerState

    sys.path.insert(0, str(Path(__file__).parent))
    state, held = SchedulerState(DEFAULT_NAMES, LEVELS), {}
    for index in range(PODS // PODS_A_NODE):
        node = msgspec.json.decode(json.dumps(wire_node(index)), type=Node)
        held[index] = kept_node(node)
        state.take_node(None, node)
    for index in range(PODS):
        pod = msgspec.json.decode(json.dumps(wire_pod(index)), type=Pod)
        meta = pod.metadata
        held[meta.key] = _Held(kept_pod(pod), meta.uid, meta.resource_version)
        state.take_pod(None, pod)
    state.table()
    assert len(state.allocations) == PODS
    # Not `ru_maxrss`: that of a process begins with what its parent had.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmHWM")) / 1024


def run(laboratory: Laboratory) -> list[Figure]:
    scene, full = ShapesScene(), full_scene(2000)
    equal, different = (scene.gangs(are_equal=are_equal) for are_equal in (True, False))
    samples: dict[str, list[float]] = {}
    for _ in range(laboratory.rounds):
        for name, gangs, are_placed in (
            ("equal", equal, True),
            ("different", different, True),
            ("equal wait", equal, False),
            ("different wait", different, False),
        ):
            samples.setdefault(name, []).append(scene.pass_s(gangs, are_placed=are_placed) * 1e3)
        samples.setdefault("victims", []).append(victims_s(full))
        samples.setdefault("explain", []).append(explain_s())
    return [
        Figure(
            "1,000 jobs of different shapes placed", "ms", samples["different"], samples["equal"], goal="<= 3"
        ),
        Figure(
            "- all of them wait, beside equal ones that are placed",
            "ms",
            samples["different wait"],
            samples["equal"],
            goal="<= 3",
        ),
        Figure(
            "victims for gangs of 1, 8, 64 and 512 on 2,000 nodes", "s", samples["victims"], goal="<= 0.3"
        ),
        Figure("explain of 80,000 pods in wire form, without a scheduler", "s", samples["explain"]),
        Figure("memory at 100,000 pods", "MiB", [memory_mib()], goal="<= 200"),
    ]


if __name__ == "__main__":
    if sys.argv[1:] == ["--memory"]:
        print(_fill_memory())
