"""Run the examples as a user does: through the command line, on a cluster of the tests' own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
EXAMPLES = REPOSITORY / "examples"
COMMAND_TIMEOUT_S = 200

Gangline = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def cluster_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An environment whose one-machine cluster nobody else uses; the cluster is stopped at the end."""
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    environment["GANGLINE_HOME"] = str(tmp_path_factory.mktemp("home"))
    yield environment
    command = [sys.executable, "-m", "gangline", "down"]
    subprocess.run(command, env=environment, check=False, timeout=COMMAND_TIMEOUT_S, capture_output=True)


@pytest.fixture
def gangline(cluster_environment: dict[str, str]) -> Gangline:
    """Run one gangline command; both outputs come back as one text in `stdout`."""
    return _runner(cluster_environment)


@pytest.fixture
def gangline_in(cluster_environment: dict[str, str]) -> Callable[[Path], Gangline]:
    """Run gangline commands as in a shell with a virtual environment activated."""

    def activated(folder: Path) -> Gangline:
        search = f"{folder / 'bin'}{os.pathsep}{cluster_environment['PATH']}"
        return _runner(cluster_environment | {"PATH": search, "VIRTUAL_ENV": str(folder)})

    return activated


@pytest.fixture(scope="session")
def mpi_environments() -> Path:
    """The folder of the virtual environments with MPICH and Intel MPI (see tests/mpi_environments.py)."""
    folder = os.environ.get("GANGLINE_MPI_ENVIRONMENTS")
    if not folder:
        pytest.skip("GANGLINE_MPI_ENVIRONMENTS is not set: run `make test-mpi`")
    return Path(folder)


def _runner(environment: dict[str, str]) -> Gangline:
    def run(*words: str, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gangline", *words],
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )

    return run


@pytest.fixture
def examples() -> Path:
    """The folder of the examples."""
    return EXAMPLES
