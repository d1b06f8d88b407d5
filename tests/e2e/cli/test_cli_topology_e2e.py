"""GPUs chosen by their links, from the label on a node to the ring of a gang; with kubectl.

Two nodes with eight simulated V100 each, linked as in a DGX-1. Which quads and pairs of it NVLink joins is in
docs/concepts/topology-model.md.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")

LABEL = "ack.node.gpu.schedule"
INDICES = "topology.kubernetes.io/gpu-group"
HOLD = "mpirun -np {workers} sh -c 'echo rank has $CUDA_VISIBLE_DEVICES; sleep 600'"
WAIT_S = 60.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until a condition gives something true, and return it."""
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for {what}"
        time.sleep(0.1)
    return found


class Topology:
    """The cluster of these tests: our commands, and kubectl."""

    def __init__(self, home: Path) -> None:
        sys.path.insert(0, str(Path(__file__).parent))
        from conftest import Commands

        self.gangline = Commands(home)
        self.kubeconfig = ""

    def kubectl(self, *words: str) -> str:
        done = subprocess.run(
            ["kubectl", "--kubeconfig", self.kubeconfig, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def label(self, node: str, mode: str) -> None:
        """Label a node, and wait for the taint that follows."""
        self.kubectl("label", "node", node, f"{LABEL}={mode}", "--overwrite")
        wanted = [("gangline.dev/gpu-schedule", "NoSchedule")] if mode == "topology" else []

        def is_tainted() -> bool:
            taints = self.get("node", node)["spec"].get("taints") or []
            return [(taint["key"], taint["effect"]) for taint in taints] == wanted

        until(is_tainted, f"the taint of {node}")

    def submit(self, name: str, *flags: str, gpus: int = 1, workers: int = 4) -> None:
        line = ("submit", "mpi", f"--name={name}", f"--gpus={gpus}", f"--workers={workers}", "--gang", *flags)
        done = self.gangline(*line, "--image=gangline/base", HOLD.format(workers=workers))
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"mpijob.kubeflow.org/{name} created\n"

    def pods(self, job: str) -> list[Any]:
        selector = f"training.kubeflow.org/job-name={job}"
        return list(self.get("pods", "-l", selector)["items"])

    def indices(self, job: str, workers: int = 4) -> dict[str, list[int]]:
        """Wait until all workers run, and return which GPUs they have, by node."""

        def running() -> dict[str, list[int]]:
            found: dict[str, list[int]] = {}
            for pod in self.pods(job):
                text = (pod["metadata"].get("annotations") or {}).get(INDICES)
                if text and pod["status"].get("phase") == "Running":
                    found.setdefault(pod["spec"]["nodeName"], []).extend(map(int, text.split(",")))
            done = sum(len(gpus) for gpus in found.values()) == workers
            return {node: sorted(gpus) for node, gpus in found.items()} if done else {}

        return dict(until(running, f"the workers of {job}"))


@pytest.fixture(scope="module")
def topology() -> Iterator[Topology]:
    home = Path(tempfile.mkdtemp(prefix="gangline-topology-"))
    found = Topology(home)
    up = found.gangline("up", "--nodes", "2", "--simulate-gpus", "8", "--gpu-model", "v100-dgx1")
    assert up.returncode == 0, up.stderr
    found.kubeconfig = found.gangline("kubeconfig", "--path").stdout.strip()
    yield found
    found.gangline("down", "--purge")
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def cluster(topology: Topology) -> Iterator[Topology]:
    """The cluster without jobs or labels of other tests."""
    yield topology
    topology.gangline("delete", "--all")
    for node in ("node-0", "node-1"):
        topology.kubectl("label", "node", node, f"{LABEL}-")


def hold(cluster: Topology, *gpus: int) -> None:
    """Have pods hold these GPUs of node-0; all of node-1 is cordoned off."""
    cluster.kubectl("cordon", "node-1")
    for gpu in gpus:
        share = json.dumps({"main": [f"GPU-simulated-node-0-{gpu}"]})
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"hold-{gpu}", "annotations": {"gangline.dev/gpus": share}},
            "spec": {
                "nodeName": "node-0",
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "main",
                        "image": "gangline/base",
                        "command": ["sleep", "600"],
                        "resources": {"limits": {"nvidia.com/gpu": "1"}},
                    }
                ],
            },
        }
        subprocess.run(
            ["kubectl", "--kubeconfig", cluster.kubeconfig, "create", "-f", "-"],
            input=json.dumps(pod),
            text=True,
            check=True,
            capture_output=True,
            timeout=60,
        )


def let_go(cluster: Topology, *gpus: int) -> None:
    cluster.kubectl("delete", "pod", *(f"hold-{gpu}" for gpu in gpus))
    cluster.kubectl("uncordon", "node-1")


