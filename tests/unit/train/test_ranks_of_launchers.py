"""A rank's place from each launcher's variables. Expected names: the launchers' own documentation.

Out of scope: how the ranks then meet (tests/integration/train).
"""

from __future__ import annotations

import json

import pytest

from gangline.errors import UserError
from gangline.train.environment import (
    Ranks,
    complete,
    job_port,
    read_ranks,
    slurm_first_host,
    slurm_local_size,
    tf_roles,
)

OPEN_MPI_5 = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
    "PMIX_RANK": "3",
    "PMIX_NAMESPACE": "prterun-host-7@1",
}
OPEN_MPI_4 = {name: value for name, value in OPEN_MPI_5.items() if not name.startswith("PMIX")} | {
    "PMIX_NAMESPACE": "3512467457"
}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
MVAPICH = {
    "MV2_COMM_WORLD_RANK": "3",
    "MV2_COMM_WORLD_SIZE": "8",
    "MV2_COMM_WORLD_LOCAL_RANK": "1",
    "MV2_COMM_WORLD_LOCAL_SIZE": "2",
}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x4)",
    "SLURM_STEP_NODELIST": "gpu[07-09,12]",
    "SLURM_JOB_ID": "41",
    "SLURM_STEP_ID": "0",
}
HOROVOD = {
    "HOROVOD_RANK": "3",
    "HOROVOD_SIZE": "8",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "2",
    "HOROVOD_CROSS_RANK": "1",
    "HOROVOD_CROSS_SIZE": "4",
}
TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "host-0",
    "MASTER_PORT": "29400",
    "TORCHELASTIC_RUN_ID": "r1",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}


@pytest.mark.parametrize(
    ("environment", "launcher"),
    [
        (OPEN_MPI_5, "Open MPI"),
        (OPEN_MPI_4, "Open MPI"),
        (HYDRA, "Hydra (MPICH, Intel MPI)"),
        (MVAPICH, "MVAPICH2"),
        (SLURM, "Slurm"),
        (HOROVOD, "Horovod"),
        (TORCHRUN, "torchrun"),
    ],
    ids=["open-mpi-5", "open-mpi-4", "hydra", "mvapich2", "slurm", "horovod", "torchrun"],
)
def test_place_is_read_from_every_launcher(environment: dict[str, str], launcher: str) -> None:
    ranks = read_ranks(environment)

    assert (ranks.rank, ranks.size, ranks.local_rank, ranks.local_size) == (3, 8, 1, 2)
    assert launcher == ranks.launcher


def test_process_without_a_launcher_is_the_only_rank() -> None:
    assert Ranks(0, 1, 0, 1, 0) == read_ranks({"PATH": "/bin", "OMP_NUM_THREADS": "2"})


def test_torchrun_agent_holds_the_store_and_a_restart_is_another_rendezvous() -> None:
    ranks = read_ranks(TORCHRUN)

    assert ranks.agent_store
    assert ranks.master == ("host-0", 29400)
    assert ranks.job != read_ranks(TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "3"}).job


def test_torchrun_inside_srun_or_mpirun_wins() -> None:
    around = SLURM | {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}

    assert (read_ranks(around | TORCHRUN).rank, read_ranks(around | TORCHRUN).size) == (3, 8)


def test_pytorchjob_says_no_local_rank_and_the_nodes_do() -> None:
    environment = {
        "RANK": "2",
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "job-master-0",
        "MASTER_PORT": "23456",
        "PET_NNODES": "3",
        "PET_NPROC_PER_NODE": "auto",
        "PET_NODE_RANK": "2",
    }
    ranks = read_ranks(environment)

    assert (ranks.local_rank, ranks.master) == (None, ("job-master-0", 23456))
    done = complete(ranks, ["job-master-0", "job-worker-0", "job-worker-1"])
    assert (done.local_rank, done.local_size, done.node_rank) == (0, 1, 2)


def test_ranks_of_one_node_are_counted_in_order() -> None:
    done = complete(Ranks(4, 5), ["a", "b", "a", "b", "b"])

    assert (done.local_rank, done.local_size, done.node_rank) == (2, 3, 1)


def test_pmix_alone_knows_no_size_and_takes_world_size() -> None:
    alone = {"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-host-7@1"}

    with pytest.raises(UserError, match=r"`PMIX_RANK=1` is set by PMIx, but not `PMIX_SIZE or WORLD_SIZE`"):
        read_ranks(alone)
    assert (
        read_ranks(alone | {"WORLD_SIZE": "4"}).rank,
        read_ranks(alone | {"WORLD_SIZE": "4"}).size,
    ) == (1, 4)


