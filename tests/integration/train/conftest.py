"""Ranks as processes of this machine, started as the launchers do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[3] / "src"
LIMIT_S = 200.0
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "PRTE_", "SLURM_", "OMP_NUM")


def clean_environment(**more: str) -> dict[str, str]:
    """Return this process's environment without any launcher's variables, and Gangline importable."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_VARIABLES)}
    return kept | {"PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"} | more


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Ranks:
    """Processes that each write into a file of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, python: str, script: Path, size: int, *words: str, **more: str) -> None:
        """Start the ranks as torch's own variables say it."""
        port = str(free_port())
        for rank in range(size):
            place = {
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            }
            with (self.folder / f"rank-{rank}.log").open("wb") as log:
                self.processes.append(
                    subprocess.Popen(
                        [python, str(script), *words],
                        env=clean_environment(**place, **more),
                        cwd=self.folder,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )

    @staticmethod
    def environment() -> dict[str, str]:
        return clean_environment()

    def log(self, rank: int) -> str:
        return (self.folder / f"rank-{rank}.log").read_text(errors="replace")

    def wait(self) -> list[int]:
        """Return the exit codes."""
        deadline = time.monotonic() + LIMIT_S
        return [process.wait(timeout=max(1.0, deadline - time.monotonic())) for process in self.processes]

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"waited {LIMIT_S} s for {what}: {self.log(0)}"
            time.sleep(0.02)

    def end(self) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    """Ranks that are ended with the test."""
    started = Ranks(tmp_path)
    yield started
    started.end()


@pytest.fixture
def numpy_python() -> str:
    """This Python: it has numpy, and perhaps no torch."""
    return sys.executable
