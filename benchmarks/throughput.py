"""Training throughput of the torch example, beside bare mpirun of the same script."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys

from figures import Figure, in_turns
from laboratory import REPOSITORY, Laboratory

EXAMPLE = REPOSITORY / "examples" / "02-digits-torch"
SCRIPT = ["train.py", "--hidden", "1024", "--epochs", "9"]
BRIDGE = (
    "export RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK"
    " WORLD_SIZE=$OMPI_COMM_WORLD_SIZE"
    ' MASTER_ADDR=127.0.0.1 MASTER_PORT=29517; exec "$@"'
)


def images_per_s(output: str) -> float:
    """Return the median over the epochs, without the first one."""
    rates = [float(rate.replace(",", "")) for rate in re.findall(r"([\d,]+) images/s", output)]
    if len(rates) < 3:
        raise SystemExit(f"no images/s in the output:\n{output[-2000:]}")
    return statistics.median(rates[1:])


def run(laboratory: Laboratory) -> list[Figure]:
    if laboratory.train_python is None:
        print("throughput: needs torch; make it with `python tests/train_environment.py`", file=sys.stderr)
        return []
    command = [laboratory.train_python, *SCRIPT]
    laboratory.gangline("up", "--nodes", "2")

    def ours(*options: str) -> float:
        return images_per_s(laboratory.gangline("run", "-n", "2", *options, "--", *command, cwd=EXAMPLE))

    def bare(*options: str) -> float:
        done = subprocess.run(
            [laboratory.mpirun, "-n", "2", *options, "sh", "-c", BRIDGE, "rank", *command],
            env=laboratory.bare_environment,
            cwd=EXAMPLE,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"mpirun ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return images_per_s(done.stdout)

    samples = in_turns(
        {
            "bare": bare,
            "one pod": ours,
            "bare tcp": lambda: bare("--mca", "btl", "self,tcp"),
            "two pods": lambda: ours("--nodes", "2"),
        },
        laboratory.rounds,
    )
    return [
        Figure(
            "torch, 2 ranks in one pod / mpirun -n 2",
            "images/s",
            samples["one pod"],
            samples["bare"],
            goal=">= 0.98",
        ),
        Figure(
            "torch, 2 ranks in two pods / mpirun -n 2 --mca btl self,tcp",
            "images/s",
            samples["two pods"],
            samples["bare tcp"],
            goal=">= 0.98",
        ),
    ]
