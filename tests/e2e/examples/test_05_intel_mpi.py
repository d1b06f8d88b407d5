"""examples/05-intel-mpi: Intel MPI from an environment of the user's own, in a command and in a manifest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RIGHT = "all-reduce of 1000000 elements is right on 4 ranks with Intel(R) MPI Library"


def hosts(output: str) -> list[str]:
    return [host for _, host in sorted(re.findall(r"rank (\d) of 4 on (\S+)", output))]


def test_script_is_the_one_of_the_example_before(examples: Path) -> None:
    first, second = (examples / folder / "allreduce.py" for folder in ("04-mpich", "05-intel-mpi"))

    assert first.read_text() == second.read_text()


@pytest.mark.mpi
def test_command_uses_the_mpi_of_the_environment_whatever_the_cluster_has(
    gangline_in, examples: Path, mpi_environments: Path
) -> None:
    gangline = gangline_in(mpi_environments / "intel-mpi")
    command = ["run", "-n", "4", "--nodes", "2", "--name", "intel-mpi-command", "--"]

    result = gangline(*command, "python", "allreduce.py", cwd=examples / "05-intel-mpi")

    assert result.returncode == 0, result.stdout
    assert RIGHT in result.stdout
    assert hosts(result.stdout) == [f"intel-mpi-command-worker-{worker}" for worker in (0, 0, 1, 1)]


@pytest.mark.mpi
def test_manifest_runs_on_the_image_that_the_environment_serves(
    gangline, examples: Path, mpi_environments: Path
) -> None:
    image = f"you/intel-mpi={mpi_environments / 'intel-mpi'}"

    result = gangline("run", "--nodes", "2", "--image", image, "examples/05-intel-mpi/mpijob.yaml")

    assert result.returncode == 0, result.stdout
    assert RIGHT in result.stdout
    assert hosts(result.stdout) == [f"intel-mpi-worker-{worker}" for worker in (0, 0, 1, 1)]


@pytest.mark.mpi
def test_rank_that_fails_is_named_with_its_pod(gangline_in, mpi_environments: Path, tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("import sys\nfrom mpi4py import MPI\nsys.exit(3 if MPI.COMM_WORLD.rank == 2 else 0)\n")
    gangline = gangline_in(mpi_environments / "intel-mpi")

    result = gangline(
        *("run", "-n", "4", "--nodes", "2", "--name", "broken-intel"),
        *("--", "python", "broken.py"),
        cwd=tmp_path,
    )

    assert result.returncode in (3, 255), result.stdout  # Intel's mpirun now and then ends with its own 255
    assert "rank 2 in pod broken-intel-worker-1 exited with code 3" in result.stdout
