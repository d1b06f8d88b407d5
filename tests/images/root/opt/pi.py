"""Estimate pi over MPI. Every rank says which host it runs on and which cores it may use."""

import os
import random

from mpi4py import MPI

SAMPLES_PER_RANK = 100_000


def main() -> None:
    comm = MPI.COMM_WORLD
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    print(f"Rank {comm.rank} on host {os.uname().nodename} cores {cores}", flush=True)
    random.seed(comm.rank)
    inside = sum(random.random() ** 2 + random.random() ** 2 < 1 for _ in range(SAMPLES_PER_RANK))
    total = comm.allreduce(inside)
    hosts = comm.allgather(os.uname().nodename)
    if comm.rank == 0:
        print(f"Workers: {comm.size} on {len(set(hosts))} hosts")
        print(f"pi is approximately {4 * total / (SAMPLES_PER_RANK * comm.size):.4f}", flush=True)


if __name__ == "__main__":
    main()
