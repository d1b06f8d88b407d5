"""The image `gangline/base` in a namespace that lets no root run (Pod Security Standard `restricted`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangline import __version__
from gangline.api.resources import NAMESPACES

IMAGE = f"gangline/base:{__version__}"
RANK = "import os; from mpi4py import MPI; print('user', os.getuid(), 'of', MPI.COMM_WORLD.allreduce(1))"
STRICT = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture(scope="module")
def base(nodes: Any, archives: list[Path]) -> str:
    """The image's name; it is on the nodes."""
    (archive,) = (one for one in archives if one.name.startswith("gangline-base-"))
    nodes.load(archive)
    return IMAGE


@pytest.mark.parametrize(
    ("annotations", "path"),
    [({}, "/home/mpiuser/.ssh"), ({"gangline.dev/rank-transport": "agent"}, "/root/.ssh")],
    ids=["ssh", "agent"],
)
async def test_ranks_run_as_a_user_in_a_restricted_namespace(
    jobs: Any, base: str, make_job: Callable[..., dict[str, Any]], annotations: dict[str, str], path: str
) -> None:
    restricted = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await jobs.client.patch(NAMESPACES, jobs.namespace, restricted)
    line = ["mpirun", "-n", "2", "python3", "-c", RANK]
    job = make_job(base, command=line, sshAuthMountPath=path)
    job["metadata"]["annotations"] = annotations
    for replica in job["spec"]["mpiReplicaSpecs"].values():
        (container,) = replica["template"]["spec"]["containers"]
        container["securityContext"] = STRICT

    await jobs.submit(job)
    await jobs.condition("Succeeded")

    said = (await jobs.launcher_log()).splitlines()
    assert [line for line in said if line.startswith("user")] == ["user 1000 of 2"] * 2
