"""How ranks get into workers that run no ssh server.

MPIJobs of old versions had their ranks started through the exec API of Kubernetes, by a script that the
launcher used in place of ssh. On the one-machine cluster the remote shell takes the script's place; a cluster
without one cannot run such a job yet.
"""

from __future__ import annotations

from typing import Final

from gangline.api.mpijob import MPIJob
from gangline.jobs.settings import Settings

KUBEXEC_KEY: Final = "kubexec.sh"
KUBEXEC_SCRIPT: Final = """\
#!/bin/sh
# Stands where old MPIJobs expect the script that runs a command in another pod: HOST COMMAND...
exec gangline-rsh "$@"
"""
EXEC_NEEDED: Final = "ExecTransportNeeded"


def is_blocked(job: MPIJob, settings: Settings) -> bool:
    """Whether nothing could reach the workers of the job."""
    return job.needs_exec and job.worker_count > 0 and not settings.has_remote_shell


def explain_blocked(job: MPIJob) -> str:
    """Return why a job is held, and the ways on."""
    return (
        f"the workers of an MPIJob of {job.version} run no ssh server, and starting ranks in them through "
        "the exec API is not supported on this cluster yet: give the Worker an ssh server as its command "
        "(/usr/sbin/sshd -De), write the job as kubeflow.org/v2beta1, or run it on a one-machine cluster "
        "(gangline run)"
    )
