"""The scheduler on a real control plane: 100 gangs of 32 pods on 1,000 nodes, beside kube-scheduler.

`gangline scheduler` places the pods as gangs and hands out GPU ids by the wires; kube-scheduler gets the same
pods one by one, without PodGroups, and with its client's limits lifted. The bare loop knows every pod's node
beforehand and binds it as soon as it is there: what the API server can do. etcd, kube-apiserver, the creating
program and the scheduler share the machine, and nothing runs the pods. Each sample has a fresh control plane
and is warmed up with one gang. Pods/s are counted from the first creation's start to the last binding, the
scheduler's processor time until it is idle again, events included.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import Figure
from laboratory import REPOSITORY, Laboratory, processor_s
from operator_jobs import peak_memory_mb
from operator_plane import client_of, until_idle

sys.path.insert(0, str(REPOSITORY / "tests" / "kubernetes"))

GANGS, MEMBERS, NODES = 100, 32, 1000
CREATORS = 48
LIMIT_S = 300.0
POLL_S = 0.05
TOLD_S = 2.0
NAMESPACE = "bench"
LEVELS = "example.com/spine,example.com/block,example.com/rack"
LIFTED = [
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight=0",
    "--max-mutating-requests-inflight=0",
    "--disable-admission-plugins=TaintNodesByCondition",  # nobody is there to remove the taint not-ready
]
OURS, KUBE, BARE = "gangline-scheduler", "default-scheduler", "bare"


@dataclass
class Sample:
    """What one run took."""

    pods_per_s: float = 0.0
    processor_s: float = 0.0
    server_s: float = 0.0
    all_s: float = 0.0
    memory_mb: float = 0.0


@dataclass
class Samples:
    """All of one scheduler."""

    taken: list[Sample] = field(default_factory=list)

    def of(self, name: str) -> list[float]:
        """Return one value of each sample."""
        return [getattr(sample, name) for sample in self.taken]


def node(index: int, *, by_wires: bool) -> dict[str, Any]:
    """Return a ready node with 8 GPUs, in a rack of 20, a block of 5 racks, and a spine of 5 blocks."""
    from gangline.topology import known_machine
    from gangline.topology.annotation import ANNOTATION

    name = f"node-{index:04}"
    machine = known_machine("dgx1-v100")
    assert machine is not None
    topology = machine.annotation([f"GPU-{index:08x}-{gpu}" for gpu in range(8)])
    values = (f"s{index // 500}", f"b{index // 100}", f"r{index // 20}")
    labels = {"kubernetes.io/hostname": name, **dict(zip(LEVELS.split(","), values, strict=True))}
    labels |= {"ack.node.gpu.schedule": "topology"} if by_wires else {}
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {ANNOTATION: json.dumps(topology)}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod(gang: str, index: int, scheduler: str) -> dict[str, Any]:
    """Return a worker as the operator makes it."""
    labels = {
        "scheduling.x-k8s.io/pod-group": gang,
        "training.kubeflow.org/job-name": gang,
        "training.kubeflow.org/job-role": "worker",
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/replica-index": str(index),
    }
    amounts = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{gang}-worker-{index}", "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "schedulerName": KUBE if scheduler == KUBE else OURS,
            "restartPolicy": "Never",
            "hostname": f"{gang}-worker-{index}",
            "subdomain": gang,
            "containers": [
                {
                    "name": "worker",
                    "image": "registry.example.com/train:1",
                    "command": ["/usr/sbin/sshd", "-De"],
                    "env": [{"name": "K_MPI_JOB_ROLE", "value": "worker"}],
                    "resources": {"limits": amounts, "requests": amounts},
                }
            ],
        },
    }


def pod_group(gang: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": gang, "namespace": NAMESPACE},
        "spec": {"minMember": MEMBERS, "scheduleTimeoutSeconds": 0},
    }


@asynccontextmanager
async def cluster(scheduler: str) -> AsyncIterator[Any]:
    """Start a control plane with all nodes, and end it."""
    from control_plane import ControlPlane

    from gangline.api.crds import gang_crds
    from gangline.api.resources import NAMESPACES
    from gangline.api.resources import NODES as NODE_KIND

    with ControlPlane(controllers=False, crds=gang_crds(), apiserver_options=LIFTED) as plane:
        async with client_of(plane) as client:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            await client.create(NAMESPACES, body)
            bodies = [node(index, by_wires=scheduler == OURS) for index in range(NODES)]
            await asyncio.gather(*(client.create(NODE_KIND, body) for body in bodies))
        await until_idle(plane.pids["kube-apiserver"])
        yield plane


@contextlib.contextmanager
def scheduler_process(plane: Any, scheduler: str, release: str = "", gate: str = "") -> Iterator[int]:
    """Run one of the schedulers without limits on its client, and end it; the bare loop has no process."""
    from control_plane import VERSION, free_ports, programs

    if scheduler == OURS:
        command = [sys.executable, "-m", "gangline", "scheduler", "--levels", LEVELS]
    elif scheduler == KUBE:
        (port,) = free_ports(1)
        program = programs(release or VERSION) / "kube-scheduler"
        command = [str(program), "--leader-elect=false", f"--secure-port={port}"]
        command += [f"--feature-gates={gate}=true"] if gate else []
        command += ["--bind-address=127.0.0.1", f"--cert-dir={plane.folder / 'kube-scheduler'}"]
        command += ["--kube-api-qps=10000", "--kube-api-burst=10000"]
    else:
        yield os.getpid()
        return
    command.append(f"--kubeconfig={plane.kubeconfig}")
    with (plane.folder / "scheduler.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield process.pid
        if process.poll() is not None:
            raise SystemExit((plane.folder / "scheduler.log").read_text()[-2000:])
    finally:
        process.terminate()
        process.wait()


async def create_gangs(
    client: Any, gangs: list[str], scheduler: str, then: Callable[[str], Awaitable[None]] | None = None
) -> None:
    """Create gangs in order over 48 connections; `then` follows each pod's creation with its name."""
    from gangline.api.resources import PODS, SCHEDULER_PLUGINS_POD_GROUPS

    pods = PODS.path(NAMESPACE)
    bodies = [
        (gang, json.dumps(pod(gang, index, scheduler)).encode()) for gang in gangs for index in range(MEMBERS)
    ]
    if scheduler == OURS:
        await asyncio.gather(
            *(client.create(SCHEDULER_PLUGINS_POD_GROUPS, pod_group(gang)) for gang in gangs)
        )
    waiting = iter(enumerate(bodies))

    async def worker() -> None:
        for index, (gang, body) in waiting:
            await client.send("POST", pods, body=body)
            if then:
                await then(f"{gang}-worker-{index % MEMBERS}")

    await asyncio.gather(*(worker() for _ in range(CREATORS)))


