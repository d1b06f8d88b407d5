"""init() under real launchers: ranks find each other, and end with the same gradients as torch's own way."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytestmark = pytest.mark.train

SCRIPT = Path(__file__).with_name("session_script.py")
SOURCES = Path(__file__).resolve().parents[3] / "src"
LIMIT_S = 200


def clean() -> dict[str, str]:
    names = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "PRTE_", "SLURM_", "OMP_NUM")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    root = {f"{kind}_ALLOW_RUN_AS_ROOT{end}": "1" for kind in ("OMPI", "PRTE") for end in ("", "_CONFIRM")}
    return kept | root | {"PYTHONPATH": str(SOURCES)}


def launch(*line: str) -> dict[str, object]:
    """Run a launcher's line and return what rank 0 found."""
    done = subprocess.run(
        line,
        env=clean(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (said,) = [text for text in done.stdout.splitlines() if text.startswith("found ")]
    return json.loads(said.removeprefix("found "))


def mpirun() -> str:
    program = Path(sys.executable).with_name("mpirun")
    return str(program) if program.exists() else shutil.which("mpirun") or pytest.skip("no mpirun")


def test_process_without_a_launcher_trains_alone(torch_python: str) -> None:
    found = launch(torch_python, str(SCRIPT))

    assert found["ranks"] == [0, 1, 0, 0]
    assert found["backend"] == "gangline"


def test_ranks_of_mpirun_share_memory_and_cores(torch_python: str) -> None:
    found = launch(mpirun(), "--oversubscribe", "-n", "3", torch_python, str(SCRIPT))

    assert found["ranks"] == [0, 3, 0, 0]
    assert (found["launcher"], found["shared"], found["why"]) == ("Open MPI", True, "")
    assert found["threads"] == max(1, len(os.sched_getaffinity(0)) // 3)


def test_ranks_of_torchrun_meet_at_its_agent(torch_python: str) -> None:
    found = launch(torch_python, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(SCRIPT))

    assert (found["ranks"], found["launcher"], found["shared"]) == ([0, 2, 0, 0], "torchrun", True)


def test_two_jobs_at_once_do_not_meet_each_other(torch_python: str) -> None:
    results: list[dict[str, object]] = []

    def run() -> None:
        results.append(launch(mpirun(), "-n", "2", "--oversubscribe", torch_python, str(SCRIPT)))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [result["ranks"] for result in results] == [[0, 2, 0, 0]] * 2


def test_nodes_sum_in_memory_and_their_first_ranks_over_gloo(ranks, torch_python) -> None:
    ranks.start(torch_python, SCRIPT, 4, "two-nodes")

    assert ranks.wait() == [0] * 4, [ranks.log(rank) for rank in range(4)]
    (said,) = [text for text in ranks.log(0).splitlines() if text.startswith("found ")]
    assert json.loads(said.removeprefix("found "))["why"] == ""


def test_port_that_is_taken_is_named(torch_python: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        done = subprocess.run(
            [torch_python, str(SCRIPT)],
            env=clean() | place,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    assert done.returncode != 0
    assert f"rank 0 cannot listen at 127.0.0.1:{port}: the port is taken by another process" in done.stderr
