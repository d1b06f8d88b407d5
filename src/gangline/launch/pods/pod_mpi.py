"""Starts the ranks of an MPI program on a cluster by the image's ``mpirun``, without ssh.

The pod with index 0 runs ``mpirun``, which reaches the others through the rank agent that each serves; when
all is well it tells them to end. It runs by the image's own Python, 3.8 or newer, beside ``rank_agent``,
from the standard library alone. ``mpi.json`` beside it has, by MPI, the command line and the variables:

    {"hosts": ["train-0.train-1f2e3d"], "openmpi": {"line": ["mpirun", ...], "environment": {...}}, ...}
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

END_LIMIT_S = 30.0
EXIT_NO_MPI = 78
CONNECTIONS_MAX = 32
VERSION_LIMIT_S = 20.0


def flavour() -> str:
    """Return which MPI's ``mpirun`` is on the PATH, empty without one."""
    program = shutil.which("mpirun")
    if not program:
        return ""
    asked = subprocess.run(
        [program, "--version"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=VERSION_LIMIT_S,
        check=False,
    )
    text = asked.stdout.decode(errors="replace")
    if "Open MPI" in text or "OpenRTE" in text or "Spectrum MPI" in text:
        return "openmpi"
    return "intel" if "Intel(R) MPI" in text else "mpich" if "HYDRA" in text else ""


def run_mpi(folder: Path, pod: int, cwd: str) -> int:
    """Do this pod's part and return its exit code.

    Args:
        folder: with this program, ``mpi.json`` and the agent.
        pod: index of this pod.
        cwd: where the ranks start; empty for where this process is.
    """
    mpi = flavour()
    plan: dict[str, Any] = json.loads((folder / "mpi.json").read_text())
    if mpi not in plan:
        sys.stderr.write(
            "error[no-mpi]: the program uses MPI, and this image has no `mpirun` of Open MPI, MPICH or "
            "Intel MPI\n\nhint: take an image that has one, or `--no-mpi` if the program starts without\n"
        )
        return EXIT_NO_MPI
    os.environ.update(plan[mpi]["environment"])
    if cwd:
        os.chdir(cwd)
    if pod:
        return serve(folder)
    code = launch(plan[mpi]["line"])
    if code:
        return code
    with ThreadPoolExecutor(CONNECTIONS_MAX) as pool:
        are_told = list(pool.map(lambda host: end_one(folder, host), plan["hosts"][1:]))
    return 0 if all(are_told) else 1


def serve(folder: Path) -> int:
    """Serve the agent until the first pod says that all is well, or this pod is asked to end."""
    from rank_agent import RankAgent  # type: ignore[import-not-found,unused-ignore]

    agent = RankAgent(folder)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.end(128 + signal.SIGTERM))
    return int(agent.serve())


def launch(line: list[str]) -> int:
    """Run ``mpirun`` to its end; return its exit code, 128 + N for signal N."""
    process = subprocess.Popen(line, stdin=subprocess.DEVNULL)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.send_signal(signal.SIGTERM))
    code = process.wait()
    return 128 - code if code < 0 else code


def end_one(folder: Path, host: str) -> bool:
    """Tell a pod that all is well; say when it cannot be told, for it would never end."""
    from rank_agent import end

    try:
        end(folder, host, 0, time.monotonic() + END_LIMIT_S)
    except OSError as error:
        sys.stderr.write(f"gangline: all ranks ended well, but the pod {host} cannot be told: {error}\n")
        return False
    return True
