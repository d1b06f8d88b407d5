"""Estimate pi over MPI, print the host of every rank, and fail if one of the hosts named has no rank.

mpirun -n 2 python3 pi.py $(cut -d ' ' -f 1 /etc/mpi/hostfile)
"""

import os
import sys

import numpy as np
from mpi4py import MPI

SAMPLES_PER_RANK = 1_000_000


def first_label(host: str) -> str:
    """Return what the pod calls itself: `pi-worker-0` for `pi-worker-0.pi.default.svc:1`."""
    return host.split(":")[0].split(".")[0]


def main() -> None:
    comm = MPI.COMM_WORLD
    points = np.random.default_rng(comm.rank).random((SAMPLES_PER_RANK, 2))
    inside = int(((points**2).sum(axis=1) < 1).sum())
    total = comm.allreduce(inside)
    hosts = comm.allgather(os.environ.get("HOSTNAME") or MPI.Get_processor_name())
    if comm.rank == 0:
        for rank, host in enumerate(hosts):
            print(f"rank {rank} of {comm.size} on {host}")
        print(f"pi is approximately {4 * total / (SAMPLES_PER_RANK * comm.size):.4f}", flush=True)
    missing = {first_label(host) for host in sys.argv[1:]} - {first_label(host) for host in hosts}
    if missing:
        raise SystemExit(f"rank {comm.rank}: no rank ran on {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main()
