"""A gang of 256 pods by resource claims, beside the same gang by limits, on a real control plane.

Each pod asks for one GPU of 64 nodes with eight: by a claim of its own, which is there before it as
Kubernetes' controller would make it from a template, or by ``nvidia.com/gpu``. Counted from the creation of
the first pod to the last binding; by claims the scheduler writes three times for each pod (finalizer,
allocation, binding), by limits once. Nothing runs the pods. A first gang warms up. Beside both a bare loop
that knows every device beforehand writes the same, pod by pod, as soon as it is there: what the API server
takes for three writes in place of one.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from figures import Figure
from laboratory import Laboratory, processor_s
from operator_plane import client_of, until_idle
from scheduler_binding import CREATORS, LIFTED, NAMESPACE, OURS, scheduler_process, until_bound

PODS, NODES, WARM = 256, 64, 8
ANNOTATION = "gangline.dev/gang-size"


def pod(gang: str, index: int, size: int, *, by_claim: bool) -> dict[str, Any]:
    name = f"{gang}-{index}"
    asked: dict[str, Any] = {"requests": {"cpu": "1"}}
    asked |= {"claims": [{"name": "gpu"}]} if by_claim else {"limits": {"nvidia.com/gpu": "1"}}
    spec = {
        "schedulerName": OURS,
        "containers": [{"name": "worker", "image": "registry.example.com/train:1", "resources": asked}],
    }
    if by_claim:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    labels = {"batch.kubernetes.io/job-name": gang}
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "labels": labels,
        "annotations": {ANNOTATION: str(size)},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def claim(name: str) -> dict[str, Any]:
    from gangline.workloads.device_class import DRIVER

    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": 1}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [request]}},
    }


@asynccontextmanager
async def cluster(*, by_claim: bool) -> AsyncIterator[Any]:
    """Start a control plane with nodes that publish their GPUs one way or the other, and end it."""
    from control_plane import ControlPlane

    from gangline.api.crds import gang_crds
    from gangline.api.resources import DEVICE_CLASSES, NAMESPACES, RESOURCE_SLICES
    from gangline.api.resources import NODES as NODE_KIND
    from gangline.deviceplugin.dra_objects import resource_slice
    from gangline.devices.inventory import TOPOLOGY_ANNOTATION, topology_note
    from gangline.devices.simulated import simulate
    from gangline.workloads.device_class import DEVICE_CLASS

    async def add(client: Any, index: int) -> None:
        name = f"node-{index:03}"
        inventory = simulate(name, 8, "v100-dgx1")
        amounts = {"cpu": "96", "memory": "1Ti", "pods": "110"}
        amounts |= {} if by_claim else {"nvidia.com/gpu": "8"}
        notes = {} if by_claim else {TOPOLOGY_ANNOTATION: topology_note(inventory)}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": notes,
                "labels": {"gangline.dev/gpu-source": "simulated"},
            },
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }
        made = await client.create(NODE_KIND, body)
        if by_claim:
            await client.create(RESOURCE_SLICES, resource_slice(inventory, name, made["metadata"]["uid"]))

    with ControlPlane(controllers=False, crds=gang_crds(), apiserver_options=LIFTED) as plane:
        async with client_of(plane) as client:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            await client.create(NAMESPACES, body)
            await client.create(DEVICE_CLASSES, DEVICE_CLASS)
            await asyncio.gather(*(add(client, index) for index in range(NODES)))
        await until_idle(plane.pids["kube-apiserver"])
        yield plane


async def create(client: Any, resource: Any, bodies: list[dict[str, Any]]) -> None:
    """Create objects in order over as many connections as the other benchmarks of the scheduler."""
    waiting = iter(bodies)

    async def worker() -> None:
        for body in waiting:
            await client.create(resource, body)

    await asyncio.gather(*(worker() for _ in range(CREATORS)))


async def take(*, by_claim: bool) -> tuple[float, float]:
    """Return the seconds to the last binding, and the scheduler's processor time."""
    from gangline.api.resources import PODS as POD_KIND
    from gangline.api.resources import RESOURCE_CLAIMS

    async with cluster(by_claim=by_claim) as plane, client_of(plane) as client:
        with scheduler_process(plane, OURS) as pid:
            for gang, size in (("warm-up", WARM), ("gang", PODS)):
                if by_claim:
                    await create(client, RESOURCE_CLAIMS, [claim(f"{gang}-{index}") for index in range(size)])
                await until_idle(pid)
                await until_idle(plane.pids["kube-apiserver"])
                used_s, started_s = processor_s(pid), time.perf_counter()
                pods = [pod(gang, index, size, by_claim=by_claim) for index in range(size)]
                await create(client, POD_KIND, pods)
                await until_bound(client, pid)
                took_s = time.perf_counter() - started_s
            await until_idle(pid)
            await check(client, by_claim=by_claim)
            return took_s, processor_s(pid) - used_s


