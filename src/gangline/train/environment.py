"""A rank's place in its job, read from whatever launcher's environment it was started in. Pure.

Launchers are asked in a fixed order: torch's own names first (torchrun, PyTorchJob, ``gangline run``), then
Horovod, the MPIs, Slurm, PMIx, TFJob. Two of them that disagree are an error, except where one is known to
stand inside the other (torchrun started by ``srun`` or by ``mpirun``).

Source: the variables that Open MPI, Hydra, MVAPICH2, Slurm, torchrun and the operators document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from gangline.errors import UserError

MASTER_PORT_FIRST, MASTER_PORT_COUNT = 20000, 10000
MASTER_PORT_USUAL = 29500
BOARD_VARIABLE = "GANGLINE_ELASTIC_BOARD"
"""Where the launcher of an elastic training shows who trains with whom."""
GENERATION_VARIABLE = "GANGLINE_GENERATION"
"""Counts the sets of ranks of an elastic training, from 1 on."""

Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ranks:
    """A rank's place; what a launcher does not say is ``None`` until the ranks have met.

    Attributes:
        rank: 0 to ``size - 1``.
        size: number of ranks in the job.
        local_rank: place among the ranks of this node.
        local_size: number of ranks on this node.
        node_rank: place of this node, in the order of the ranks.
        launcher: who said so, for people.
        job: the same on all ranks of a job and on no other job's, ``""`` when the launcher has no such name.
        master: host and port at which rank 0 is to listen; ``None`` when the ranks must find each other.
        agent_store: torchrun's agent listens at ``master``, so that rank 0 must not.
    """

    rank: int
    size: int
    local_rank: int | None = None
    local_size: int | None = None
    node_rank: int | None = None
    launcher: str = "none"
    job: str = ""
    master: tuple[str, int] | None = None
    agent_store: bool = False


@dataclass(frozen=True, slots=True)
class _Names:
    launcher: str
    rank: str
    size: tuple[str, ...]
    local_rank: str = ""
    local_size: str = ""
    node_rank: str = ""
    job: tuple[str, ...] = ()


_TORCH = _Names(
    *("torch", "RANK", ("WORLD_SIZE",), "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"),
    job=("TORCHELASTIC_RUN_ID",),
)
_SLURM = _Names(
    *("Slurm", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), "SLURM_LOCALID"),
    node_rank="SLURM_NODEID",
    job=("SLURM_JOB_ID", "SLURM_STEP_ID"),
)
_LAUNCHERS = (
    _TORCH,
    _Names(
        *("Horovod", "HOROVOD_RANK", ("HOROVOD_SIZE",), "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
        job=("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
    ),
    _Names(
        *("Open MPI", "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
        *("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        job=("PMIX_NAMESPACE",),
    ),
    _Names(
        *("MVAPICH2", "MV2_COMM_WORLD_RANK", ("MV2_COMM_WORLD_SIZE",)),
        *("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ),
    _Names("Hydra (MPICH, Intel MPI)", "PMI_RANK", ("PMI_SIZE",), "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    _SLURM,
    _Names("PMIx", "PMIX_RANK", ("PMIX_SIZE", "WORLD_SIZE"), job=("PMIX_NAMESPACE",)),
)


def read_ranks(environment: Environment) -> Ranks:
    """Return this process's place, that of a single rank when no launcher is found.

    Raises:
        UserError: variables are missing, malformed or contradict each other; the message names them.
    """
    found = [names for names in _LAUNCHERS if _speaks(names, environment)]
    if not found:
        if "TF_CONFIG" in environment:
            return _from_tf_config(environment["TF_CONFIG"])
        _check_not_torchrun(environment)
        return Ranks(0, 1, 0, 1, 0)
    ranks = _place(found[0], environment)
    if "TORCHELASTIC_RUN_ID" not in environment:
        _check_agreement(found, environment)
        if ranks.local_rank is None:
            _check_not_torchrun(environment)
    return _with_master(ranks, environment)


def _speaks(names: _Names, environment: Environment) -> bool:
    if names is _SLURM:
        return names.rank in environment and any(name in environment for name in names.size)
    if names.launcher == "PMIx" or names is not _TORCH:
        return names.rank in environment
    if names.rank in environment:
        return True
    # WORLD_SIZE alone may be meant for a launcher that tells the rank but no size.
    others = any(other.rank in environment for other in _LAUNCHERS if other is not _TORCH)
    return names.size[0] in environment and not others


def _place(names: _Names, environment: Environment) -> Ranks:
    size_name = next((name for name in names.size if name in environment), "")
    for wanted, other in ((names.rank, size_name), (size_name, names.rank)):
        if not wanted or wanted not in environment:
            missing = wanted or " or ".join(names.size)
            known = f"`{other}={environment[other]}` is" if other in environment else "variables of it are"
            raise UserError(
                f"cannot tell this rank's place: {known} set by {names.launcher}, but not `{missing}`",
                hint=f"let the launcher set it, for example `mpirun -x {missing.split()[-1]}=N …`, "
                "or unset both to train alone",
            )
    rank, size = _number(environment, names.rank), _number(environment, size_name)
    if not 0 <= rank < size:
        raise UserError(
            f"`{names.rank}={rank}` is no rank of `{size_name}={size}`; ranks are 0 to {size - 1}"
        )
    if names is _SLURM and size > 1 and "SLURM_STEP_ID" not in environment:
        raise UserError(
            f"this process runs in a Slurm allocation of {size} tasks (`{size_name}={size}`), but was not "
            "started by srun (no `SLURM_STEP_ID`): its peers will never come",
            hint="start it with `srun python …`",
        )
    local_size = _optional(environment, names.local_size)
    if names is _SLURM:
        local_size = slurm_local_size(environment)
    is_torchrun = names is _TORCH and "TORCHELASTIC_RUN_ID" in environment
    return Ranks(
        rank,
        size,
        _optional(environment, names.local_rank),
        local_size,
        _optional(environment, names.node_rank),
        "torchrun" if is_torchrun else names.launcher,
        ".".join(environment[name] for name in names.job if environment.get(name)),
    )


def _number(environment: Environment, name: str) -> int:
    text = environment[name].strip()
    if not re.fullmatch(r"-?\d+", text):
        raise UserError(f"`{name}={environment[name]}` is no whole number")
    return int(text)


def _optional(environment: Environment, name: str) -> int | None:
    return _number(environment, name) if name and environment.get(name) else None


def _check_agreement(found: list[_Names], environment: Environment) -> None:
    first = found[0]
    ours = _place(first, environment)
    for other in found[1:]:
        if other is _SLURM or other.launcher == "PMIx":
            continue  # these also describe what stands around the launcher
        theirs = _place(other, environment)
        if (ours.rank, ours.size) != (theirs.rank, theirs.size):
            raise UserError(
                f"two launchers disagree: `{first.rank}={ours.rank}` of {ours.size} ({first.launcher}), "
                f"but `{other.rank}={theirs.rank}` of {theirs.size} ({other.launcher})",
                hint=f"unset the variables of the one that did not start this process, {first.rank} and "
                f"{first.size[0]}, or {other.rank} and {other.size[0]}",
            )


def _check_not_torchrun(environment: Environment) -> None:
    """Refuse an operator's environment that is meant for torchrun in every pod."""
    per_node, nodes = environment.get("PET_NPROC_PER_NODE", ""), environment.get("PET_NNODES", "")
    many_here = per_node.isdigit() and int(per_node) > 1
    elsewhere = "RANK" not in environment and nodes not in ("", "1", "1:1")
    if many_here or elsewhere:
        name, value = ("PET_NPROC_PER_NODE", per_node) if many_here else ("PET_NNODES", nodes)
        raise UserError(
            f"`{name}={value}` asks for torchrun in every pod, but this process was not started by it",
            hint="write the pod's command as `torchrun train.py`",
        )


