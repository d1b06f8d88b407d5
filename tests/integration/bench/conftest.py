"""Runs the benchmark programs with the torch environment's Python, as ranks of this machine."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).resolve().parents[3] / "src" / "gangline" / "bench"
RUN_LIMIT_S = 200

Run = Callable[..., list[subprocess.CompletedProcess[str]]]


@pytest.fixture
def run_ranks(torch_python: str, tmp_path: Path) -> Run:
    """Return a function that runs a program by its path and returns what every rank did."""

    def run(
        program: str, *words: str, ranks: int = 1, **variables: str
    ) -> list[subprocess.CompletedProcess[str]]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        shared = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
        shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
        shared |= {"LOCAL_WORLD_SIZE": str(ranks), **variables}
        processes = [
            subprocess.Popen(
                [torch_python, str(PROGRAMS / program), *words],
                env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        try:
            outputs = [process.communicate(timeout=RUN_LIMIT_S) for process in processes]
        finally:
            for process in processes:
                process.kill()
        return [
            subprocess.CompletedProcess(process.args, process.returncode, *output)
            for process, output in zip(processes, outputs, strict=True)
        ]

    return run
