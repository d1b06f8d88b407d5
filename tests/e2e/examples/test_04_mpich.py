"""examples/04-mpich: MPICH from an environment of the user's own, in a command and in a manifest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RIGHT = "all-reduce of 1000000 elements is right on 4 ranks with MPICH Version:"


def hosts(output: str) -> list[str]:
    return [host for _, host in sorted(re.findall(r"rank (\d) of 4 on (\S+)", output))]


@pytest.mark.mpi
def test_command_uses_the_mpi_of_the_environment_whatever_the_cluster_has(
    gangline_in, examples: Path, mpi_environments: Path
) -> None:
    gangline = gangline_in(mpi_environments / "mpich")
    command = ["run", "-n", "4", "--nodes", "2", "--name", "mpich-command", "--"]

    result = gangline(*command, "python", "allreduce.py", cwd=examples / "04-mpich")

    assert result.returncode == 0, result.stdout
    assert RIGHT in result.stdout
    assert hosts(result.stdout) == [f"mpich-command-worker-{worker}" for worker in (0, 0, 1, 1)]


@pytest.mark.mpi
def test_manifest_runs_on_the_image_that_the_environment_serves(
    gangline, examples: Path, mpi_environments: Path
) -> None:
    image = f"you/mpich={mpi_environments / 'mpich'}"

    result = gangline("run", "--nodes", "2", "--image", image, "examples/04-mpich/mpijob.yaml")

    assert result.returncode == 0, result.stdout
    assert RIGHT in result.stdout
    assert hosts(result.stdout) == [f"mpich-worker-{worker}" for worker in (0, 0, 1, 1)]


@pytest.mark.mpi
def test_rank_that_fails_is_named_with_its_pod(gangline_in, mpi_environments: Path, tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("import sys\nfrom mpi4py import MPI\nsys.exit(3 if MPI.COMM_WORLD.rank == 2 else 0)\n")
    gangline = gangline_in(mpi_environments / "mpich")

    result = gangline(
        *("run", "-n", "4", "--nodes", "2", "--name", "broken-mpich"),
        *("--", "python", "broken.py"),
        cwd=tmp_path,
    )

    assert result.returncode == 3, result.stdout
    assert "rank 2 in pod broken-mpich-worker-1 exited with code 3" in result.stdout


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["mpich", "intel-mpi"])
def test_an_exception_on_one_rank_ends_those_that_sleep(
    gangline_in, mpi_environments: Path, tmp_path: Path, mpi: str
) -> None:
    script = tmp_path / f"boom-{mpi}.py"
    script.write_text(
        "import time\nfrom mpi4py import MPI\n"
        "if MPI.COMM_WORLD.rank == 1:\n    raise KeyError('lost')\ntime.sleep(600)\n"
    )
    gangline = gangline_in(mpi_environments / mpi)

    result = gangline("run", "-n", "2", "--nodes", "2", "--", "python", script.name, cwd=tmp_path)

    assert result.returncode == 1, result.stdout
    # a second attempt in the same home is named boom-mpich-2
    cause = re.search(rf"rank 1 in pod boom-{mpi}(-\d+)?-worker-1 raised KeyError", result.stdout)
    assert cause, result.stdout
