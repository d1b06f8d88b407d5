"""The operator on a real control plane: 100 jobs of four replicas, a PyTorchJob or TFJob beside an MPIJob.

One TrainJob of 1,000 nodes stands alone.

As in ``operator_jobs``: from the first job's creation to the last child that a watch shows. The children of
an MPIJob are its pods and the launcher, those of the others their pods and a Service for each.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import operator_jobs
from figures import Figure
from laboratory import Laboratory, processor_s
from operator_plane import control_plane, operator_process, pair_of_ports

JOBS = 100
REPLICAS = 4
NODES = 1000
SPECS = {
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch", {"Master": 1, "Worker": REPLICAS - 1}),
    "TFJob": ("tfReplicaSpecs", "tensorflow", {"PS": 1, "Worker": REPLICAS - 1}),
}


def manifest(kind: str, name: str, namespace: str) -> dict[str, Any]:
    field, container, roles = SPECS[kind]
    main = {"name": container, "image": "x", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    template = {"spec": {"containers": [main]}}
    specs = {role: {"replicas": count, "template": template} for role, count in roles.items()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {field: specs},
    }


async def submit_all(client: Any, kind: str, namespace: str) -> None:
    from gangline.api.resources import PYTORCHJOBS, TFJOBS

    resource = {"PyTorchJob": PYTORCHJOBS, "TFJob": TFJOBS}[kind]
    slots = asyncio.Semaphore(operator_jobs.CREATORS)

    async def one(index: int) -> None:
        async with slots:
            await client.create(resource, manifest(kind, f"job-{index:03}", namespace))

    await asyncio.gather(*(one(index) for index in range(JOBS)))


async def train_job(plane: Any, namespace: str) -> float:
    """Return the time to the last pod of one TrainJob, behind a small one. Unit: s.

    An operator counts as ready before it has the kinds that a cluster may lack.
    """
    from gangline.api.resources import PODS, TRAINJOBS

    took_s = 0.0
    for name, nodes in (("small", 1), ("large", NODES)):
        job = {
            "apiVersion": TRAINJOBS.api_version,
            "kind": TRAINJOBS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": nodes}},
        }
        size = operator_jobs.Size(1, nodes, 0, 0)
        took_s = await operator_jobs.children_after(
            plane,
            namespace,
            size,
            lambda client, job=job: client.create(TRAINJOBS, job),
            resources=(PODS,),
            count=nodes,
        )
    return took_s


async def sample(kind: str) -> tuple[float, float]:
    """Return the time to the last child and the operator's processor time. Unit: s."""
    from control_plane import free_ports

    from gangline.api.resources import PODS, SERVICES

    namespace = f"bench-{uuid.uuid4().hex[:6]}"
    size = operator_jobs.Size(JOBS, REPLICAS, 0, 0)
    async with control_plane(namespace) as plane:
        port = pair_of_ports(free_ports)
        with operator_process(plane, port) as pid:
            used_s = processor_s(pid)
            if kind == "TrainJob":
                took_s = await train_job(plane, namespace)
            elif kind == "MPIJob":
                took_s = await operator_jobs.children_after(
                    plane, namespace, size, lambda one: operator_jobs.submit_all(one, namespace, size)
                )
            else:
                took_s = await operator_jobs.children_after(
                    plane,
                    namespace,
                    size,
                    lambda one: submit_all(one, kind, namespace),
                    resources=(PODS, SERVICES),
                    count=2 * REPLICAS * JOBS,
                )
            await operator_jobs.until_quiet(port)
            return took_s, processor_s(pid) - used_s


def run(laboratory: Laboratory) -> list[Figure]:
    from control_plane import programs

    if not (programs() / "kube-apiserver").exists():
        print(f"left out: no control plane in {programs()}; `make kubernetes` builds one")
        return []
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in ("MPIJob", *SPECS, "TrainJob")}
    for _ in range(laboratory.rounds):
        for kind, samples in found.items():
            samples.append(asyncio.run(sample(kind)))
    beside_s, beside_used_s = ([one[index] for one in found["MPIJob"]] for index in (0, 1))
    figures = []
    for kind in SPECS:
        took_s, used_s = ([one[index] for one in found[kind]] for index in (0, 1))
        title = f"{JOBS} {kind}s x {REPLICAS} beside MPIJobs: all children"
        figures.append(Figure(title, "s", took_s, beside_s, goal="<= 1.1"))
        figures.append(Figure("- processor time beside MPIJobs", "s", used_s, beside_used_s))
    title = f"one TrainJob of {NODES} nodes: all pods"
    figures.append(Figure(title, "s", [took_s for took_s, _ in found["TrainJob"]], goal="<= 2.0"))
    return figures
