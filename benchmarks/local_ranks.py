"""A benchmark's own file started once more for every rank, on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src"


def rank_variables(
    size: int, address: str = "127.0.0.1", sources: Sequence[Path] = (SOURCES,)
) -> dict[str, str]:
    """Return the variables that all ranks have alike: a free port, one thread each, our sources."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    variables = {"MASTER_ADDR": address, "MASTER_PORT": port, "WORLD_SIZE": str(size), "OMP_NUM_THREADS": "1"}
    return os.environ | variables | {"PYTHONPATH": os.pathsep.join(map(str, sources))}


def rank_command() -> list[str]:
    """Return this program's own command, in the Python that GANGLINE_TRAIN_PYTHON names."""
    return [os.environ.get("GANGLINE_TRAIN_PYTHON", sys.executable), *sys.argv]


def run_ranks(size: int, variables: dict[str, str], limit_s: float) -> int:
    """Run this program as ranks of one node; return the worst exit code."""
    variables = variables | {"LOCAL_WORLD_SIZE": str(size)}
    each = ({"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size))
    return wait_for([subprocess.Popen(rank_command(), env=variables | one) for one in each], limit_s)


def wait_for(processes: Iterable[subprocess.Popen[bytes]], limit_s: float) -> int:
    """Return the worst exit code; none of the processes is left."""
    processes = list(processes)
    try:
        return max(process.wait(limit_s) for process in processes)
    finally:
        for process in processes:
            process.kill()
