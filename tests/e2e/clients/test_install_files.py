"""The MPI operator's install files, as printed, where the cluster leaves MPIJobs to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.clients

MAIN = {"name": "main", "image": "gangline/base"}
LAUNCHER = {**MAIN, "command": ["mpirun", "-n", "2", "echo", "said"]}
JOB = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "metadata": {"name": "pi"},
    "spec": {
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": {"spec": {"containers": [LAUNCHER]}}},
            "Worker": {"replicas": 2, "template": {"spec": {"containers": [MAIN]}}},
        }
    },
}


@pytest.fixture(scope="module")
def cluster(start_cluster: Any) -> Iterator[Any]:
    with start_cluster("--no-operator") as started:
        yield started


def by_file(cluster: Any, programs: Path) -> None:
    cluster.kubectl(
        "apply", "--server-side", "-f", str(programs / "mpi-operator-files/deploy/v2beta1/mpi-operator.yaml")
    )


def by_folder(cluster: Any, programs: Path) -> None:
    cluster.kubectl(
        "apply", "--server-side", "-k", str(programs / "mpi-operator-files/manifests/overlays/standalone")
    )


def by_kustomize(cluster: Any, programs: Path) -> None:
    folder = str(programs / "mpi-operator-files/manifests/overlays/standalone")
    built = cluster.run(str(programs / "kustomize"), "build", folder)
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=built.stdout)


def test_without_an_operator_the_kind_is_not_there(cluster: Any) -> None:
    assert "mpijobs.kubeflow.org" not in cluster.kubectl("get", "crd")
    assert cluster.gangline("up", "--operator").returncode == 2
    assert "operator  none" in cluster.gangline("status").stdout
    run = cluster.gangline("run", "--", "true")
    assert run.returncode == 2
    assert "the cluster does not serve kubeflow.org/v2beta1 MPIJob" in run.stderr


@pytest.mark.parametrize("install", [by_file, by_folder, by_kustomize])
def test_the_operator_of_the_file_runs_jobs_under_the_rights_of_the_file(
    cluster: Any, programs: Path, install: Callable[[Any, Path], None]
) -> None:
    install(cluster, programs)
    operator = ("-n", "mpi-operator")
    cluster.kubectl(*operator, "rollout", "status", "deployment/mpi-operator", "--timeout=60s")
    assert "mpijobs.kubeflow.org" in cluster.kubectl("get", "crd")

    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(JOB))

    cluster.kubectl("wait", "--for=condition=Succeeded", "mpijob/pi", "--timeout=60s")
    assert cluster.kubectl("logs", "job/pi-launcher").splitlines() == ["said", "said"]
    log = cluster.kubectl(*operator, "logs", "deployment/mpi-operator")
    assert "image mpioperator/mpi-operator is served on this machine by Gangline's own operator" in log
    assert "forbidden" not in log
    cluster.kubectl("delete", "mpijob", "pi")
    cluster.kubectl("delete", "namespace", "mpi-operator", "--timeout=60s")
    cluster.kubectl("delete", "crd", "mpijobs.kubeflow.org")
