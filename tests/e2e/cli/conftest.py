"""Run commands as a user does, on clusters of the tests' own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

COMMAND_TIMEOUT_S = 180
WAIT_S = 60.0


class Commands:
    """A home with its clusters, and ways to run commands in it."""

    def __init__(self, home: Path) -> None:
        self.environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        self.environment |= {"GANGLINE_HOME": str(home), "COLUMNS": "120"}
        self.home = home

    def start(self, *words: str, cwd: Path | None = None, **options: object) -> subprocess.Popen[str]:
        """Start one command, outputs as pipes unless told otherwise."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        return subprocess.Popen(
            [sys.executable, "-m", "gangline", *words],
            env=self.environment,
            cwd=cwd or self.home,
            stdin=subprocess.DEVNULL,
            text=True,
            **options,  # type: ignore[call-overload]
        )

    def __call__(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        process = self.start(*words, cwd=cwd)
        try:
            out, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(list(words), process.returncode, out, err)


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds, at most a minute."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for {what}"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def session_home() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="gangline-cli-"))
    yield home
    Commands(home)("down", "--purge")
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def gangline(session_home: Path) -> Commands:
    """Commands on a cluster that the tests of this session share."""
    return Commands(session_home)


@pytest.fixture
def fresh() -> Iterator[Commands]:
    """Commands on a home of this test alone; its cluster is stopped at the end."""
    home = Path(tempfile.mkdtemp(prefix="gangline-cli-"))
    commands = Commands(home)
    yield commands
    commands("down", "--purge")
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def commands_of() -> Callable[[Path], Commands]:
    """Run commands in a home of the caller's."""
    return Commands


@pytest.fixture
def until() -> Callable[[Callable[[], object], str], None]:
    """Wait for a condition."""
    return wait_for


@pytest.fixture
def pod_manifest(tmp_path: Path) -> Callable[..., Path]:
    """Write a Pod that runs a shell line, and return the file."""

    def write(name: str, line: str, *, image: str = "gangline/base", more: str = "") -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_text(
            f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  restartPolicy: Never\n"
            f"  terminationGracePeriodSeconds: 1\n  containers:\n    - name: main\n      image: {image}\n"
            f"      command: [sh, -c, {line!r}]\n{more}"
        )
        return path

    return write


@pytest.fixture
def held_pod(
    pod_manifest: Callable[..., Path], tmp_path: Path
) -> Callable[[str], tuple[str, Callable[[], None]]]:
    """Write a Pod that says `on`, and `off` once it is let go; return the file and what lets it go."""

    def write(name: str) -> tuple[str, Callable[[], None]]:
        go = tmp_path / "go"
        line = f"echo on; until [ -e {go} ]; do sleep 0.05; done; echo off"
        more = f"      volumeMounts: [{{name: told, mountPath: {tmp_path}}}]\n"
        more += f"  volumes: [{{name: told, hostPath: {{path: {tmp_path}}}}}]\n"
        return str(pod_manifest(name, line, more=more)), go.touch

    return write