def slurm_local_size(environment: Environment) -> int | None:
    """Return the number of tasks on this node from Slurm's notation, for example ``4(x2),3``."""
    text = environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_TASKS_PER_NODE") or ""
    counts: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            return None
        counts += [int(match[1])] * int(match[2] or 1)
    node = _optional(environment, "SLURM_NODEID") or 0
    return counts[node] if node < len(counts) else None


def slurm_first_host(nodes: str) -> str:
    """Return the first host of Slurm's notation: ``gpu[07-09,12],login`` is ``gpu07``."""
    match = re.match(r"([^,\[]+)(?:\[(\w+)[^\]]*\]([^,\[]*))?", nodes)
    return f"{match[1]}{match[2] or ''}{match[3] or ''}" if match else ""


def job_port(job: str) -> int:
    """Return a port for a job where nobody can tell the others which one was free: 20000 to 29999."""
    return MASTER_PORT_FIRST + int.from_bytes(sha256(job.encode()).digest()[:4], "big") % MASTER_PORT_COUNT


def _with_master(ranks: Ranks, environment: Environment) -> Ranks:
    address = environment.get("MASTER_ADDR", "")
    if address:
        usual = job_port(ranks.job) if ranks.job else MASTER_PORT_USUAL
        port = _optional(environment, "MASTER_PORT") or usual
        agent = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        job = ranks.job
        if attempt := environment.get("TORCHELASTIC_RESTART_COUNT"):
            job = f"{job}/{attempt}"
        return replace(ranks, master=(address, port), agent_store=agent, job=job)
    if ranks.launcher == "Slurm" and ranks.local_size != ranks.size:
        nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST") or ""
        if host := slurm_first_host(nodes):
            return replace(ranks, master=(host, job_port(ranks.job)))
    return ranks


