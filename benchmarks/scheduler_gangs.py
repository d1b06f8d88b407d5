"""Gangs through a real API server 1.37, beside kube-scheduler 1.37 with its own gangs (gate GenericWorkload).

Three loads: 100 gangs of 32 pods with a GPU each on 1,000 nodes; and those of kube-scheduler's own
benchmarks, 1,000 gangs of 3 and 3 gangs of 1,000 on 5,000 nodes. Both schedulers read the same PodGroups of
scheduling.k8s.io/v1beta1, their clients unlimited; ours hands out GPU ids by the wires as well. Beside them
the same objects are created with no scheduler, and by a bare loop that knows every pod's node beforehand and
binds it as soon as it is there, gang or not: what the API server can do. etcd, kube-apiserver, creator and
scheduler share the machine, nothing runs the pods, every sample has a fresh control plane. Pods/s are from
the first creation to the last binding.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import scheduler_binding as binding
from figures import Figure
from laboratory import Laboratory, processor_s
from operator_plane import client_of, until_idle

ALONE = "alone"
GATE = "GenericWorkload"
SERVED = "--runtime-config=scheduling.k8s.io/v1beta1=true"


@dataclass(frozen=True)
class Load:
    """Gangs of so many members, on so many nodes; `gpus` for each pod."""

    gangs: int
    members: int
    nodes: int
    gpus: int = 0

    @property
    def title(self) -> str:
        """The load in words."""
        return f"{self.gangs:,} gangs of {self.members:,} on {self.nodes:,} nodes"


LOADS = (Load(100, 32, 1000, gpus=1), Load(1000, 3, 5000), Load(3, 1000, 5000))


@dataclass
class Sample:
    """What one run took."""

    pods_per_s: float
    took_s: float
    processor_s: float


def pod(load: Load, gang: str, index: int, scheduler: str) -> dict[str, Any]:
    """Return a member of a gang."""
    body = binding.pod(gang, index, scheduler)
    spec, labels = body["spec"], body["metadata"]["labels"]
    labels.pop("scheduling.x-k8s.io/pod-group")
    spec["schedulingGroup"] = {"podGroupName": gang}
    if not load.gpus:
        amounts = {"cpu": "100m", "memory": "100Mi"}
        spec["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}
    return body


def pod_group(load: Load, gang: str) -> dict[str, Any]:
    """Return a gang of Kubernetes' own kind."""
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": gang, "namespace": binding.NAMESPACE},
        "spec": {"schedulingPolicy": {"gang": {"minCount": load.members}}},
    }


@asynccontextmanager
async def cluster(load: Load, scheduler: str) -> AsyncIterator[Any]:
    """Start a control plane with all nodes, and end it."""
    from control_plane import WITH_GANGS, ControlPlane

    from gangline.api.resources import NAMESPACES, NODES

    options = [*binding.LIFTED, SERVED]
    plane = ControlPlane(controllers=False, apiserver_options=options, release=WITH_GANGS, gates=[GATE])
    with plane:
        async with client_of(plane) as client:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": binding.NAMESPACE}}
            await client.create(NAMESPACES, body)
            by_wires = scheduler == binding.OURS and load.gpus > 0
            bodies = [binding.node(index, by_wires=by_wires) for index in range(load.nodes)]
            for first in range(0, load.nodes, 500):
                await asyncio.gather(*(client.create(NODES, body) for body in bodies[first : first + 500]))
        await until_idle(plane.pids["kube-apiserver"])
        yield plane


async def create(client: Any, load: Load, gangs: list[str], scheduler: str) -> None:
    """Create gangs in order, then their pods in order over 48 connections."""
    import json

    from gangline.api.resources import KUBERNETES_POD_GROUPS, PODS

    bodies = iter(
        [
            (f"{gang}-worker-{index}", json.dumps(pod(load, gang, index, scheduler)).encode())
            for gang in gangs
            for index in range(load.members)
        ]
    )
    groups = iter([pod_group(load, gang) for gang in gangs])

    async def make_groups() -> None:
        for group in groups:
            await client.create(KUBERNETES_POD_GROUPS, group)

    bind = binding.bind_bare(client)

    async def make_pods() -> None:
        for name, body in bodies:
            await client.send("POST", PODS.path(binding.NAMESPACE), body=body)
            if scheduler == binding.BARE:
                await bind(name)

    for make in (make_groups, make_pods):
        await asyncio.gather(*(make() for _ in range(binding.CREATORS)))


async def take(load: Load, scheduler: str) -> Sample:
    """Return one sample, on a control plane of its own."""
    from control_plane import WITH_GANGS

    gangs = [f"gang-{index:04}" for index in range(load.gangs)]
    has_scheduler = scheduler not in (ALONE, binding.BARE)
    async with cluster(load, scheduler) as plane, client_of(plane) as client:
        running = (
            contextlib.nullcontext(os.getpid())
            if not has_scheduler
            else binding.scheduler_process(plane, scheduler, WITH_GANGS, GATE)
        )
        with running as pid:
            if has_scheduler:
                await create(client, Load(1, 2, load.nodes, load.gpus), ["warm-up"], scheduler)
                await binding.until_bound(client, pid)
            await until_idle(pid)
            await until_idle(plane.pids["kube-apiserver"])
            used_s, began_s = processor_s(pid), time.perf_counter()
            await create(client, load, gangs, scheduler)
            if has_scheduler:
                await binding.until_bound(client, pid)
            took_s = time.perf_counter() - began_s
            if has_scheduler:
                await binding.until_told(client)
                await until_idle(pid)
            return Sample(load.gangs * load.members / took_s, took_s, processor_s(pid) - used_s)


def run(laboratory: Laboratory) -> list[Figure]:
    """Return the figures of every load; none where Kubernetes 1.37 is not built."""
    from control_plane import WITH_GANGS, programs

    if not (programs(WITH_GANGS) / "kube-scheduler").exists():
        print(f"left out: no kube-scheduler in {programs(WITH_GANGS)}; tests/kubernetes/build.sh builds it")
        return []
    os.environ.pop("GANGLINE_HOME", None)
    figures = []
    for load in LOADS:
        taken: dict[str, list[Sample]] = {binding.OURS: [], binding.KUBE: [], ALONE: [], binding.BARE: []}
        for _ in range(laboratory.rounds):
            for name, samples in taken.items():
                samples.append(asyncio.run(take(load, name)))
                print(load.title, name, samples[-1], file=sys.stderr, flush=True)
        ours, kube, alone, bare = taken.values()
        figures += [
            Figure(
                f"{load.title}, / kube-scheduler's gangs",
                "pods/s",
                [one.pods_per_s for one in ours],
                [one.pods_per_s for one in kube],
                goal=">= 2.8",
            ),
            Figure(
                "- time, / creating alone",
                "s",
                [one.took_s for one in ours],
                [one.took_s for one in alone],
                goal="<= 1.15",
            ),
            Figure("- time, / bare loop", "s", [one.took_s for one in ours], [one.took_s for one in bare]),
            Figure(
                "- time of the bare loop, / creating alone",
                "s",
                [one.took_s for one in bare],
                [one.took_s for one in alone],
            ),
            Figure(
                "- processor time, / kube-scheduler",
                "s",
                [one.processor_s for one in ours],
                [one.processor_s for one in kube],
                goal="<= 0.15",
            ),
        ]
    return figures
