"""Published manifests whose images Gangline's own programs serve, as far as they need no torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PUBLISHED = Path(__file__).resolve().parents[3] / "examples" / "published"

VECTOR_ADD = """
apiVersion: v1
kind: Pod
metadata:
  name: cuda-vector-add
spec:
  restartPolicy: OnFailure
  containers:
  - name: cuda-vector-add
    image: docker.io/mirrorgooglecontainers/cuda-vector-add:v0.1
"""

PI = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pi}
spec:
  slotsPerWorker: 1
  runPolicy: {cleanPodPolicy: Running}
  sshAuthMountPath: /home/mpiuser/.ssh
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - image: mpioperator/mpi-pi:openmpi
            name: mpi-launcher
            command: [mpirun, -n, "2", /home/mpiuser/pi]
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - image: mpioperator/mpi-pi:openmpi
            name: mpi-worker
            command: [/usr/sbin/sshd]
            args: [-De, -f, /home/mpiuser/.sshd_config]
"""


def test_vector_add_pod_runs_its_images_command_and_says_where_it_computed(gangline, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(VECTOR_ADD)

    result = gangline("run", str(file))

    assert result.returncode == 0, result.stderr
    assert "[Vector addition of 50000 elements]" in result.stdout
    assert "No GPU that torch can use: added on the CPU" in result.stdout
    assert result.stdout.rstrip().endswith("sum is right on the CPU\nDone")
    assert "cuda-vector-add:v0.1 served by Gangline's own programs" in result.stderr


def test_mpi_operators_example_runs_from_the_path_that_it_names(gangline, tmp_path: Path) -> None:
    file = tmp_path / "pi.yaml"
    file.write_text(PI)

    result = gangline("run", str(file))

    assert result.returncode == 0, result.stderr
    assert "Workers: 2" in result.stdout
    assert "Rank 1 on host pi-worker-1" in result.stdout
    assert "pi is approximately 3.14" in result.stdout


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="this Python has torch")
def test_benchmark_without_torch_is_refused_before_anything_is_created(gangline) -> None:
    result = gangline("run", str(PUBLISHED / "pods" / "horovod.yaml"))

    assert result.returncode == 2
    assert result.stdout == ""
    assert "which need torch, and " in result.stderr
    said = " ".join(result.stderr.split())  # lines are filled
    assert "horovod.yaml:12:12" in said
    assert "pods/horovod.yaml --try" in said
    assert "install it: " in said
    assert "--image horovod/horovod=FOLDER" in said
    assert "horovod" not in gangline("list", "--all-namespaces").stdout