TF_CLUSTER = {"ps": ["j-ps-0:2222"], "chief": ["j-chief-0:2222"], "worker": ["j-w-0:2222", "j-w-1:2222"]}


@pytest.mark.parametrize(("role", "index", "want"), [("chief", 0, 0), ("worker", 0, 1), ("worker", 1, 2)])
def test_tfjob_ranks_begin_with_the_chief(role: str, index: int, want: int) -> None:
    config = {"cluster": TF_CLUSTER, "task": {"type": role, "index": index}, "environment": "cloud"}
    ranks = read_ranks({"TF_CONFIG": json.dumps(config)})

    assert (want, 3, ("j-chief-0", 2222)) == (ranks.rank, ranks.size, ranks.master)


def test_tfjob_parameter_server_is_no_rank() -> None:
    config = {"cluster": TF_CLUSTER, "task": {"type": "ps", "index": 0}}

    with pytest.raises(UserError, match="`TF_CONFIG` calls this process `ps` 0"):
        read_ranks({"TF_CONFIG": json.dumps(config)})


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "1"}, r"`RANK=1` is set by torch, but not `WORLD_SIZE`"),
        ({"WORLD_SIZE": "4"}, r"`WORLD_SIZE=4` is set by torch, but not `RANK`"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, r"`RANK=4` is no rank of `WORLD_SIZE=4`"),
        ({"RANK": "one", "WORLD_SIZE": "4"}, r"`RANK=one` is no whole number"),
        ({"PMI_RANK": "0"}, r"`PMI_RANK=0` is set by Hydra .*, but not `PMI_SIZE`"),
        (OPEN_MPI_5 | {"RANK": "0", "WORLD_SIZE": "1"}, r"`RANK=0` of 1 .*`OMPI_COMM_WORLD_RANK=3` of 8"),
        (
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},
            r"allocation of 4 tasks \(`SLURM_NTASKS=4`\), but was not started by srun",
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "4", "PET_NPROC_PER_NODE": "2"},
            r"`PET_NPROC_PER_NODE=2` asks for torchrun",
        ),
        ({"PET_NNODES": "2", "PET_NPROC_PER_NODE": "auto"}, r"`PET_NNODES=2` asks for torchrun"),
        ({"TF_CONFIG": "{"}, r"`TF_CONFIG` cannot be read"),
    ],
)
def test_error_names_the_variables_that_were_found(environment: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_ranks(environment)


def test_two_launchers_that_agree_are_no_error() -> None:
    names = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}

    assert read_ranks(OPEN_MPI_5 | names).rank == 3


def test_slurm_meets_at_the_first_host_on_a_port_of_the_job() -> None:
    other = read_ranks(SLURM | {"SLURM_JOB_ID": "42"}).master

    assert ("gpu07", job_port("41.0")) == read_ranks(SLURM).master
    assert other is not None
    assert other[1] != job_port("41.0")
    assert 20000 <= other[1] < 30000


@pytest.mark.parametrize(
    ("nodes", "want"),
    [("gpu[07-09,12]", "gpu07"), ("a,b", "a"), ("login", "login"), ("n[3]-ib,x", "n3-ib"), ("", "")],
)
def test_first_host_of_slurms_notation(nodes: str, want: str) -> None:
    assert want == slurm_first_host(nodes)


@pytest.mark.parametrize(("node", "want"), [("0", 4), ("1", 4), ("2", 3), ("3", None)])
def test_tasks_of_a_node_in_slurms_notation(node: str, want: int | None) -> None:
    assert want == slurm_local_size({"SLURM_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": node})


def test_master_without_a_port_takes_one_of_the_job() -> None:
    assert ("h", job_port("prterun-host-7@1")) == read_ranks(OPEN_MPI_5 | {"MASTER_ADDR": "h"}).master


def test_job_of_open_mpi_is_the_same_on_every_node() -> None:
    # Seen under Open MPI 5.0.11: the namespace is the job's, the server is each node's own daemon.
    common = {"OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "prterun-launcher-7@1"}
    nodes = [
        common
        | {"OMPI_COMM_WORLD_RANK": str(rank), "PMIX_SERVER_URI2": f"prterun-launcher-7@0.{rank};tcp4://x"}
        for rank in (0, 1)
    ]

    assert read_ranks(nodes[0]).job == read_ranks(nodes[1]).job != ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            '{"cluster":{"ps":["a:1"],"worker":["b:1"]},"task":{"type":"ps","index":0}}',
            ("ps", ["ps", "worker"]),
        ),
        ("", ("", [])),
        ("{", ("", [])),
        ("[]", ("", [])),
    ],
)
def test_the_roles_of_a_tfjob(text: str, found: tuple[str, list[str]]) -> None:
    assert tf_roles({"TF_CONFIG": text} if text else {}) == found
