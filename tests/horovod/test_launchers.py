"""Real launchers start ranks on this machine; each finds its place and the others."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from launch_ranks import REPOSITORY, environment, free_port
from slurm import NoSlurmError, slurm

pytestmark = [pytest.mark.horovod, pytest.mark.timeout(200)]

SCRIPT = str(Path(__file__).with_name("place_script.py"))
BIN = REPOSITORY / ".venv" / "bin"
GANGLINE = str(BIN / "gangline")


def open_mpi() -> str:
    found = BIN / "mpirun"
    if not found.exists():
        pytest.skip("there is no Open MPI in .venv: pip install -e '.[mpi]'")
    return str(found)


def mpi(name: str, program: str) -> str:
    folder = os.environ.get("GANGLINE_MPI_ENVIRONMENTS")
    if not folder:
        pytest.skip("GANGLINE_MPI_ENVIRONMENTS is not set: run `make test-horovod`")
    return str(Path(folder) / name / "bin" / program)


ON_TWO_NODES = [[0, 4, 0, 2, 0, 2, 4], [1, 4, 1, 2, 0, 2, 4], [2, 4, 0, 2, 1, 2, 4], [3, 4, 1, 2, 1, 2, 4]]

COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "torchrun": lambda python: [
        *(python, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("--master-port", str(free_port()), SCRIPT),
    ],
    "horovodrun": lambda python: [
        *(python, "-m", "horovod.runner.launch", "--gloo", "-np", "2", "-H", "localhost:2", python, SCRIPT)
    ],
    "gangline launch": lambda python: [GANGLINE, "launch", "-n", "2", "--", python, SCRIPT],
    "Open MPI": lambda python: [
        *(open_mpi(), "--allow-run-as-root", "--oversubscribe", "-n", "2"),
        *("-x", "PYTHONPATH", "-x", "OMP_NUM_THREADS", python, SCRIPT),
    ],
    "MPICH": lambda python: [mpi("mpich", "mpiexec"), "-n", "2", python, SCRIPT],
    "Intel MPI": lambda python: [mpi("intel-mpi", "mpiexec.hydra"), "-n", "2", python, SCRIPT],
}


def torch_python() -> str:
    python = os.environ.get("GANGLINE_TRAIN_PYTHON")
    if not python:
        pytest.skip("GANGLINE_TRAIN_PYTHON is not set: run `make test-horovod`")
    return python


def places_of(command: list[str], folder: Path, **more: str) -> list[list[int]]:
    """Return rank, size, local rank and size, cross rank and size, and the sum of ones, of every rank."""
    ended = subprocess.run(
        command,
        env=environment(os.environ.get("GANGLINE_HOROVOD_OVERLAY", ""), **more),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    # [1]<stdout>:place [1, 2, 1, 2, 0, 1, 2]
    places = [json.loads(found) for found in re.findall(r"place (\[[\d, ]+\])", ended.stdout)]
    assert places, ended.stdout + ended.stderr
    return sorted(places)


@pytest.mark.parametrize("launcher", COMMANDS)
def test_ranks_find_their_places(launcher: str, tmp_path: Path) -> None:
    command = COMMANDS[launcher](torch_python())

    assert places_of(command, tmp_path) == [[0, 2, 0, 2, 0, 1, 2], [1, 2, 1, 2, 0, 1, 2]]


def test_ranks_of_slurm_find_their_places_on_two_nodes(tmp_path: Path) -> None:
    python = torch_python()
    try:
        with slurm(tmp_path) as (srun, variables):
            # Both nodes are this machine, whose name they would have: each says its own.
            line = f"HOROVOD_HOSTNAME=$SLURMD_NODENAME exec {python} {SCRIPT}"
            command = [str(srun), "-N", "2", "-n", "4", "--ntasks-per-node", "2", "/bin/sh", "-c", line]
            found = places_of(command, tmp_path, **variables, MASTER_ADDR="127.0.0.1")
    except NoSlurmError as error:
        pytest.skip(str(error))

    assert found == ON_TWO_NODES
