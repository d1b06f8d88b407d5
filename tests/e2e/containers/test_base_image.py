"""The image `gangline/base` in real containers: jobs of two workers, Open MPI over ssh, as whom they like."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Obj = dict[str, Any]

NAME = "localhost/gangline-tests-base:1"
"""Not its own, by which it is served here without a container."""

RANK = """
import os
from mpi4py import MPI
where = open("/proc/sys/kernel/hostname").read().strip()
print(where, os.getuid(), os.getcwd(), MPI.COMM_WORLD.allreduce(1), flush=True)
"""
STRICT = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the Pod Security Standard `restricted` wants of a container."""


@pytest.fixture(scope="module")
def cluster(
    start_cluster: Callable[..., AbstractContextManager[Any]], archives: list[Path], podman: object
) -> Iterator[Any]:
    """A cluster of this machine with the image in a containerd of its own."""
    if missing := [program for program in ("containerd", "ctr") if not shutil.which(program)]:
        pytest.skip(f"{missing[0]} is not installed")
    (archive,) = (one for one in archives if one.name.startswith("gangline-base-"))
    with start_cluster("--isolation", "network", "--runtime", "containerd") as started:
        # ...: `ctr --address ... --namespace gangline images import FILE`
        said = started.gangline("status").stdout
        ctr = said.partition("`ctr ")[2].partition(" images import FILE`")[0].split()
        assert ctr, said
        for words in (["import", archive], ["tag", f"docker.io/{loaded_name(archive)}", NAME]):
            done = started.run("ctr", *ctr, "images", *map(str, words))
            assert done.returncode == 0, done.stderr
        yield started


def loaded_name(archive: Path) -> str:
    return f"gangline/base:{archive.stem.rpartition('-')[2]}"


@pytest.fixture
def run(cluster: Any, tmp_path: Path) -> Callable[..., CompletedProcess[str]]:
    """Run an MPIJob with these fields whose ranks say who and where they are."""

    def submitted(security: Obj, *options: str, **spec: Any) -> CompletedProcess[str]:
        line = ["mpirun", *options, "--bind-to", "none", "-n", "2", "python3", "-c", RANK]
        common = {"image": NAME, "securityContext": security}
        roles = {
            "Launcher": {"template": {"spec": {"containers": [{"name": "l", "command": line, **common}]}}},
            "Worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "w", **common}]}}},
        }
        job = {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": {"name": "who"},
            "spec": {"runPolicy": {"backoffLimit": 0}, **spec, "mpiReplicaSpecs": roles},
        }
        path = tmp_path / "job.yaml"
        path.write_text(json.dumps(job))
        done: CompletedProcess[str] = cluster.gangline("run", str(path))
        return done

    return submitted


def ranks(ended: CompletedProcess[str]) -> list[str]:
    """Return what ranks said; mpirun warns at times that a process of its own was quicker (setpgid)."""
    return sorted(line for line in ended.stdout.splitlines() if line.startswith("who-worker-"))


def test_it_runs_as_a_user_where_root_may_not(run: Callable[..., CompletedProcess[str]]) -> None:
    ended = run(STRICT, sshAuthMountPath="/home/mpiuser/.ssh")

    assert ended.returncode == 0, ended.stderr
    assert ranks(ended) == [f"who-worker-{index} 1000 /home/mpiuser 2" for index in range(2)]


def test_it_runs_as_root_where_a_job_says_so(run: Callable[..., CompletedProcess[str]]) -> None:
    ended = run({"runAsUser": 0}, "--allow-run-as-root")

    assert ended.returncode == 0, ended.stderr
    assert [line.split()[1] for line in ranks(ended)] == ["0", "0"]
