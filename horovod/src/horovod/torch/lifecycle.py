"""Begin and end of the job, this rank's place in it, and what the library was built with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod.common.process_sets import (
    ProcessSet,
    begin_sets,
    end_sets,
    global_process_set,
    ranks_of,
)
from horovod.engine import job
from horovod.engine.agreement import BARRIER, JOIN, Request


def init(comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Begin the job; a second call does nothing.

    Args:
        comm: ranks of the job, or a communicator of mpi4py, when it is not all that were started.
        process_sets: that the job has from the start, or ``"dynamic"`` for adding them later.

    Raises:
        ValueError: this rank is not in ``comm``, or two process sets are of the same ranks.
        gangline.errors.UserError: the launcher's variables contradict each other.
    """
    dynamic = isinstance(process_sets, str) and process_sets.lower() == "dynamic"
    if isinstance(process_sets, str) and not dynamic:
        raise ValueError(f'process_sets is a list or "dynamic", not {process_sets!r}')
    if job.begin(None if comm is None else ranks_of(comm), dynamic_sets=dynamic):
        begin_sets([] if process_sets is None or isinstance(process_sets, str) else process_sets)


def shutdown() -> None:
    """End the job; done by itself at exit. Others that wait for this rank get an error."""
    end_sets()
    job.end()


is_initialized = job.is_initialized


def rank() -> int:
    """Return this rank, 0 to ``size() - 1``. ValueError before `init`, as for its relatives below."""
    return job.current().topology.rank


def size() -> int:
    """Return the number of ranks."""
    return job.current().topology.size


def local_rank() -> int:
    """Return this rank's place among those of its host: the GPU to use."""
    return job.current().topology.local_rank


def local_size() -> int:
    """Return the number of ranks on this host."""
    return job.current().topology.local_size


def cross_rank() -> int:
    """Return this host's place among those that have this local rank."""
    return job.current().topology.cross_rank


def cross_size() -> int:
    """Return the number of hosts that have this local rank."""
    return job.current().topology.cross_size


def is_homogeneous() -> bool:
    """Return whether all hosts have the same number of ranks."""
    return job.current().topology.is_homogeneous


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Write the timeline into a file from now on; rank 0 does."""
    if rank() == 0:
        job.current().engine.timeline.start(file_path, mark_cycles=mark_cycles)


def stop_timeline() -> None:
    """Close the timeline's file."""
    job.current().engine.timeline.stop()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return when all ranks of the process set are here."""
    engine = job.current().engine
    if process_set.process_set_id != 0 and not process_set.included():
        raise ValueError(f"rank {rank()} is not in the process set {process_set.ranks}")
    number = process_set.process_set_id or 0
    engine.ask(Request(engine.automatic_name(BARRIER, number), BARRIER, number))


def join(device: int = -1) -> int:
    """Say that this rank is through with its data: it gives zeros to reductions until all are.

    Args:
        device: of the zeros; they lie where the other ranks' tensors do.

    Returns:
        The rank that joined last.
    """
    return job.current().engine.ask(Request(JOIN, JOIN))


def mpi_threads_supported() -> bool:
    """Return False: there is no MPI beneath. ValueError before `init`."""
    job.current()
    return False


def mpi_enabled() -> bool:
    """Return False: MPI may start the ranks and carries nothing."""
    return False


def mpi_built() -> bool:
    """Return False: nothing was built, and there is no MPI beneath."""
    return False


def gloo_enabled() -> bool:
    """Return whether torch.distributed has gloo."""
    return gloo_built()


def gloo_built() -> bool:
    """Return whether torch.distributed has gloo."""
    return bool(torch.distributed.is_gloo_available())


def nccl_built() -> int:
    """Return NCCL's version as one number, 22907 for 2.29.7; 0 without CUDA or NCCL."""
    if not (torch.cuda.is_available() and torch.distributed.is_nccl_available()):
        return 0
    version: tuple[int, ...] = tuple(torch.cuda.nccl.version())
    return sum(part * weight for part, weight in zip(version, (10000, 100, 1), strict=False))


def ddl_built() -> bool:
    """Return False."""
    return False


def ccl_built() -> bool:
    """Return False."""
    return False


def cuda_built() -> bool:
    """Return whether torch was built with CUDA."""
    return torch.version.cuda is not None


def rocm_built() -> bool:
    """Return whether torch was built with ROCm."""
    return torch.version.hip is not None
