"""Alibaba's guide to GPUs chosen by their links: its lines with kubectl and `arena`.

As printed but for the names of nodes.

GPUs are simulated here, and the cells of `arena get` and `arena list` say so; all else has arena's layout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NAME = "tensorflow-topo-4-vgg16"
IMAGE = "registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/tensorflow-benchmark"
PROGRAM = "/tensorflow/benchmarks/scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py"
COMMAND = (
    "mpirun --allow-run-as-root -np 4 -bind-to none -map-by slot -x NCCL_DEBUG=INFO "
    "-x NCCL_SOCKET_IFNAME=eth0 -x LD_LIBRARY_PATH -x PATH --mca pml ob1 "
    "--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 "
    "--mca orte_keep_fqdn_hostnames t --mca btl ^openib "
    f"python {PROGRAM} --model=vgg16 --batch_size=64 --variable_update=horovod"
)
SUBMIT = (
    *("submit", "mpi", f"--name={NAME}", "--gpus=1", "--workers=4", "--gang"),
    f"--image={IMAGE}:tf2.3.0-py3.7-cuda10.1",
)
SECONDS = r"\d+s"


@pytest.fixture(scope="module")
def cluster(start_cluster: Any, saying_python: Path) -> Iterator[Any]:
    with start_cluster(
        "--nodes", "2", "--simulate-gpus", "8", "--image", f"{IMAGE}={saying_python}"
    ) as started:
        yield started


def test_a_node_is_switched_to_topology_and_back(cluster: Any) -> None:
    label = ("label", "node", "node-1")

    assert cluster.kubectl(*label, "ack.node.gpu.schedule=topology") == "node/node-1 labeled\n"
    assert modes(cluster) == {"node-0": "exclusive", "node-1": "topology"}
    assert cluster.kubectl(*label, "ack.node.gpu.schedule=default", "--overwrite") == "node/node-1 labeled\n"
    assert modes(cluster) == {"node-0": "exclusive", "node-1": "exclusive"}


def modes(cluster: Any) -> dict[str, str]:
    lines = cluster.arena("top", "node").stdout.split("\n\n")[0].splitlines()
    rows = [line.split() for line in lines if line.startswith("node-")]
    has_modes = "GPU(Mode)" in lines[0]
    return {row[0]: row[-1] if has_modes else "exclusive" for row in rows}


def test_the_job_is_submitted_shown_followed_and_deleted(
    cluster: Any, said: Callable[[str], dict[int, tuple[int, str, str, str]]]
) -> None:
    cluster.kubectl("label", "node", "node-0", "ack.node.gpu.schedule=topology")

    done = cluster.arena(*SUBMIT, "--gputopology=true", COMMAND)

    assert done.stdout == f"mpijob.kubeflow.org/{NAME} created\n"
    assert done.stderr.splitlines()[-2:] == [
        f"The job {NAME} has been submitted successfully",
        f"You can run `arena get {NAME} --type mpijob -n default` to check the job status",
    ]
    ranks = said(cluster.arena("logs", "-f", NAME).stdout)
    assert {rank: (size, host) for rank, (size, host, _, _) in ranks.items()} == {
        rank: (4, f"{NAME}-worker-{rank}") for rank in range(4)
    }
    assert len({gpus for _, _, gpus, _ in ranks.values()}) == 4
    assert {words.split()[0] for *_, words in ranks.values()} == {PROGRAM}
    cluster.kubectl("wait", "--for=condition=Succeeded", f"mpijob/{NAME}", "--timeout=60s")
    shown = cluster.arena("get", NAME, "--type", "mpijob").stdout
    assert re.fullmatch(
        rf"Name:        {NAME}\nStatus:      SUCCEEDED\nNamespace:   default\n"
        rf"Priority:    N/A\nTrainer:     MPIJOB\nDuration:    {SECONDS}\n"
        r"CreateTime:  .*\nEndTime:     .*\n\nInstances:\n"
        r"  NAME +STATUS +AGE  IS_CHIEF  GPU\(Requested\)  NODE\n"
        r"  ---- +------ +---  --------  --------------  ----\n"
        rf"  {NAME}-launcher-\w+  Completed  {SECONDS} +true      0               node-0\n",
        shown,
    ), shown
    listed = cluster.arena("list").stdout.splitlines()
    assert listed[0].split() == "NAME STATUS TRAINER DURATION GPU(Requested) GPU(Allocated) NODE".split()
    assert re.fullmatch(rf"{NAME}  SUCCEEDED  MPIJOB +{SECONDS} +4 simulated +N/A +node-0", listed[1])
    assert cluster.arena("delete", NAME).returncode == 0
    assert "no jobs" in cluster.arena("list").stderr


def test_the_job_without_topology_runs_after_the_node_is_switched_back(cluster: Any) -> None:
    name = "tensorflow-4-vgg16"
    cluster.kubectl("label", "node", "node-0", "ack.node.gpu.schedule=default", "--overwrite")

    cluster.arena(*(word.replace(NAME, name) for word in SUBMIT), COMMAND)

    cluster.kubectl("wait", "--for=condition=Succeeded", f"mpijob/{name}", "--timeout=60s")
    assert "Status:      SUCCEEDED\n" in cluster.arena("get", name, "--type", "mpijob").stdout


def test_a_gang_that_does_not_fit_waits_whole(cluster: Any) -> None:
    name = "too-many"
    words = [word.replace(NAME, name).replace("--workers=4", "--workers=17") for word in SUBMIT]

    cluster.arena(*words, "mpirun -np 17 true")

    cluster.kubectl("wait", "--for=condition=Created", f"mpijob/{name}", "--timeout=60s")
    pods = cluster.get("pods", "-l", f"training.kubeflow.org/job-name={name}")["items"]
    assert {pod["status"]["phase"] for pod in pods} <= {"Pending"}
    assert "Status:      PENDING\n" in cluster.arena("get", name).stdout
    cluster.arena("delete", name)


def test_the_program_arena_has_the_commands_of_arena_alone(cluster: Any) -> None:
    done = cluster.arena("up")

    assert done.returncode == 2
    assert "gangline up" in done.stderr
