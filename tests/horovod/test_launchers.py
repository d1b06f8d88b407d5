"""Real launchers start two ranks on this machine; each finds its place and the other one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from launch_ranks import REPOSITORY, environment, free_port

pytestmark = [pytest.mark.horovod, pytest.mark.timeout(200)]

SCRIPT = str(Path(__file__).with_name("place_script.py"))
GANGLINE = str(REPOSITORY / ".venv" / "bin" / "gangline")


def open_mpi() -> str:
    found = shutil.which("mpirun")
    if found is None or b"Open MPI" not in subprocess.check_output([found, "--version"]):
        pytest.skip("there is no Open MPI on PATH")
    return found


def mpich() -> str:
    folder = os.environ.get("GANGLINE_MPI_ENVIRONMENTS")
    if not folder:
        pytest.skip("GANGLINE_MPI_ENVIRONMENTS is not set: see `make test-mpi`")
    return str(Path(folder) / "mpich" / "bin" / "mpiexec")


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
    "MPICH": lambda python: [mpich(), "-n", "2", python, SCRIPT],
}


@pytest.mark.parametrize("launcher", COMMANDS)
def test_ranks_find_their_places(launcher: str, tmp_path: Path) -> None:
    python = os.environ.get("GANGLINE_TRAIN_PYTHON")
    if not python:
        pytest.skip("GANGLINE_TRAIN_PYTHON is not set: run `make test-horovod`")
    ended = subprocess.run(
        COMMANDS[launcher](python),
        env=environment(os.environ.get("GANGLINE_HOROVOD_OVERLAY", "")),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    # [1]<stdout>:place [1, 2, 1, 2, 0, 1, 2]
    places = [json.loads(found) for found in re.findall(r"place (\[[\d, ]+\])", ended.stdout)]
    assert sorted(places) == [[0, 2, 0, 2, 0, 1, 2], [1, 2, 1, 2, 0, 1, 2]], ended.stdout + ended.stderr
