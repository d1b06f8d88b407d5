"""Run the benchmarks: `make bench`, or `python benchmarks/run.py [SCENARIO...] [--rounds N]`.

Each scenario gets a cluster of its own in a temporary folder, and prints a table of medians beside the bare
tool, both taken in turns in the same run. The exit code is 1 when a goal was missed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from pathlib import Path

from figures import machine, table
from laboratory import REPOSITORY, Laboratory

SCENARIOS = [
    "startup",
    "first_rank",
    "cold_start",
    "python_client",
    "script_start",
    "throughput",
    "idle_memory",
    "api_server",
    "many_jobs",
    "operator_jobs",
    "training_jobs",
    "nodes_first_rank",
    "placement_gap",
    "scheduler_day",
    "device_plugin",
    "scheduler_core",
    "scheduler_scale",
    "large_plane",
    "scheduler_binding",
    "scheduler_gangs",
    "gang_claims",
    "page",
]


def train_python() -> str | None:
    """Return the Python of the training environment if it exists already; it is not made here."""
    if python := os.environ.get("GANGLINE_TRAIN_PYTHON"):
        return python
    sys.path.insert(0, str(REPOSITORY / "tests"))
    path = importlib.import_module("train_environment").environment_path() / "bin" / "python"
    return str(path) if Path(path).exists() else None


def versions() -> str:
    """Return the commit and the MPI, for the head of the report."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    mpirun = Laboratory(rounds=1).mpirun
    try:
        mpi = subprocess.run(
            [mpirun, "--version"], capture_output=True, text=True, check=True
        ).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError):
        mpi = "no MPI found"
    return f"gangline {commit.stdout.strip() or 'without git'}, {mpi}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "scenarios", nargs="*", choices=[*SCENARIOS, []], metavar="SCENARIO", help=", ".join(SCENARIOS)
    )
    parser.add_argument("--rounds", type=int, default=5, help="samples for each figure (default 5)")
    parser.add_argument(
        "--jobs", type=int, default=200, help="jobs that many_jobs runs in a row (default 200)"
    )
    options = parser.parse_args()
    print(f"machine: {machine()}\nversions: {versions()}", flush=True)
    missed = False
    for name in options.scenarios or SCENARIOS:
        module = importlib.import_module(name)
        with Laboratory(options.rounds, jobs=options.jobs, train_python=train_python()) as laboratory:
            figures = module.run(laboratory)
        missed |= any(figure.verdict == "MISSED" for figure in figures)
        print(f"\n## {name}\n\n{module.__doc__.splitlines()[0]}\n")
        if figures:
            print(table(figures))
        print(f"\nagain: python benchmarks/run.py {name} --rounds {options.rounds}", flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
