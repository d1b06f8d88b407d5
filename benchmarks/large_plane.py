"""A real control plane that is full: 10,000 nodes and tens of thousands of pods that run on them.

One node and one pod are made through the API server, the pod with the status of a kubelet that has started
it. The others are what the server has stored of these two in etcd, under other names: the server lists them
as any other, and 80,000 of them are there in half a minute.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from figures import Figure, elapsed_s
from laboratory import REPOSITORY, Laboratory
from operator_plane import client_of, until_idle
from scheduler_binding import LIFTED, NAMESPACE

sys.path.insert(0, str(REPOSITORY / "tests" / "kubernetes"))

LEVELS = ("example.com/spine", "example.com/block", "example.com/rack")
RACK, BLOCK, SPINE = 20, 500, 2500
"""Nodes of a domain of each level."""

PUTS = 100
"""Objects in one transaction of etcd, whose limit is 128."""

MEMBERS = 32
"""Pods of a job that runs."""

PORT = 18491
READY_S = 300
"""A scheduler has listed 80,000 pods by then."""

WAITING = "waits"
"""A gang of 64 pods for which there is no room."""


def wire_node() -> dict[str, Any]:
    """Return a node as its kubelet reports it; what differs from node to node has a mark of its length."""
    from gangline.topology import known_machine
    from gangline.topology.annotation import ANNOTATION

    machine = known_machine("dgx1-v100")
    assert machine is not None
    topology = machine.annotation([f"GPU-NNNNN-{gpu}" for gpu in range(8)])
    labels = dict(zip(LEVELS, ("sSSS", "bBBBB", "rRRRR"), strict=True))
    labels |= {
        "kubernetes.io/hostname": "node-NNNNN".lower(),
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "p3.16xlarge",
        "ack.node.gpu.schedule": "topology",
    }
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
    conditions = [
        {"type": kind, "status": status, "reason": reason, "message": f"kubelet has {reason}"}
        | dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), "2026-01-01T10:00:00Z")
        for kind, status, reason in (
            ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            ("PIDPressure", "False", "KubeletHasSufficientPID"),
            ("Ready", "True", "KubeletReady"),
        )
    ]
    images = [
        {"names": [f"registry.example.com/image-{number}@sha256:{number:064x}"], "sizeBytes": 1 << 30}
        for number in range(10)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "node-nnnnn",
            "labels": labels,
            "annotations": {ANNOTATION: json.dumps(topology)},
        },
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions, "images": images},
    }


def wire_pod(job: str, rank: str, *, node: str = "") -> dict[str, Any]:
    """Return a worker as the operator makes it."""
    from scheduler_binding import OURS, pod

    from gangline.workloads.gpus import ANNOTATION as GPUS_ANNOTATION

    found = pod(job, 0, OURS)
    meta, spec = found["metadata"], found["spec"]
    meta["name"] = spec["hostname"] = f"{job}-worker-{rank}"
    meta["labels"]["training.kubeflow.org/replica-index"] = rank
    meta["ownerReferences"] = [
        {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "name": job,
            "uid": "0a4d2c7e-5b1f-4a52-9d0c-111111111111",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    spec["volumes"] = [{"name": "ssh-auth", "secret": {"secretName": f"{job}-ssh", "defaultMode": 0o600}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "ssh-auth", "mountPath": "/root/.ssh"}]
    if node:
        meta["annotations"] = {GPUS_ANNOTATION: json.dumps({"worker": [f"GPU-NNNNN-{rank[-1]}"]})}
        spec["nodeName"] = node
    return found


def running_status() -> dict[str, Any]:
    """Return the status that a kubelet writes of a pod that runs."""
    at = "2026-01-01T11:00:00Z"
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "startTime": at,
        "hostIP": "10.1.2.3",
        "podIP": "10.1.2.4",
        "podIPs": [{"ip": "10.1.2.4"}],
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": at} for kind in kinds],
        "containerStatuses": [
            {
                "name": "worker",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "image": "registry.example.com/train:1",
                "imageID": f"registry.example.com/train@sha256:{7:064x}",
                "containerID": f"containerd://{7:064x}",
                "state": {"running": {"startedAt": at}},
            }
        ],
    }


class _Etcd:
    """The store behind an API server, over its JSON gateway."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, key: str) -> bytes:
        found = self._ask("range", {"key": _text(key.encode())})["kvs"]
        return base64.b64decode(found[0]["value"])

    def put(self, entries: list[tuple[str, bytes]]) -> None:
        puts = [{"requestPut": {"key": _text(key.encode()), "value": _text(value)}} for key, value in entries]
        self._ask("txn", {"success": puts})

    def _ask(self, what: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(f"{self._address}/v3/kv/{what}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _written(stored: bytes, marks: dict[bytes, str]) -> bytes:
    """Return a stored object with other words in the place of marks, each of its length."""
    for mark, word in marks.items():
        assert len(mark) == len(word), (mark, word)
        stored = stored.replace(mark, word.encode())
    return stored


def _nodes(stored: bytes, uid: str, nodes: int) -> Iterator[tuple[str, bytes]]:
    for index in range(nodes):
        marks = {
            b"nnnnn": f"{index:05}",
            b"NNNNN": f"{index:05}",
            b"sSSS": f"s{index // SPINE:03}",
            b"bBBBB": f"b{index // BLOCK:04}",
            b"rRRRR": f"r{index // RACK:04}",
            uid.encode(): f"{index:08x}-0000-4000-8000-{index:012x}",
        }
        yield f"/registry/minions/node-{index:05}", _written(stored, marks)


def _pods(stored: bytes, uid: str, pods: int, a_node: int) -> Iterator[tuple[str, bytes]]:
    for index in range(pods):
        job, rank, node = f"{index // MEMBERS:05}", f"{index % MEMBERS:02}", index // a_node
        marks = {
            b"job-jjjjj": f"job-{job}",
            b"ww": rank,
            b"nnnnn": f"{node:05}",
            b"NNNNN-w": f"{node:05}-{index % a_node % 8}",
            uid.encode(): f"{index:08x}-1111-4000-8000-{index:012x}",
        }
        yield f"/registry/pods/{NAMESPACE}/job-{job}-worker-{rank}", _written(stored, marks)


async def fill(plane: Any, *, nodes: int, pods: int, a_node: int) -> None:
    """Fill a control plane.

    Args:
        plane: that is empty.
        nodes: how many.
        pods: that run, of jobs of 32.
        a_node: pods on each node.
    """
    from gangline.api.resources import NAMESPACES, NODES, PODS, SCHEDULER_PLUGINS_POD_GROUPS

    etcd = _Etcd(plane.etcd)
    async with client_of(plane) as client:
        await client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
        node = await client.create(NODES, wire_node())
        pod = await client.create(PODS, wire_pod("job-jjjjj", "ww", node="node-nnnnn"))
        name = pod["metadata"]["name"]
        await client.patch(
            PODS, name, {"status": running_status()}, NAMESPACE, kind="strategic", subresource="status"
        )
        stored_node = etcd.get("/registry/minions/node-nnnnn")
        stored_pod = etcd.get(f"/registry/pods/{NAMESPACE}/{name}")
        await client.delete(PODS, name, NAMESPACE, grace_period_s=0)
        await client.delete(NODES, "node-nnnnn")
        entries = [
            *_nodes(stored_node, node["metadata"]["uid"], nodes),
            *_pods(stored_pod, pod["metadata"]["uid"], pods, a_node),
        ]
        for start in range(0, len(entries), PUTS):
            await asyncio.to_thread(etcd.put, entries[start : start + PUTS])
        group = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": WAITING, "namespace": NAMESPACE},
            "spec": {"minMember": 64},
        }
        await client.create(SCHEDULER_PLUGINS_POD_GROUPS, group)
        for rank in range(64):
            await client.create(PODS, wire_pod(WAITING, f"{rank:02}"))
        await until_idle(plane.pids["kube-apiserver"])


@asynccontextmanager
async def large_plane(*, nodes: int = 10_000, pods: int = 80_000, a_node: int = 8) -> AsyncIterator[Any]:
    """Start a control plane, fill it, and end it; see :func:`fill`."""
    from control_plane import ControlPlane

    from gangline.api.crds import gang_crds

    with ControlPlane(controllers=False, crds=gang_crds(), apiserver_options=LIFTED) as plane:
        await fill(plane, nodes=nodes, pods=pods, a_node=a_node)
        yield plane


def run(laboratory: Laboratory) -> list[Figure]:
    return asyncio.run(_measured(laboratory))


async def _measured(laboratory: Laboratory) -> list[Figure]:
    """Return how long the command takes, by the scheduler's answer and by all pods, and what that holds."""
    with tempfile.TemporaryDirectory() as compiled:
        return await _on_plane(laboratory, compiled)


async def _on_plane(laboratory: Laboratory, compiled: str) -> list[Figure]:
    async with large_plane() as plane:
        line = [sys.executable, "-m", "gangline"]
        place = ["--kubeconfig", str(plane.kubeconfig)]
        options = ["--leader-elect", "--lock-namespace", NAMESPACE, "--metrics-port", str(PORT)]
        words = [*line, "scheduler", *place, *options, "--levels", ",".join(LEVELS)]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as scheduler:
            try:
                command = [*line, "explain", WAITING, "-n", NAMESPACE, *place]
                asked = partial(explained, command, compiled)
                await asyncio.to_thread(until, lambda: "as seen by" in asked())
                said_s = [elapsed_s(asked) for _ in range(laboratory.rounds)]
                read_s = [elapsed_s(partial(asked, "--placement"))]
                held = memory_mib(scheduler.pid)
            finally:
                scheduler.terminate()
    return [
        Figure("explain at 10,000 nodes and 80,000 pods", "s", said_s, goal="<= 1"),
        Figure("- by reading all of them", "s", read_s),
        Figure("peak memory of the scheduler that knows them", "MiB", [held]),
    ]


def explained(words: list[str], compiled: str, *more: str) -> str:
    """Return what the command says, with its byte code at hand, as an installed one has it."""
    there = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    there["PYTHONPYCACHEPREFIX"] = compiled
    return subprocess.run([*words, *more], env=there, capture_output=True, text=True, check=True).stdout


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise SystemExit(f"no scheduler answered within {READY_S} s")


def memory_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmHWM")) / 1024


async def _hold() -> None:
    async with large_plane() as plane:
        print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_hold())
