"""This rank's place in the job, as the benchmarks use it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank that has met the others.

    Attributes:
        rank: 0 to ``size - 1``.
        size: number of ranks that train together.
        local_rank, local_size: the same on this node.
        device: on which it computes.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    device: torch.device


def join(device: str = "gpu") -> Rank:
    """Meet the other ranks and return this one's place; ``device``: ``cpu``, else a GPU if there is one."""
    import torch

    names = {
        "rank": ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
        "size": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
        "local_rank": ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
        "local_size": ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
    }
    usual = {"rank": 0, "size": 1, "local_rank": 0, "local_size": 1}
    place = {
        key: next((int(os.environ[name]) for name in words if name in os.environ), usual[key])
        for key, words in names.items()
    }
    has_gpu = device == "gpu" and torch.cuda.is_available()
    chosen = (
        torch.device("cuda", place["local_rank"] % torch.cuda.device_count())
        if has_gpu
        else torch.device("cpu")
    )
    if has_gpu:
        torch.cuda.set_device(chosen)
    elif "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // place["local_size"]))
    if place["size"] > 1:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29500")
        torch.distributed.init_process_group(
            "nccl" if has_gpu else "gloo", rank=place["rank"], world_size=place["size"]
        )
    return Rank(**place, device=chosen)


def leave() -> None:
    """Leave the job, after all that others wait for."""
    import torch

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
