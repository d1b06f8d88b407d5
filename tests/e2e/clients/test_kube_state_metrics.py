"""The operator's metrics beside those of kube-state-metrics: how a job's row finds its launcher's pod.

The label `launcher` is the name of the launcher's Job, as it is with the MPI operator v0.6.0, whose document
speaks of the pod. Pods of a Job have names with a random end: the join goes by the pod's owner.
"""

from __future__ import annotations

import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.clients

LIMIT_S = 60
MAIN = {"name": "main", "image": "gangline/base", "command": ["true"]}
JOB = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "metadata": {"name": "pi"},
    "spec": {"mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": {"spec": {"containers": [MAIN]}}}}},
}
# kube_pod_owner{namespace="default",pod="pi-launcher-x2x4b",uid="…",owner_kind="Job",…} 1
ROW = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


@pytest.fixture(scope="module")
def cluster(start_cluster: Any) -> Iterator[Any]:
    with start_cluster() as started:
        yield started


def test_a_jobs_row_finds_its_launchers_pod_by_the_pods_owner(cluster: Any, programs: Path) -> None:
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(JOB))
    cluster.kubectl("wait", "--for=condition=Succeeded", "mpijob/pi", "--timeout=60s")
    pod = cluster.get("pods", "-l", "training.kubeflow.org/job-name=pi")["items"][0]["metadata"]["name"]
    kubeconfig = cluster.gangline("kubeconfig", "--path").stdout.strip()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    exporter = subprocess.Popen(
        [
            *(programs / "kube-state-metrics", f"--kubeconfig={kubeconfig}", "--resources=pods,jobs"),
            *("--host=127.0.0.1", f"--port={port}", "--telemetry-host=127.0.0.1", "--telemetry-port=0"),
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        owners = rows_when(port, "kube_pod_owner", lambda row: row["pod"] == pod)
    finally:
        exporter.kill()
        exporter.wait()
    infos = rows(cluster.kubectl("get", "--raw", "/metrics"), "mpi_operator_job_info")

    found = [
        owner["pod"]
        for info in infos
        for owner in owners
        if (owner["namespace"], owner["owner_name"]) == (info["namespace"], info["launcher"])
    ]

    assert found == [pod]


def rows(text: str, metric: str) -> list[dict[str, str]]:
    return [dict(LABEL.findall(labels)) for name, labels, _ in ROW.findall(text) if name == metric]


def rows_when(port: int, metric: str, is_there: Callable[[dict[str, str]], bool]) -> list[dict[str, str]]:
    """Return the rows of a metric as soon as one of them is there."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            found = rows(answer.read().decode(), metric)
            if any(is_there(row) for row in found):
                return found
        time.sleep(0.1)
    raise AssertionError(f"no row of {metric} within {LIMIT_S} s")
