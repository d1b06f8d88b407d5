"""The MPI operator's example for Intel MPI, as it is, with Intel MPI from an environment of the user's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.mpi


def test_example_for_intel_mpi_estimates_pi_in_two_pods_that_are_not_root(start_cluster: Any) -> None:
    folder = os.environ.get("GANGLINE_MPI_ENVIRONMENTS")
    if not folder:
        pytest.skip("GANGLINE_MPI_ENVIRONMENTS is not set: run `make test-mpi`")
    image = f"mpioperator/mpi-pi={Path(folder, 'intel-mpi')}"

    with start_cluster("--nodes", "2", "--image", image) as cluster:
        name = cluster.job("v2beta1-pi-intel.yaml")

        log = cluster.launcher_log(name).splitlines()
        (launcher,) = cluster.get("pods", "-l", "training.kubeflow.org/job-role=launcher")["items"]
        (container,) = launcher["spec"]["containers"]
        variables = {variable["name"]: variable.get("value") for variable in container["env"]}

    # Hydra passes on what each host prints as it comes: only lines of the same rank keep their order.
    of_rank_1 = "Rank 1 on host pi-worker-1"
    of_rank_0 = [line for line in log if line != of_rank_1]
    assert of_rank_1 in log
    assert of_rank_0[:2] == ["Workers: 2", "Rank 0 on host pi-worker-0"]
    assert of_rank_0[2].startswith("pi is approximately 3.14")
    assert variables["I_MPI_HYDRA_HOST_FILE"] == "/etc/mpi/hostfile"
    assert launcher["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
