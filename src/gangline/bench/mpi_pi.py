"""The MPI Operator's first example: estimate pi over MPI, with the lines of its ``pi.cc``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # started by its path
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parents[2])]

from gangline.bench import entry

SAMPLES_PER_RANK = 10_000_000
_SAMPLES_AT_ONCE = 500_000


def pi_line(inside: int, ranks: int) -> str:
    """Return the closing line for the points inside the circle, of all ranks together."""
    return f"pi is approximately {4 * inside / SAMPLES_PER_RANK / ranks:.16f}"


def main(words: Sequence[str]) -> None:
    """Count random points of this rank inside the circle; rank 0 prints the estimate."""
    del words
    for module in ("mpi4py", "numpy"):
        entry.require(module)
    import numpy as np
    from mpi4py import MPI

    ranks = MPI.COMM_WORLD
    if ranks.rank == 0:
        entry.say(f"Workers: {ranks.size}")
    entry.say(f"Rank {ranks.rank} on host {MPI.Get_processor_name()}")
    random = np.random.default_rng(ranks.rank)
    inside = 0
    for _ in range(SAMPLES_PER_RANK // _SAMPLES_AT_ONCE):
        x, y = random.uniform(-1.0, 1.0, (2, _SAMPLES_AT_ONCE))
        inside += int(np.count_nonzero(x * x + y * y <= 1.0))
    total = ranks.allreduce(inside, op=MPI.SUM)
    if ranks.rank == 0:
        entry.say(pi_line(total, ranks.size))
    ranks.Barrier()


if __name__ == "__main__":
    entry.run(main)
