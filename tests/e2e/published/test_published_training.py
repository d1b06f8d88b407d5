"""The published manifests train: the programs that they name, on torch, with limits for a small machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.train.records import parse_record

# One after the other: each starts a cluster, and NetApp's files take ports of the machine.
pytestmark = [pytest.mark.train, pytest.mark.xdist_group("published")]

IMAGES = ("mpioperator/tensorflow-benchmarks", "horovod/horovod")
LIMITS = "model=lenet,batch_size=2,num_batches=10,num_warmup_batches=1,num_iters=2"
NAMESPACE = "managed-machine-learning"


@pytest.fixture(scope="module")
def cluster(start_cluster: Any, torch_python: str) -> Iterator[Any]:
    images = [word for image in IMAGES for word in ("--image", f"{image}={Path(torch_python).parents[1]}")]
    options = ("--nodes", "2", "--simulate-gpus", "8", "--bench-limits", LIMITS)
    with start_cluster(*options, *images) as started:
        yield started


def without_figures(line: str) -> str:
    return re.sub(r"\d+\.\d+", "X", line)


def test_job_of_the_guide_prints_what_the_guide_shows(cluster: Any) -> None:
    name = cluster.job("v2beta1-benchmarks.yaml")

    log = cluster.launcher_log(name).splitlines()
    limited = (
        "model resnet101 -> lenet, batch_size 64 -> 2, num_batches 100 -> 10, num_warmup_batches 10 -> 1"
    )
    assert log.count(f"Limited by --bench-limits: {limited}") == 2  # of rank 0, before and after
    for line in (
        "Model:       lenet",
        "Mode:        training",
        "Batch size:  4 global",
        "Devices:     ['horovod/cpu:0', 'horovod/cpu:1']",
        "Step\tImg/sec\ttotal_loss",
    ):
        assert log.count(line) == 2, line
    lines = [without_figures(line) for line in log]
    for line in (
        "1\timages/sec: X +/- X (jitter = X)\tX",
        "10\timages/sec: X +/- X (jitter = X)\tX",
        "total images/sec: X",
    ):
        assert lines.count(line) == 2, line
    assert "socket.cpp" not in "\n".join(log)


def test_launcher_that_holds_a_gpu_takes_no_rank(cluster: Any) -> None:
    name = cluster.job("v1alpha2-spare-gpus.yaml")

    log = cluster.launcher_log(name)
    assert len(re.findall(r"^total images/sec: \d+\.\d\d$", log, re.MULTILINE)) == 2
    assert "Batch size:  4 global" in log
    assert "socket.cpp" not in log  # torch names the peers of the other pod


def test_pod_trains_with_horovodrun_on_eight_gpus(cluster: Any, published: Path) -> None:
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("create", "serviceaccount", "tensorflow-sa", "-n", NAMESPACE)
    text = (published / "pods" / "horovod.yaml").read_text().replace("horovod-new_test", "horovod-new-test")
    cluster.kubectl("create", "-f", "-", stdin=text)

    phase = "--for=jsonpath={.status.phase}=Succeeded"
    waited = cluster.try_kubectl("wait", phase, "pod/horovod-new-test", "-n", NAMESPACE, "--timeout=150s")

    log = cluster.kubectl("logs", "horovod-new-test", "-n", NAMESPACE)
    assert waited.returncode == 0, log
    told = [line.removeprefix("[1,0]<stdout>: ") for line in log.splitlines() if "<stdout>" in line]
    records = [record for line in told if (record := parse_record(line))]
    assert [(record["step"], record["steps"]) for record in (records[0], records[-1])] == [(1, 21), (21, 21)]
    told = [line for line in told if parse_record(line) is None]
    limited = "model resnet50 -> lenet, batch_size 32 -> 2, num_iters 10 -> 2, num_warmup_batches 10 -> 1"
    assert [without_figures(line) for line in told] == [
        f"Limited by --bench-limits: {limited}",
        "Model: lenet",
        "Batch size: 2",
        "Number of CPUs: 8",
        "Running warmup...",
        "Running benchmark...",
        "Iter #0: X img/sec per CPU",
        "Iter #1: X img/sec per CPU",
        "Img/sec per CPU: X +-X",
        "Total img/sec on 8 CPU(s): X +-X",
        f"Limited by --bench-limits: {limited}",
    ]