async def until_bound(client: Any, pid: int) -> None:
    """Wait until no pod is without a node."""
    from gangline.api.resources import PODS

    params = {"fieldSelector": "spec.nodeName=", "limit": 1}  # a longer answer would slow the server down
    deadline_s = time.monotonic() + LIMIT_S
    while (await client.request("GET", PODS.path(NAMESPACE), params=params))["items"]:
        if time.monotonic() > deadline_s:
            raise SystemExit(f"pods are not bound after {LIMIT_S:.0f} s")
        if not Path(f"/proc/{pid}/exe").exists():
            raise SystemExit("the scheduler has ended")
        await asyncio.sleep(POLL_S)


async def until_told(client: Any) -> None:
    """Wait until no more events come: a scheduler that sends them one after another looks idle meanwhile."""
    from gangline.api.resources import EVENTS

    before = -1
    while True:
        page = await client.request("GET", EVENTS.path(NAMESPACE), params={"limit": 1})
        count = len(page["items"]) + page["metadata"].get("remainingItemCount", 0)
        if count == before:
            return
        before = count
        await asyncio.sleep(TOLD_S)


async def take(scheduler: str) -> Sample:
    gangs = [f"gang-{index:03}" for index in range(GANGS)]
    async with cluster(scheduler) as plane, client_of(plane) as client:
        server = plane.pids["kube-apiserver"]
        with scheduler_process(plane, scheduler) as pid:
            then = bind_bare(client) if scheduler == BARE else None
            await create_gangs(client, ["warm-up"], scheduler, then)
            await until_bound(client, pid)
            await until_idle(pid)
            await until_idle(server)
            pids = {pid, os.getpid(), *plane.pids.values()}
            used_s, server_s, started_s = processor_s(pid), processor_s(server), time.perf_counter()
            all_s = sum(map(processor_s, pids))
            await create_gangs(client, gangs, scheduler, then)
            await until_bound(client, pid)
            took_s = time.perf_counter() - started_s
            all_s = sum(map(processor_s, pids)) - all_s
            await until_told(client)
            await until_idle(pid)
            sample = Sample(
                GANGS * MEMBERS / took_s,
                processor_s(pid) - used_s,
                processor_s(server) - server_s,
                all_s,
                peak_memory_mb(pid),
            )
            await check(client, has_gpus=scheduler == OURS)
            return sample


