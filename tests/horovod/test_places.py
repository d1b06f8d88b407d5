"""rank, local_rank and cross_rank are the same whoever started the ranks: four, two on each of two hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gangline.train.environment import read_ranks
from horovod.engine.topology import Topology, place

Variables = dict[str, Any]

LAUNCHERS: dict[str, Callable[[int], Variables]] = {
    "horovodrun": lambda r: {
        "HOROVOD_RANK": r,
        "HOROVOD_SIZE": 4,
        "HOROVOD_LOCAL_RANK": r % 2,
        "HOROVOD_LOCAL_SIZE": 2,
        "HOROVOD_CROSS_RANK": r // 2,
        "HOROVOD_CROSS_SIZE": 2,
        "MASTER_ADDR": "first",
        "MASTER_PORT": 29500,
    },
    "Open MPI, pods of an MPIJob": lambda r: {
        "OMPI_COMM_WORLD_RANK": r,
        "OMPI_COMM_WORLD_SIZE": 4,
        "OMPI_COMM_WORLD_LOCAL_RANK": r % 2,
        "OMPI_COMM_WORLD_LOCAL_SIZE": 2,
        "PMIX_RANK": r,
        "PMIX_NAMESPACE": "prterun-first-1@1",
    },
    "MPICH and Intel MPI": lambda r: {
        "PMI_RANK": r,
        "PMI_SIZE": 4,
        "MPI_LOCALRANKID": r % 2,
        "MPI_LOCALNRANKS": 2,
    },
    "MVAPICH2": lambda r: {
        "MV2_COMM_WORLD_RANK": r,
        "MV2_COMM_WORLD_SIZE": 4,
        "MV2_COMM_WORLD_LOCAL_RANK": r % 2,
        "MV2_COMM_WORLD_LOCAL_SIZE": 2,
    },
    "torchrun": lambda r: {
        "RANK": r,
        "WORLD_SIZE": 4,
        "LOCAL_RANK": r % 2,
        "LOCAL_WORLD_SIZE": 2,
        "GROUP_RANK": r // 2,
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "MASTER_ADDR": "first",
        "MASTER_PORT": 29500,
    },
    "Slurm (simulated)": lambda r: {
        "SLURM_PROCID": r,
        "SLURM_NTASKS": 4,
        "SLURM_STEP_NUM_TASKS": 4,
        "SLURM_LOCALID": r % 2,
        "SLURM_NODEID": r // 2,
        "SLURM_JOB_ID": 7,
        "SLURM_STEP_ID": 0,
        "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
        "SLURM_STEP_NODELIST": "first[1-2]",
    },
    "gangline run": lambda r: {
        "RANK": r,
        "WORLD_SIZE": 4,
        "LOCAL_RANK": r % 2,
        "LOCAL_WORLD_SIZE": 2,
        "MASTER_ADDR": "first",
        "MASTER_PORT": 23456,
    },
    "only ranks and size": lambda r: {"RANK": r, "WORLD_SIZE": 4, "MASTER_ADDR": "first"},
}


def topologies(variables: Callable[[int], Variables], nodes: list[str]) -> list[Topology]:
    """Return the place of every rank, as the ranks find it by telling each other their hosts."""
    everyone = [
        read_ranks({name: str(value) for name, value in variables(rank).items()})
        for rank in range(len(nodes))
    ]
    facts = [
        {"node": node, "local_rank": one.local_rank, "local_size": one.local_size}
        for one, node in zip(everyone, nodes, strict=True)
    ]
    return [place(one, facts) for one in everyone]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_launcher_leads_to_the_same_places(launcher: str) -> None:
    found = topologies(LAUNCHERS[launcher], ["a", "a", "b", "b"])
    assert found == [
        Topology(rank, 4, local_rank, 2, cross_rank, 2, is_homogeneous=True)
        for rank, local_rank, cross_rank in [(0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)]
    ]


def test_pods_of_a_pytorchjob_are_hosts_of_their_own() -> None:
    def pod(rank: int) -> Variables:
        own = {"RANK": rank, "WORLD_SIZE": 4, "MASTER_ADDR": "job-master-0", "MASTER_PORT": 23456}
        return own | {"PET_NODE_RANK": rank, "PET_NNODES": 4, "PET_NPROC_PER_NODE": 1}

    found = topologies(pod, ["job-master-0", "job-worker-0", "job-worker-1", "job-worker-2"])
    assert found == [Topology(rank, 4, 0, 1, rank, 4, is_homogeneous=True) for rank in range(4)]


def test_hosts_with_different_numbers_of_ranks() -> None:
    def rank_of(rank: int) -> Variables:
        return {"PMI_RANK": rank, "PMI_SIZE": 3}

    found = topologies(rank_of, ["a", "a", "b"])
    assert [(one.local_rank, one.local_size, one.cross_rank, one.cross_size) for one in found] == [
        (0, 2, 0, 2),
        (1, 2, 0, 1),
        (0, 1, 1, 2),
    ]
    assert not any(one.is_homogeneous for one in found)
