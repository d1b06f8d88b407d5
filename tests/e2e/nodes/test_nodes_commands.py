"""The command line against a cluster with real nodes: results, logs that follow, exit codes, Ctrl-C.

Only with our own operator: the commands read statuses as it writes them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operator_under_test import changed

from gangline.api.resources import MPIJOBS

Build = Callable[..., dict[str, Any]]
Image = Callable[[str], str]
LIMIT_S = 90.0
pytestmark = changed("the command line is tested with our operator")


class Commands:
    """Run `gangline` with ``--context`` of the nodes' kubeconfig, in the namespace of a test."""

    def __init__(self, jobs: Any, home: Path) -> None:
        self._where = ["--context", "tests", "--namespace", jobs.namespace]
        kubeconfig = str(jobs.nodes.kubeconfig)
        self._environment = os.environ | {
            "KUBECONFIG": kubeconfig,
            "GANGLINE_HOME": str(home),
            "COLUMNS": "120",
        }

    async def start(self, *words: str) -> Process:
        """Start a command, with outputs as pipes."""
        verb, *rest = words
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gangline", verb, *self._where, *rest),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    async def __call__(self, *words: str) -> tuple[int | None, str, str]:
        """Run a command to its end; return exit code and outputs."""
        process = await self.start(*words)
        async with asyncio.timeout(LIMIT_S):
            out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()


@pytest.fixture
def gangline(jobs: Any, tmp_path: Path) -> Commands:
    return Commands(jobs, tmp_path / "home")


@pytest.fixture
def manifest(image: Image, make_job: Build, tmp_path: Path) -> Callable[[str], str]:
    """Write a job whose launcher runs a shell line, and return the file."""

    def write(line: str) -> str:
        policy = {"cleanPodPolicy": "Running", "backoffLimit": 0}
        job = make_job(image("openmpi"), command=["sh", "-c", line], runPolicy=policy)
        job["spec"]["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = "Never"
        path = tmp_path / "job.yaml"
        path.write_text(json.dumps(job))
        return str(path)

    return write


async def line_of(process: Process, wanted: str) -> None:
    """Read a command's output up to a line."""
    assert process.stdout
    async with asyncio.timeout(LIMIT_S):
        while (line := await process.stdout.readline()).decode().strip() != wanted:
            assert line, f"ended without {wanted!r}"


async def test_run_prints_the_launchers_log_and_ends_as_it_does(
    gangline: Commands, manifest: Callable[[str], str]
) -> None:
    pi = "mpirun --allow-run-as-root -n 2 python3 /opt/pi.py"

    code, out, err = await gangline("run", manifest(f"{pi} && exit 7"))

    assert code == 7
    assert "Workers: 2 on 2 hosts" in out
    assert "the launcher exited with code 7" in err


async def test_run_of_a_job_that_succeeds(gangline: Commands, manifest: Callable[[str], str]) -> None:
    code, out, err = await gangline("run", manifest("echo well"))

    assert (code, out) == (0, "well\n"), err


async def test_interrupting_a_run_deletes_its_job(
    jobs: Any, gangline: Commands, manifest: Callable[[str], str]
) -> None:
    run = await gangline.start("run", manifest("echo begun; exec sleep 600"))
    await line_of(run, "begun")

    run.send_signal(signal.SIGINT)
    async with asyncio.timeout(LIMIT_S):
        _, err = await run.communicate()

    assert run.returncode == 130
    assert "deleted" in err.decode()
    assert await jobs.get(MPIJOBS, "pi") is None
    assert await jobs.pods() == []


async def test_logs_follow_until_the_launcher_ends(
    jobs: Any, gangline: Commands, manifest: Callable[[str], str]
) -> None:
    code, _, err = await gangline("apply", manifest("echo first; sleep 5; echo last"))
    assert code == 0, err
    await jobs.condition("Running")
    logs = await gangline.start("logs", "-f", "pi")
    await line_of(logs, "first")

    await line_of(logs, "last")
    async with asyncio.timeout(LIMIT_S):
        assert await logs.wait() == 0


async def test_a_job_is_listed_shown_and_deleted(
    jobs: Any, gangline: Commands, manifest: Callable[[str], str]
) -> None:
    assert (await gangline("apply", manifest("exec sleep 600")))[0] == 0
    await jobs.condition("Running")

    _, listed, _ = await gangline("list")
    _, shown, _ = await gangline("get", "pi")
    code, _, err = await gangline("delete", "pi")

    assert listed.splitlines()[1].split()[:3] == ["pi", "RUNNING", "MPIJOB"]
    assert {"pi-worker-0", "pi-worker-1"} <= set(shown.split())
    assert code == 0, err
    assert await jobs.get(MPIJOBS, "pi") is None
    assert (await gangline("get", "pi"))[0] != 0
