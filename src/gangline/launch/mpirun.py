"""The command line that starts N ranks of a program and tells each one its place for torch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gangline.launch.hydra_tags import HYDRA_OPTIONS
from gangline.launch.mpi import MpiInstallation

MASTER_PORT_FIRST = 20000
MASTER_PORT_COUNT = 10000

_RANK_NAMES: dict[str, dict[str, str]] = {
    "openmpi": {
        "RANK": "OMPI_COMM_WORLD_RANK",
        "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
        "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
        "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    "mpich": {
        "RANK": "PMI_RANK",
        "WORLD_SIZE": "PMI_SIZE",
        "LOCAL_RANK": "MPI_LOCALRANKID",
        "LOCAL_WORLD_SIZE": "MPI_LOCALNRANKS",
    },
}
_RANK_NAMES["intel"] = _RANK_NAMES["mpich"]
"""Variables that each launcher sets for a rank, beside the ones that torch reads."""


@dataclass(frozen=True, slots=True)
class RankRequest:
    """How many ranks, and what they are told.

    Attributes:
        count: number of ranks in all, at least 1.
        per_host: slots of each pod.
        environment: variables with values for every rank.
        forwarded: names whose values the launcher's own environment has.
        working_dir: folder in which each rank starts; empty leaves it to the launcher.
        gpus_each: GPUs of the pod that each rank sees, by its place in the pod; 0 leaves all of them to all.
        on_this_host: all ranks start beside the launcher, whatever host list it is given otherwise.
    """

    count: int
    per_host: int
    environment: dict[str, str]
    forwarded: tuple[str, ...] = ()
    working_dir: str = ""
    gpus_each: int = 0
    on_this_host: bool = False


SAY_END = (
    "code=$?; [ $code = 0 ] || "
    """printf '@gangline {"kind":"rank-ended","rank":%d,"code":%d}\\n' $RANK $code; exit $code"""
)
"""What a rank's shell does last: a rank that failed says so in a record of its log. Open MPI 5 often names no
rank where the last one to end fails (5 of 12 times), or where one fails while others still start."""
_RUN_AND_SAY = f'trap : TERM INT HUP USR1 USR2; "$@" </dev/null; {SAY_END}'
"""Signals reach program and shell alike."""


def master_port(job: str, attempt: int = 0) -> int:
    """Return the port for torch's rendezvous, 20000 to 29999, the same for the same job and attempt."""
    digest = hashlib.sha256(f"{job}/{attempt}".encode()).digest()
    return MASTER_PORT_FIRST + int.from_bytes(digest[:4]) % MASTER_PORT_COUNT


def rank_script(mpi: MpiInstallation, gpus_each: int = 0) -> str:
    """Return the shell line that each rank runs before its program: torch's names from the launcher's.

    Ranks have no standard input: Open MPI gives rank 0 a pipe which stays open when its own input has ended,
    so that a question would wait for ever.
    With ``gpus_each`` every rank keeps its share of the pod's ``CUDA_VISIBLE_DEVICES`` and sees no other.
    """
    names = _RANK_NAMES[mpi.flavour]
    exports = " ".join(f"{ours}=${theirs}" for ours, theirs in names.items())
    share = ""
    if gpus_each:
        first = f"$((LOCAL_RANK * {gpus_each} + 1))"
        last = f"$((LOCAL_RANK * {gpus_each} + {gpus_each}))"
        cut = f'$(echo "$CUDA_VISIBLE_DEVICES" | cut -d, -f{first}-{last})'
        share = f"CUDA_VISIBLE_DEVICES={cut}; export CUDA_VISIBLE_DEVICES; "
    run = _RUN_AND_SAY if mpi.flavour == "openmpi" else 'exec "$@" </dev/null'
    return f"export {exports}; {share}{run}"


def mpirun_line(mpi: MpiInstallation, ranks: RankRequest, program: Sequence[str]) -> list[str]:
    """Return the launcher's command line: every line of output tagged with its rank, torch's variables set.

    Values of ``ranks.environment`` travel on the line itself, so a remote shell needs no help to carry them.
    """
    assert ranks.count >= 1, "at least one rank"
    rank = ["sh", "-c", rank_script(mpi, ranks.gpus_each), "rank", *program]
    if mpi.flavour == "openmpi":
        return [*_openmpi_head(ranks), *rank]
    return [*_hydra_head(ranks), *rank]


def _openmpi_head(ranks: RankRequest) -> list[str]:
    line = ["mpirun", "-n", str(ranks.count), "--tag-output"]
    if ranks.on_this_host:
        line += ["--host", f"localhost:{ranks.count}"]
    if ranks.working_dir:
        line += ["--wdir", ranks.working_dir]
    for name in ranks.forwarded:
        line += ["-x", name]
    for name, value in ranks.environment.items():
        line += ["-x", f"{name}={value}"]
    return line


def _hydra_head(ranks: RankRequest) -> list[str]:
    line = ["mpirun", "-n", str(ranks.count), "-ppn", str(ranks.per_host)]
    line += HYDRA_OPTIONS
    if ranks.on_this_host:
        line += ["-hosts", "localhost"]
    if ranks.working_dir:
        line += ["-wdir", ranks.working_dir]
    if ranks.forwarded:
        line += ["-genvlist", ",".join(ranks.forwarded)]
    for name, value in ranks.environment.items():
        line += ["-genv", name, value]
    return line


def ranks_asked_for(command: Sequence[str]) -> int | None:
    """Return how many ranks a launcher's command line asks for; ``None`` if it says none or oversubscribes.

    Only a line that begins with ``mpirun`` or ``mpiexec`` and is not inside a shell is understood.
    """
    if not command or command[0].rpartition("/")[2] not in ("mpirun", "mpiexec"):
        return None
    if any("oversubscribe" in word.lower() for word in command):
        return None
    for option, value in pairwise(command[1:]):
        if option in ("-n", "-np", "--n", "--np", "-c") and value.isdigit():
            return int(value)
        if not option.startswith("-") and "/" in option:
            return None
    return None
