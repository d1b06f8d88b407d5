"""All-reduces over sets of ranks, timed; runs in a pod by its own Python and imports nothing of Gangline.

The pod's only process: it starts the ranks of its node, by fork where there is torch, else by the ``mpirun``
that comes with mpi4py, on one node alone. GPUs are measured by nccl, processes without one by gloo or MPI.
WIRES_PLAN is JSON: {"sets": [[RANK, ...], ...], "each": ranks of a node, "nodes": N, "node": this one's
number, "master": HOST, "port": PORT, "bytes": of one rank's tensor, "rounds": that are timed}. Rank 0 prints
a record for the ranks and one for each set, in the form of ``gangline.train.records``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

PLAN = "WIRES_PLAN"
WARM_UPS = 2
PATIENCE = timedelta(minutes=5)
"""How long ranks wait for one another: the image of the second node may have to be pulled."""


def main() -> int:
    """Start the ranks of this node, or be one of them; return the exit status."""
    plan = json.loads(os.environ[PLAN])
    if any(name in os.environ for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK")):
        return measure(plan, MpiWorld())
    if importlib.util.find_spec("torch") is not None:
        return _fork(plan)
    if importlib.util.find_spec("mpi4py") is None:
        print(f"{sys.executable} has neither torch nor mpi4py", flush=True)
        return 1
    if plan["nodes"] > 1:
        print(f"{sys.executable} has no torch; mpi4py measures one node alone", flush=True)
        return 1
    beside = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun")
    if beside is None:
        print("mpi4py is here, and no mpirun", flush=True)
        return 1
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    os.environ.update(PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe", PRTE_MCA_plm="^slurm,ssh")
    os.execv(beside, [beside, "-n", str(plan["each"]), sys.executable, *sys.orig_argv[1:]])


def _fork(plan: dict[str, Any]) -> int:
    children = []
    for local in range(plan["each"]):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = measure(plan, TorchWorld(plan, local))
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) and 1 for child in children)


class TorchWorld:
    """The ranks of ``torch.distributed``: nccl where this one has a GPU, else gloo."""

    def __init__(self, plan: dict[str, Any], local: int) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist = torch, dist
        self.rank, self.size = plan["node"] * plan["each"] + local, plan["nodes"] * plan["each"]
        has_gpu = torch.cuda.is_available() and dist.is_nccl_available()
        self.backend = "nccl" if has_gpu else "gloo"
        self._device = torch.device("cuda", local) if has_gpu else torch.device("cpu")
        if has_gpu:
            torch.cuda.set_device(self._device)
        else:
            torch.set_num_threads(1)
        self.device = torch.cuda.get_device_name(self._device) if has_gpu else "cpu"
        self.uuid = f"GPU-{torch.cuda.get_device_properties(self._device).uuid}" if has_gpu else ""
        meeting = f"tcp://{plan['master']}:{plan['port']}"
        dist.init_process_group(
            self.backend, init_method=meeting, rank=self.rank, world_size=self.size, timeout=PATIENCE
        )

    def reducer(self, ranks: Sequence[int], count: int) -> tuple[Callable[[], object], Callable[[], object]]:
        """Return what all-reduces so many floats over some ranks, and what waits until that is done."""
        group = self._dist.new_group(list(ranks))
        tensor = self._torch.ones(count, dtype=self._torch.float32, device=self._device)
        wait = self._torch.cuda.synchronize if self.backend == "nccl" else lambda: None
        return lambda: self._dist.all_reduce(tensor, group=group), wait

    def gather(self, value: object) -> list[Any]:
        """Return the values of all ranks, on every rank; all have come here then."""
        found: list[Any] = [None] * self.size
        self._dist.all_gather_object(found, value)
        return found

    def close(self) -> None:
        """Leave."""
        self._dist.destroy_process_group()


class MpiWorld:
    """The ranks of an ``mpirun``, without GPUs."""

    backend, device, uuid = "mpi", "cpu", ""

    def __init__(self) -> None:
        import numpy
        from mpi4py import MPI

        self._mpi, self._numpy, self._world = MPI, numpy, MPI.COMM_WORLD
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()

    def reducer(self, ranks: Sequence[int], count: int) -> tuple[Callable[[], object], Callable[[], object]]:
        """Return what all-reduces so many floats over some ranks, and what waits until that is done."""
        group = self._world.Split(0 if self.rank in ranks else self._mpi.UNDEFINED, self.rank)
        own, total = self._numpy.ones(count, "f"), self._numpy.empty(count, "f")
        return lambda: group.Allreduce(own, total), lambda: None

    def gather(self, value: object) -> list[Any]:
        """Return the values of all ranks, on every rank; all have come here then."""
        return list(self._world.allgather(value))

    def close(self) -> None:
        """Leave."""


def measure(plan: dict[str, Any], world: TorchWorld | MpiWorld) -> int:
    """Time an all-reduce over each set; rank 0 says what came out. A set is as fast as its slowest rank."""
    uuids = world.gather(world.uuid)
    if world.rank == 0:
        _say("wire-ranks", backend=world.backend, device=world.device, uuids=uuids)
    for ranks in plan["sets"]:
        reduce, wait = world.reducer(ranks, plan["bytes"] // 4)
        world.gather(None)
        seconds = _timed(reduce, wait, plan["rounds"]) if world.rank in ranks else 0.0
        slowest = max(world.gather(seconds))
        if world.rank == 0:
            bus = 2 * (len(ranks) - 1) / len(ranks) * plan["bytes"] / slowest / 1e9
            _say("wires", ranks=ranks, gb_s=round(bus, 4))
    world.close()
    return 0


def _timed(reduce: Callable[[], object], wait: Callable[[], object], rounds: int) -> float:
    for _ in range(WARM_UPS):
        reduce()
    wait()
    started = time.perf_counter()
    for _ in range(rounds):
        reduce()
    wait()
    return (time.perf_counter() - started) / rounds


def _say(kind: str, **fields: object) -> None:
    print(f"@gangline {json.dumps({'kind': kind, **fields})}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
