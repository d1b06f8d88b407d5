"""Environment variables that tell an MPI where the hosts are and how to reach them.

Open MPI 4 (ORTE) and Open MPI 5 (PRRTE) each ignore the other's variables without a word, and PRRTE without
a host list starts every rank on the launcher; so both families are always set.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from gangline.api.mpijob import MPIJob

ROLE_VARIABLE: Final = "K_MPI_JOB_ROLE"
HOSTFILE_PATH: Final = "/etc/mpi/hostfile"
KUBEXEC_PATH: Final = "/etc/mpi/kubexec.sh"
_SSH_ARGUMENTS: Final = "-o ConnectionAttempts=10"


def launcher_environment(job: MPIJob, user: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return what is appended to the launcher's variables.

    Args:
        job: the job.
        user: the variables that the container has already; the binding policy yields to them.
    """
    slots = str(job.spec.slots_per_worker)
    variables = {ROLE_VARIABLE: "launcher"}
    match job.spec.mpi_implementation:
        case "Intel":
            variables |= {
                "I_MPI_HYDRA_HOST_FILE": HOSTFILE_PATH,
                "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": _SSH_ARGUMENTS,
                "I_MPI_PERHOST": slots,
            }
        case "MPICH":
            variables |= {"HYDRA_HOST_FILE": HOSTFILE_PATH, "HYDRA_LAUNCH_EXTRA_ARGS": _SSH_ARGUMENTS}
        case _:
            variables |= open_mpi_environment(slots, {variable.get("name") for variable in user})
    if job.needs_exec:
        variables |= dict.fromkeys(_AGENTS, KUBEXEC_PATH)
    if not job.spec.run_launcher_as_worker:
        # Hides the GPUs of its node from a launcher that takes no ranks.
        variables |= {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
    return [{"name": name, "value": value} for name, value in variables.items()]


_BINDING_POLICIES: Final = ("OMPI_MCA_hwloc_base_binding_policy", "PRTE_MCA_hwloc_default_binding_policy")
"""Each pod looks like a node of its own, so bound ranks of several pods would share core 0 of the machine."""


_AGENTS: Final = (
    "OMPI_MCA_plm_rsh_agent",
    "PRTE_MCA_plm_ssh_agent",
    "HYDRA_LAUNCHER_EXEC",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
)
"""Each MPI's name for the program that stands in for ssh."""


def open_mpi_environment(slots: str, given: Container[Any]) -> dict[str, str]:
    """Return what Open MPI 4 and 5 read, each by its own names.

    Args:
        slots: ranks of each host.
        given: names of variables that the container has already; the binding policy yields to them.
    """
    return {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": HOSTFILE_PATH,
        "OMPI_MCA_plm_rsh_args": _SSH_ARGUMENTS,
        "OMPI_MCA_orte_set_default_slots": slots,
        # With `true` PRRTE takes the launcher's own line for another host and starts a shell to itself;
        # the name that it hands to the shell is the full one in any case (tried with 5.0.11).
        "PRTE_MCA_prte_keep_fqdn_hostnames": "false",
        "PRTE_MCA_prte_default_hostfile": HOSTFILE_PATH,
        # No arguments for ssh: PRRTE hands them on to the hosts that start others (from 65 hosts on) without
        # what follows the `=`, and ssh refuses the rest (tried with 5.0.11). The file `config` has them.
        "PRTE_MCA_prte_set_default_slots": slots,
    } | {name: "none" for name in _BINDING_POLICIES if name not in given}
