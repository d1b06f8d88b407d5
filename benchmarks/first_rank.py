"""Time to the first line of rank 0 on a cluster that is up, beside bare mpirun of the same program."""

from __future__ import annotations

import sys
from pathlib import Path

from figures import Figure, in_turns
from laboratory import Laboratory

MARKER = "first line of rank 0"
HELLO = f"""
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 0:
    print("{MARKER}", flush=True)
MPI.COMM_WORLD.Barrier()
"""


def write_hello(folder: Path) -> Path:
    """Write the program into a folder of its own and return its path."""
    program = folder / "code" / "hello.py"
    program.parent.mkdir(exist_ok=True)
    program.write_text(HELLO)
    return program


def run(laboratory: Laboratory) -> list[Figure]:
    hello = write_hello(laboratory.home)
    laboratory.gangline("up", "--nodes", "2")
    python = [sys.executable, str(hello)]

    def ours(*options: str) -> float:
        command = [laboratory.program, "run", *options, "--", *python]
        return laboratory.first_line_s(command, MARKER, cwd=hello.parent)

    def bare() -> float:
        command = [laboratory.mpirun, "-n", "2", *python]
        return laboratory.first_line_s(command, MARKER, bare=True, cwd=hello.parent)

    samples = in_turns(
        {"bare": bare, "one": lambda: ours("-n", "2"), "two": lambda: ours("-n", "2", "--nodes", "2")},
        rounds=2 * laboratory.rounds,
    )
    names = {"one": "gangline run -n 2, one pod", "two": "gangline run -n 2 --nodes 2, two pods"}
    return [
        Figure(names[key], "s", samples[key], samples["bare"], compare="difference", goal="<= 0.7")
        for key in names
    ]
