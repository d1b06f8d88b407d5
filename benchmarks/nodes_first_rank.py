"""Real nodes: from a two-pod MPIJob to the first rank's line, with kubelets, containers, DNS and ssh.

Two nodes on this machine, each with its own containerd; Open MPI 5 from an image that is on both. The time is
from the creation of the MPIJob until the launcher's log shows the line of a rank. Where ``OPERATOR_COMMAND``
starts another operator, that one is the bare tool: on the same nodes, in turns. Needs root, and what
``make test-nodes`` needs.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from figures import Figure
from laboratory import REPOSITORY, Laboratory

sys.path[:0] = [str(REPOSITORY / folder) for folder in ("tests/kubernetes", "tests/images", "tools/images")]

GOAL_S = 1.75
LIMIT_S = 60.0
RANKS = {
    "a shell": ["sh", "-c", "echo Rank $OMPI_COMM_WORLD_RANK on $(hostname)"],
    "Python with mpi4py": ["python3", "/opt/pi.py"],
}
"""What a rank runs: a shell shows what starting it costs, the other also its own start and MPI's."""
_POLL_S = 0.01


def manifest(name: str, namespace: str, image: str, rank: list[str]) -> dict[str, Any]:
    """Return the published example's shape: one launcher, two workers, one rank each.

    The host list is named: an operator that knows Open MPI 4 alone would start both ranks in the launcher.
    """
    command = ["mpirun", "--allow-run-as-root", "--hostfile", "/etc/mpi/hostfile", "-n", "2"]
    command += rank
    launcher = {"name": "launcher", "image": image, "command": command}
    worker = {"containers": [{"name": "worker", "image": image}], "terminationGracePeriodSeconds": 0}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {
                "Launcher": {"template": {"spec": {"containers": [launcher]}}},
                "Worker": {"replicas": 2, "template": {"spec": worker}},
            },
        },
    }


class Operator:
    """An operator that looks at a namespace of its own."""

    def __init__(self, command: list[str], nodes: Any, folder: Path) -> None:
        self.namespace = f"bench-{uuid.uuid4().hex[:8]}"
        self._command = [*command, "--kubeConfig", str(nodes.kubeconfig), "--namespace", self.namespace]
        self._command += ["--lock-namespace", self.namespace]
        self._log = folder / f"{self.namespace}.log"
        self._environment = os.environ | {"KUBECONFIG": str(nodes.kubeconfig)}

    def start(self) -> subprocess.Popen[bytes]:
        """Start it; its namespace must exist."""
        with self._log.open("wb") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)


async def first_line_after(client: Any, namespace: str, image: str, rank: list[str]) -> float:
    """Run a job to its end and return when the first rank's line was there. Unit: s."""
    from gangline.api.resources import MPIJOBS

    name = f"pi-{uuid.uuid4().hex[:6]}"
    started_s = time.perf_counter()
    await client.create(MPIJOBS, manifest(name, namespace, image, rank))
    async with asyncio.timeout(LIMIT_S):
        took_s = await _first_line(client, namespace, name) - started_s
        while not (await client.get(MPIJOBS, name, namespace))["status"].get("completionTime"):
            await asyncio.sleep(_POLL_S)
    await client.delete(MPIJOBS, name, namespace)
    return took_s


async def _first_line(client: Any, namespace: str, name: str) -> float:
    """Return when a line of a rank was in the launcher's log. Asking again and again would take processor."""
    from gangline.kube.errors import ApiError

    while True:
        pod = await _running_launcher(client, namespace, name)
        text = b""
        try:
            async for piece in client.logs(pod, namespace, follow=True):
                text += piece
                if b"Rank " in text:
                    return time.perf_counter()
        except ApiError:  # the container has been started again
            pass
        await asyncio.sleep(_POLL_S)


async def _running_launcher(client: Any, namespace: str, name: str) -> str:
    """Wait for a launcher's container that runs or has ended, and return its pod's name."""
    from gangline.api.resources import PODS

    selector = f"training.kubeflow.org/job-name={name},training.kubeflow.org/job-role=launcher"
    pods = await client.list(PODS, namespace, label_selector=selector)
    for pod in pods.items:
        if _has_started(pod):
            return str(pod["metadata"]["name"])
    options = {"label_selector": selector, "resource_version": pods.resource_version}
    async for event in client.watch(PODS, namespace, **options):
        if _has_started(pod := json.loads(event.object)):
            return str(pod["metadata"]["name"])
    return await _running_launcher(client, namespace, name)


def _has_started(pod: dict[str, Any]) -> bool:
    states = (one.get("state") or {} for one in pod.get("status", {}).get("containerStatuses") or [])
    return any("running" in state or "terminated" in state for state in states)


async def measure(laboratory: Laboratory, nodes: Any, image: str) -> dict[str, list[list[float]]]:
    """Return, by what a rank runs, our samples and the other operator's.

    They are taken in turns, after one round for the caches.
    """
    from gangline.api.resources import NAMESPACES
    from gangline.kube.client import Client
    from gangline.kube.config import load_kubeconfig

    commands = [[sys.executable, "-m", "gangline", "operator"]]
    if other := os.environ.get("OPERATOR_COMMAND"):
        commands.append(shlex.split(other))
    samples: dict[str, list[list[float]]] = {name: [[] for _ in commands] for name in RANKS}
    operators = [Operator(command, nodes, laboratory.home) for command in commands]
    processes = []
    async with Client(load_kubeconfig(nodes.kubeconfig), user_agent="benchmark") as client:
        try:
            for operator in operators:
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": operator.namespace}}
                await client.create(NAMESPACES, body)
                processes.append(operator.start())
            for turn in range(laboratory.rounds + 1):
                for name, rank in RANKS.items():
                    for operator, taken in zip(operators, samples[name], strict=True):
                        took_s = await first_line_after(client, operator.namespace, image, rank)
                        if turn:
                            taken.append(took_s)
        finally:
            for process in processes:
                process.terminate()
                process.wait()
    return samples


def run(laboratory: Laboratory) -> list[Figure]:
    from control_plane import NotBuilt
    from debian import CannotMake
    from mpi_images import image_name, mpi_image
    from nodes import Nodes

    from gangline.api.crds import crds

    try:
        image = mpi_image("openmpi")
        nodes = Nodes(images=[image], crds=crds())
        nodes.start()
    except (CannotMake, NotBuilt) as error:
        print(f"left out: {error}")
        return []
    try:
        samples = asyncio.run(measure(laboratory, nodes, image_name("openmpi")))
    finally:
        nodes.stop()
    figures = []
    for name, (ours, *others) in samples.items():
        goal = f"<= {GOAL_S}" if name == "a shell" else ""
        figures.append(Figure(f"first rank's line of a two-pod MPIJob: {name}", "s", ours, goal=goal))
        figures += [Figure("- beside OPERATOR_COMMAND", "s", ours, other) for other in others]
    return figures