def tf_roles(environment: Environment) -> tuple[str, list[str]]:
    """Return what a TFJob calls this process, ``worker``, and all its roles; nothing outside of one."""
    try:
        config = json.loads(environment.get("TF_CONFIG") or "{}")
        return str((config.get("task") or {}).get("type") or ""), [*(config.get("cluster") or {})]
    except (ValueError, AttributeError, TypeError):
        return "", []  # reading the ranks tells what is wrong


def _from_tf_config(text: str) -> Ranks:
    """Return the place of a TFJob's replica: chief or master first, then workers."""
    try:
        config: Any = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        role, index = str(task["type"]), int(task["index"])
        trains = [kind for kind in ("chief", "master", "worker") if cluster.get(kind)]
        hosts = [(kind, number) for kind in trains for number in range(len(cluster[kind]))]
        addresses = [address for kind in trains for address in cluster[kind]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"`TF_CONFIG` cannot be read: {type(error).__name__}: {error}") from error
    if (role, index) not in hosts:
        raise UserError(
            f"`TF_CONFIG` calls this process `{role}` {index}; only chief, master and worker train",
            hint="leave parameter servers and evaluators out of the job",
        )
    host, _, port = str(addresses[0]).rpartition(":")
    master = (host, int(port)) if port.isdigit() and len(hosts) > 1 else None
    if len(hosts) > 1 and master is None:
        raise UserError(f"`TF_CONFIG` has no host:port for the first rank (found `{addresses[0]}`)")
    return Ranks(
        hosts.index((role, index)), len(hosts), launcher="TFJob", job=str(addresses[0]), master=master
    )


def complete(ranks: Ranks, nodes: list[str]) -> Ranks:
    """Return the place with nothing left out, from the node of every rank.

    Args:
        ranks: as the launcher told it; what it said stays.
        nodes: a name for each rank's node, the same for ranks that share one.
    """
    mine = nodes[ranks.rank]
    together = [rank for rank, node in enumerate(nodes) if node == mine]
    return replace(
        ranks,
        local_rank=together.index(ranks.rank) if ranks.local_rank is None else ranks.local_rank,
        local_size=len(together) if ranks.local_size is None else ranks.local_size,
        node_rank=list(dict.fromkeys(nodes)).index(mine) if ranks.node_rank is None else ranks.node_rank,
    )
