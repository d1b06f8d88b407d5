"""Pods of an MPIJob and of a PyTorchJob on the one-machine cluster: each rank finds its place."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from launch_ranks import REPOSITORY, SOURCES
from test_launchers import ON_TWO_NODES, SCRIPT, torch_python

pytestmark = [pytest.mark.horovod, pytest.mark.timeout(300)]

Run = Callable[..., str]


@pytest.fixture
def gangline() -> Iterator[Run]:
    """Run a command against a cluster of the test's own, and return what it prints."""
    home = Path(tempfile.mkdtemp(prefix="gangline-pods-"))
    variables = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "gangline", *words]
        done = subprocess.run(
            command,
            env=variables | {"GANGLINE_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        yield run
    finally:
        run("down", "--purge")
        shutil.rmtree(home, ignore_errors=True)


def places(text: str) -> list[list[int]]:
    return sorted(json.loads(found) for found in re.findall(r"place (\[[\d, ]+\])", text))


def pod(name: str, command: list[str], python: str) -> dict[str, Any]:
    """Return a pod's template with this machine's Python, torch and sources in it, as they lie here."""
    overlay = os.environ.get("GANGLINE_HOROVOD_OVERLAY", "")
    folders = [str(REPOSITORY), str(Path(python).parents[1]), overlay, sys.base_prefix]
    volumes = [
        {"name": f"host-{number}", "hostPath": {"path": path}}
        for number, path in enumerate(filter(None, folders))
    ]
    path = os.pathsep.join([*map(str, SOURCES), overlay])
    container = {
        "name": name,
        "image": "gangline/base",
        "command": command,
        "env": [{"name": "PYTHONPATH", "value": path}, {"name": "OMP_NUM_THREADS", "value": "1"}],
        "volumeMounts": [{"name": one["name"], "mountPath": one["hostPath"]["path"]} for one in volumes],
    }
    return {"spec": {"containers": [container], "volumes": volumes}}


def test_pods_of_an_mpijob(gangline: Run, tmp_path: Path) -> None:
    python = torch_python()
    master = ["-x", "MASTER_ADDR=places-worker-0.places.default.svc", "-x", "MASTER_PORT=29500"]
    mpirun = ["mpirun", "-n", "4", *master, "-x", "PYTHONPATH", "-x", "OMP_NUM_THREADS", python, SCRIPT]
    job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "places"},
        "spec": {
            "slotsPerWorker": 2,
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": pod("launcher", mpirun, python)},
                "Worker": {"replicas": 2, "template": pod("worker", [], python)},
            },
        },
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))

    assert places(gangline("run", str(tmp_path / "job.yaml"))) == ON_TWO_NODES


def test_pods_of_a_pytorchjob(gangline: Run, tmp_path: Path) -> None:
    python = torch_python()
    template = pod("pytorch", [python, SCRIPT], python)
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "places"},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "None"},
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "template": template},
                "Worker": {"replicas": 2, "template": template},
            },
        },
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))

    found = places(gangline("run", str(tmp_path / "job.yaml")))
    found += places(gangline("logs", "places", "-i", "worker-0"))
    found += places(gangline("logs", "places", "-i", "worker-1"))
    assert found == [[rank, 3, 0, 1, rank, 3, 3] for rank in range(3)]


def test_ranks_of_gangline_run_on_two_nodes(gangline: Run) -> None:
    python = torch_python()
    overlay = os.environ.get("GANGLINE_HOROVOD_OVERLAY", "")
    path = os.pathsep.join([*map(str, SOURCES), overlay])
    found = gangline(*("run", "-n", "4", "--nodes", "2", "--env", f"PYTHONPATH={path}", "--", python, SCRIPT))
    assert places(found) == ON_TWO_NODES
