"""Start ranks on this machine as `horovodrun --gloo` does, and collect what they write and how they end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SOURCES = [REPOSITORY / "src", REPOSITORY / "horovod" / "src"]
LIMIT_S = 200.0
LAUNCHER_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "MASTER_",
    "OMPI_",
    "PMI",
    "PRTE_",
    "SLURM_",
    "HOROVOD_",
)


@dataclass(frozen=True)
class Ended:
    """How a rank ended."""

    code: int
    log: str


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def place(rank: int, size: int, port: int, nodes: int = 1) -> dict[str, str]:
    """Return the variables of a rank, on one of several pretended hosts."""
    local_size = size // nodes
    return {
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(size),
        "HOROVOD_LOCAL_RANK": str(rank % local_size),
        "HOROVOD_LOCAL_SIZE": str(local_size),
        "HOROVOD_CROSS_RANK": str(rank // local_size),
        "HOROVOD_CROSS_SIZE": str(nodes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "HOROVOD_CONTROLLER": "gloo",
    }


def environment(overlay: str = "", **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_VARIABLES)}
    path = os.pathsep.join([*map(str, SOURCES), overlay])
    return kept | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"} | more


def made_folder(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def run_ranks(
    python: str,
    words: Sequence[str],
    size: int,
    folder: Path,
    *,
    overlay: str = "",
    nodes: int = 1,
    limit_s: float = LIMIT_S,
    cwd: Path | None = None,
    own_folders: bool = False,
    **more: str,
) -> list[Ended]:
    """Run a command in every rank, and return how each ended; none outlives the limit.

    Args:
        own_folders: run each in a folder ``rank-N`` of its own.
    """
    port = free_port()
    processes = []
    for rank in range(size):
        with (folder / f"rank-{rank}.log").open("wb") as log:
            variables = environment(overlay, **place(rank, size, port, nodes), **more)
            processes.append(
                subprocess.Popen(
                    [python, *words],
                    env=variables,
                    cwd=made_folder(folder / f"rank-{rank}") if own_folders else cwd or folder,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
    deadline = time.monotonic() + limit_s
    codes = []
    for process in processes:
        try:
            codes.append(process.wait(max(0.1, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGABRT)
            codes.append(process.wait(10))
    logs = [(folder / f"rank-{rank}.log").read_text(errors="replace") for rank in range(size)]
    return [Ended(code, log) for code, log in zip(codes, logs, strict=True)]


if __name__ == "__main__":
    import tempfile

    count, interpreter, *command = sys.argv[1:]
    with tempfile.TemporaryDirectory() as temporary:
        ended = run_ranks(
            *(interpreter, command, int(count), Path(temporary)),
            overlay=os.environ.get("HOROVOD_TEST_OVERLAY", ""),
            limit_s=float(os.environ.get("LIMIT_S", LIMIT_S)),
            cwd=Path.cwd(),
        )
    for number, one in enumerate(ended):
        sys.stdout.write(f"--- rank {number}: exit code {one.code}\n{one.log}\n")
    sys.exit(max(abs(one.code) for one in ended))
