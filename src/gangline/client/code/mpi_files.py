"""What the pods of an MPI program need beside its code, for whichever MPI their image has. Pure."""

from __future__ import annotations

import json
from pathlib import Path

from gangline.api.mpijob import MPIJob, MPIJobSpec
from gangline.jobs.environment import HOSTFILE_PATH, KUBEXEC_PATH, ROLE_VARIABLE, launcher_environment
from gangline.jobs.remote_access import KUBEXEC_SCRIPT
from gangline.launch.mpi import Flavour, MpiInstallation
from gangline.launch.mpirun import RankRequest, mpirun_line

MASTER_PORT = 29500
"""As in ``launch.pods.pod_ranks``, which only a pod's own Python can import."""
_FLAVOURS: dict[Flavour, str] = {"openmpi": "OpenMPI", "mpich": "MPICH", "intel": "Intel"}
_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT")


def mpi_files(
    program: tuple[str, ...], ranks: int, per_pod: int, hosts: list[str], folder: str
) -> dict[str, str]:
    """Return the text of the plan, of the host lists, and of what stands in for ssh, by file name.

    Args:
        program: words of each rank.
        ranks: in all.
        per_pod: ranks of each pod; the last may have fewer.
        hosts: names of the pods in order.
        folder: where the pods have the files.
    """
    counts = [min(per_pod, ranks - index * per_pod) for index in range(len(hosts))]
    plan: dict[str, object] = {"hosts": hosts}
    for flavour in _FLAVOURS:
        request = RankRequest(
            count=ranks,
            per_host=per_pod,
            environment={"MASTER_ADDR": hosts[0], "MASTER_PORT": str(MASTER_PORT)},
            on_this_host=len(hosts) == 1,
        )
        line = mpirun_line(MpiInstallation(flavour, "", Path(), Path(), Path()), request, program)
        plan[flavour] = {"line": line, "environment": _environment(flavour, per_pod, len(hosts), folder)}
    return {
        "mpi.json": json.dumps(plan),
        "hosts-openmpi": _host_list("{} slots={}", hosts, counts),
        # Hydra takes the first pod for another host, and asks for a shell there, unless by its bare name.
        "hosts-hydra": _host_list("{}:{}", [hosts[0].partition(".")[0], *hosts[1:]], counts),
        "kubexec.sh": KUBEXEC_SCRIPT,
    }


def _host_list(form: str, hosts: list[str], counts: list[int]) -> str:
    return "".join(form.format(host, count) + "\n" for host, count in zip(hosts, counts, strict=True))


def _environment(flavour: Flavour, per_pod: int, pods: int, folder: str) -> dict[str, str]:
    """Return what the launcher of a job would have, with the files of this folder."""
    spec = MPIJobSpec(
        slots_per_worker=per_pod, mpi_implementation=_FLAVOURS[flavour], run_launcher_as_worker=True
    )
    found = launcher_environment(MPIJob(spec=spec, needs_exec=True), [])
    files = {
        HOSTFILE_PATH: f"{folder}/hosts-{'openmpi' if flavour == 'openmpi' else 'hydra'}",
        KUBEXEC_PATH: f"{folder}/kubexec.sh",
    }
    variables = {one["name"]: files.get(one["value"], one["value"]) for one in found}
    if pods == 1:
        variables = {name: value for name, value in variables.items() if value not in files.values()}
    del variables[ROLE_VARIABLE]
    allowed = {f"{name}{end}": "1" for name in _ROOT for end in ("", "_CONFIRM")}
    return variables | allowed | {"GANGLINE_AGENT": folder}