def test_a_gang_gets_the_fastest_ring_by_the_wires_and_the_lowest_ids_without(cluster: Topology) -> None:
    hold(cluster, 0)
    cluster.label("node-0", "topology")
    cluster.submit("wires", "--gputopology=true")
    # GPU 0 is taken, so that of the two quads that NVLink joins wholly only 4 to 7 is free.
    assert cluster.indices("wires") == {"node-0": [4, 5, 6, 7]}

    got = cluster.gangline("get", "wires", "--type", "mpijob", "-g").stdout
    assert "Status:     RUNNING" in got
    assert got.count("wires-worker-") == 8
    assert "Allocated/Requested GPUs of Job: 4/4" in got

    def told() -> list[str]:
        lines = cluster.gangline("logs", "wires").stdout.splitlines()
        return lines if len(lines) == 4 else []

    gpus = sorted(line.split()[-1] for line in until(told, "what the four ranks print"))
    assert gpus == [f"GPU-simulated-node-0-{gpu}" for gpu in (4, 5, 6, 7)]
    placement = json.loads(cluster.gangline("explain", "wires", "--placement", "-o", "json").stdout)
    chosen, naive = placement["placement"]["chosen"], placement["placement"]["naive"]
    assert chosen["busGBPerSecond"] == 80.0  # three rings of NVLink
    assert naive["nodes"][0]["ring"] != chosen["nodes"][0]["ring"]
    assert naive["busGBPerSecond"] < 80.0
    assert cluster.gangline("delete", "wires").returncode == 0

    cluster.label("node-0", "default")
    cluster.submit("lowest")
    assert cluster.indices("lowest") == {"node-0": [1, 2, 3, 4]}
    let_go(cluster, 0)


def test_a_gang_that_fits_in_part_waits_as_a_whole_and_says_why(cluster: Topology) -> None:
    hold(cluster, 0, 1, 2, 3, 4, 5)
    cluster.label("node-0", "topology")
    cluster.submit("whole", "--gputopology=true")

    def reason() -> str:
        groups = cluster.get("podgroups.scheduling.x-k8s.io")["items"]
        conditions = next((group.get("status") or {} for group in groups), {}).get("conditions") or []
        return next((one["message"] for one in conditions if one["type"] == "Unschedulable"), "")

    shortfall = "needs room for 4 pods of 1 simulated nvidia.com/gpu at once; there is room for 2"
    until(lambda: reason().startswith(f"{shortfall}; fits "), f"a PodGroup that says {shortfall}")
    pods = until(lambda: [pods for pods in [cluster.pods("whole")] if len(pods) == 5], "five pods")[0]
    assert not [pod for pod in pods if pod["spec"].get("nodeName")]
    assert "PENDING" in cluster.gangline("list").stdout
    said = " ".join(cluster.gangline("explain", "whole").stdout.split())
    assert "mpijob default/whole waits: NoRoom" in said
    assert f"why {shortfall}" in said
    assert "or with 2 workers instead of 4" in said
    shown = cluster.gangline("top", "node").stdout
    assert "Allocated/Total simulated GPUs In Cluster:\n6/16 (37.5%)" in shown

    let_go(cluster, 0, 1, 2, 3, 4, 5)
    assert {node: len(gpus) for node, gpus in cluster.indices("whole").items()} == {"node-0": 4}


def test_a_gang_leaves_a_gpu_that_turns_unhealthy_and_the_fault_outlives_the_agent(cluster: Topology) -> None:
    cluster.label("node-0", "topology")
    cluster.submit("moved", "--gputopology=true")
    first = cluster.indices("moved")["node-0"]
    before = {pod["metadata"]["uid"] for pod in cluster.pods("moved")}

    done = cluster.gangline("node", "set-gpu", "node-0", str(first[0]), "unhealthy")

    assert done.stdout == f"GPU {first[0]} of node-0 is unhealthy: 7 of 8 simulated GPUs can be used\n"
    assert cluster.get("node", "node-0")["status"]["allocatable"]["nvidia.com/gpu"] == "7"

    def is_anew() -> bool:
        pods = cluster.pods("moved")
        return len(pods) == 5 and before.isdisjoint({pod["metadata"]["uid"] for pod in pods})

    until(is_anew, "new pods of the whole gang")
    assert first[0] not in cluster.indices("moved")["node-0"]

    status = json.loads(cluster.gangline("status", "-o", "json").stdout)
    agent = status["processes"]["agent"]["pid"]
    subprocess.run(["kill", "-9", str(agent)], check=True)

    def is_back() -> bool:
        now = json.loads(cluster.gangline("status", "-o", "json").stdout)["processes"]["agent"]
        return bool(now["state"] == "held" and now["pid"] != agent)

    until(is_back, "the node agent")
    assert cluster.get("node", "node-0")["status"]["allocatable"]["nvidia.com/gpu"] == "7"
    assert cluster.gangline("node", "set-gpu", "node-0", str(first[0]), "healthy").returncode == 0
    assert cluster.get("node", "node-0")["status"]["allocatable"]["nvidia.com/gpu"] == "8"


def test_wrong_use_names_what_there_is(cluster: Topology) -> None:
    no_node = cluster.gangline("node", "set-gpu", "node-9", "0", "unhealthy")
    no_gpu = cluster.gangline("node", "set-gpu", "node-0", "9", "unhealthy")
    no_job = cluster.gangline("explain", "nothing")

    assert (no_node.returncode, no_gpu.returncode, no_job.returncode) == (2, 2, 2)
    assert "there is no node `node-9`" in no_node.stderr
    assert "node `node-0` has no GPU 9: it has 8 simulated GPUs, 0 to 7" in no_gpu.stderr
    assert "no job `nothing`" in no_job.stderr