async def take_bare(*, by_claim: bool) -> float:
    """Return the seconds that the same writes take of a loop that decides nothing."""
    from gangline.api.resources import PODS as POD_KIND
    from gangline.api.resources import RESOURCE_CLAIMS
    from gangline.scheduler.claim_watch import FINALIZER

    async with cluster(by_claim=by_claim) as plane, client_of(plane) as client:
        names = [f"gang-{index}" for index in range(PODS + WARM)]
        if by_claim:
            await create(client, RESOURCE_CLAIMS, [claim(name) for name in names])
        known = {
            one["metadata"]["name"]: one for one in (await client.list(RESOURCE_CLAIMS, NAMESPACE)).items
        }

        async def worker(waiting: Iterator[int]) -> None:
            for index in waiting:
                name, node, gpu = names[index], f"node-{index // 8:03}", index % 8
                made = await client.create(POD_KIND, pod("gang", index, PODS, by_claim=by_claim))
                if by_claim:
                    found = known[name]
                    found["metadata"]["finalizers"] = [FINALIZER]
                    found = await client.update(RESOURCE_CLAIMS, found)
                    status = allocated(node, gpu, made)
                    await client.update(RESOURCE_CLAIMS, found | {"status": status}, subresource="status")
                target = {"apiVersion": "v1", "kind": "Node", "name": node}
                notes = {"gangline.dev/gpus": f'{{"worker": ["GPU-{index}"]}}'}
                body = {"metadata": {"name": name, "annotations": notes}, "target": target}
                await client.create_subresource(POD_KIND, name, "binding", body, NAMESPACE)

        for some in (range(PODS, PODS + WARM), range(PODS)):
            await until_idle(plane.pids["kube-apiserver"])
            started_s, waiting = time.perf_counter(), iter(some)
            await asyncio.gather(*(worker(waiting) for _ in range(CREATORS)))
        return time.perf_counter() - started_s


def allocated(node: str, gpu: int, made: dict[str, Any]) -> dict[str, Any]:
    """Return the status of a claim that holds a GPU of a node for a pod."""
    from gangline.workloads.device_class import DRIVER

    meta = made["metadata"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": f"gpu-{gpu}"}
    return {
        "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}},
        "reservedFor": [{"resource": "pods", "name": meta["name"], "uid": meta["uid"]}],
    }


async def check(client: Any, *, by_claim: bool) -> None:
    """End the benchmark when a GPU has two pods, or a pod none."""
    import json

    from gangline.api.resources import PODS as POD_KIND

    pods = (await client.list(POD_KIND, NAMESPACE)).items
    held = [
        gpu
        for one in pods
        for gpu in json.loads(one["metadata"]["annotations"]["gangline.dev/gpus"])["worker"]
    ]
    if len(held) != PODS + WARM or len(set(held)) != len(held):
        raise SystemExit(f"{len(pods)} pods hold {len(set(held))} GPUs")


def run(laboratory: Laboratory) -> list[Figure]:
    os.environ.pop("GANGLINE_HOME", None)
    claims, limits, bare = [], [], {True: [], False: []}
    for _ in range(laboratory.rounds):
        claims.append(asyncio.run(take(by_claim=True)))
        limits.append(asyncio.run(take(by_claim=False)))
        for by_claim, found in bare.items():
            found.append(asyncio.run(take_bare(by_claim=by_claim)))
        print("claims, limits, bare:", claims[-1], limits[-1], bare[True][-1], bare[False][-1], flush=True)
    seconds, used = zip(*claims, strict=True)
    plain_s, plain_used = zip(*limits, strict=True)
    return [
        Figure(f"a gang of {PODS} by claims / by limits", "s", list(seconds), list(plain_s), goal="<= 1.5"),
        Figure("- the same writes of a bare loop, by claims / by limits", "s", bare[True], bare[False]),
        Figure("- processor time of the scheduler", "s", list(used), list(plain_used)),
    ]
