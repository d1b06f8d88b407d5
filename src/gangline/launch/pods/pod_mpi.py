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
from pathlib import Path
from typing import Any

from pod_gang import end_others  # type: ignore[import-not-found,unused-ignore]
from pod_ranks import run_again  # type: ignore[import-not-found,unused-ignore]
from rank_agent import serve  # type: ignore[import-not-found,unused-ignore]

EXIT_NO_MPI = 78
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


class MpiRanks:
    """The ranks that a line of ``mpirun`` starts."""

    def __init__(self, line: list[str]) -> None:
        self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL)

    def stop(self) -> None:
        """Ask all ranks to end."""
        self.process.send_signal(signal.SIGTERM)

    def run(self) -> int:
        """Wait for the end; return the exit code, 128 + N for signal N."""
        code = self.process.wait()
        return 128 - code if code < 0 else code


def run_mpi(folder: Path, pod: int, cwd: str, restarts: int) -> int:
    """Do this pod's part and return its exit code.

    Args:
        folder: with this program, ``mpi.json`` and the agent.
        pod: index of this pod.
        cwd: where the ranks start; empty for where this process is.
        restarts: how often all ranks start again after a failure.
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
        return int(serve(folder))
    code = int(run_again(lambda _restart: MpiRanks(plan[mpi]["line"]), restarts))
    return code or int(end_others(folder, plan["hosts"]))
