"""Add up a vector over all ranks, check every element, and print which host each rank ran on.

mpirun -n 4 python allreduce.py
"""

import os

import numpy as np
from mpi4py import MPI

ELEMENTS = 1_000_000


def main() -> None:
    world = MPI.COMM_WORLD
    mine = np.full(ELEMENTS, world.rank + 1, dtype=np.float64)
    total = np.empty_like(mine)
    world.Allreduce(mine, total)
    want = world.size * (world.size + 1) / 2
    if not (total == want).all():
        raise SystemExit(f"rank {world.rank}: the sum is {total[0]}, not {want}")
    hosts = world.gather(os.environ.get("HOSTNAME") or MPI.Get_processor_name())
    if world.rank == 0:
        for rank, host in enumerate(hosts):
            print(f"rank {rank} of {world.size} on {host}")
        library = MPI.Get_library_version().splitlines()[0]
        print(f"all-reduce of {ELEMENTS} elements is right on {world.size} ranks with {library}", flush=True)


if __name__ == "__main__":
    main()
