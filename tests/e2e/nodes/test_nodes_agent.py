"""Ranks that reach their workers without an ssh server: MPIJobs of old versions, and those that ask for it.

In scope: the rank agent in real containers, with each MPI's own launcher. Out of scope: its protocol
(tests/integration/launch/test_rank_agent.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from operator_under_test import changed

from gangline.api.resources import MPIJOB_VERSIONS

pytestmark = changed("the agent is ours")
PI = ["mpirun", "-n", "2", "python3", "/opt/pi.py"]
AS_NOBODY = {
    "runAsUser": 65534,
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
ASKED = {"gangline.dev/rank-transport": "agent"}


async def succeeds(jobs: Any) -> str:
    """Wait until the job has succeeded on both workers; return what its launcher printed."""
    await jobs.condition("Succeeded")
    log = str(await jobs.launcher_log())
    assert re.search(r"pi is approximately 3\.1", log)
    assert "Workers: 2 on 2 hosts" in log
    return log


@pytest.mark.parametrize("idle", [None, ["sleep", "infinity"]], ids=["no command", "sleep"])
async def test_a_job_of_v1_runs_with_workers_that_sleep(
    jobs: Any, image: Callable[[str], str], idle: list[str] | None
) -> None:
    launcher = {"name": "main", "image": image("openmpi"), "command": [*PI]}
    launcher["command"].insert(1, "--allow-run-as-root")
    worker = {"name": "main", "image": image("openmpi"), **({"command": idle} if idle else {})}
    brief = {"terminationGracePeriodSeconds": 1}
    roles = {
        "Launcher": {"replicas": 1, "template": {"spec": {"containers": [launcher], **brief}}},
        "Worker": {"replicas": 2, "template": {"spec": {"containers": [worker], **brief}}},
    }
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": "pi"},
        "spec": {"slotsPerWorker": 1, "cleanPodPolicy": "Running", "mpiReplicaSpecs": roles},
    }

    job["metadata"]["namespace"] = jobs.namespace
    (v1,) = (one for one in MPIJOB_VERSIONS if one.version == "v1")
    await jobs.client.create(v1, job)

    await succeeds(jobs)

    async def workers_are_gone() -> bool:
        return not await jobs.pods("worker")

    await jobs.until(workers_are_gone, "end of the workers")


@pytest.mark.parametrize("mpi", ["openmpi", "mpich", "intel"])
async def test_a_job_that_asks_for_the_agent_needs_neither_root_nor_ssh(
    jobs: Any, image: Callable[[str], str], make_job: Callable[..., dict[str, Any]], mpi: str
) -> None:
    implementation = {"openmpi": "OpenMPI", "mpich": "MPICH", "intel": "Intel"}[mpi]
    job = make_job(image(mpi), command=PI, mpiImplementation=implementation)
    job["metadata"]["annotations"] = ASKED
    for role in job["spec"]["mpiReplicaSpecs"].values():
        role["template"]["spec"]["containers"][0]["securityContext"] = AS_NOBODY

    await jobs.submit(job)

    await succeeds(jobs)


async def test_a_rank_that_fails_ends_the_job_with_its_code(
    jobs: Any, image: Callable[[str], str], make_job: Callable[..., dict[str, Any]]
) -> None:
    words = ["mpirun", "--allow-run-as-root", "-n", "2", "sh", "-c", "exit $((OMPI_COMM_WORLD_RANK * 7))"]
    job = make_job(image("openmpi"), command=words, runPolicy={"cleanPodPolicy": "None", "backoffLimit": 0})
    job["metadata"]["annotations"] = ASKED
    job["spec"]["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = "Never"

    await jobs.submit(job)

    await jobs.condition("Failed")
    (launcher,) = await jobs.pods("launcher")
    (container,) = launcher["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 7
    phases = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in await jobs.pods("worker")}
    assert phases == {"pi-worker-0": "Running", "pi-worker-1": "Running"}  # ranks end, the agent goes on