async def check(client: Any, *, has_gpus: bool) -> None:
    """End the benchmark when a node has more pods than GPUs, or a GPU two pods."""
    from gangline.api.core import Pod
    from gangline.api.resources import PODS
    from gangline.placement.snapshot import GPUS_ANNOTATION

    pods = (await client.list_as(PODS, Pod, NAMESPACE)).items
    most = max(Counter(pod.spec.node_name for pod in pods).values())
    given = {pod.metadata.annotations.get(GPUS_ANNOTATION) for pod in pods}
    if len(pods) != (GANGS + 1) * MEMBERS or most > 8 or (has_gpus and len(given) != len(pods)):
        raise SystemExit(f"{len(pods)} pods with {len(given)} sets of GPUs, up to {most} on a node")


def bind_bare(client: Any) -> Callable[[str], Awaitable[None]]:
    """Return what binds a pod at once: 8 of them to each node."""
    from gangline.api.resources import PODS

    count = iter(range(sys.maxsize))

    async def bind(name: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": f"node-{next(count) // 8:04}"}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await client.create_subresource(PODS, name, "binding", body, NAMESPACE)

    return bind


async def measure(rounds: int) -> dict[str, Samples]:
    samples = {name: Samples() for name in (OURS, KUBE, BARE)}
    for _ in range(rounds):
        for name, found in samples.items():
            found.taken.append(await take(name))
            print(name, found.taken[-1], file=sys.stderr, flush=True)
    return samples


def run(laboratory: Laboratory) -> list[Figure]:
    from control_plane import programs

    if not (programs() / "kube-scheduler").exists():
        print(f"left out: no kube-scheduler in {programs()}; `make kubernetes` builds one")
        return []
    os.environ.pop("GANGLINE_HOME", None)
    samples = asyncio.run(measure(laboratory.rounds))
    ours, kube, bare = samples[OURS], samples[KUBE], samples[BARE]
    return [
        Figure("gangs / kube-scheduler", "pods/s", ours.of("pods_per_s"), kube.of("pods_per_s"), goal=">= 2"),
        Figure("gangs / bare loop", "pods/s", ours.of("pods_per_s"), bare.of("pods_per_s")),
        Figure("- processor time of all programs, / bare loop", "s", ours.of("all_s"), bare.of("all_s")),
        Figure("processor time", "s", ours.of("processor_s"), kube.of("processor_s"), goal="<= 0.7"),
        Figure("- of all programs until the last binding", "s", ours.of("all_s"), kube.of("all_s")),
        Figure("- of the API server meanwhile", "s", ours.of("server_s"), kube.of("server_s")),
        Figure("memory, peak", "MB", ours.of("memory_mb"), kube.of("memory_mb")),
    ]
