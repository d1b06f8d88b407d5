"""The images of `make images` in podman, and containers of them as a cluster would have them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Done = subprocess.CompletedProcess[str]
Podman = Callable[..., Done]
LIMIT_S = 300
COMMAND_LIMIT_S = 60


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.containers)
            item.add_marker(pytest.mark.timeout(LIMIT_S))


@pytest.fixture(scope="session")
def podman() -> Podman:
    """Run podman; what it printed."""
    if os.geteuid() != 0:
        pytest.skip("containers need root")
    if missing := [program for program in ("podman", "runc") if not shutil.which(program)]:
        pytest.skip(f"{missing[0]} is not installed")

    def run(*words: str | Path) -> Done:
        command = ["podman", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_LIMIT_S)

    return run


@pytest.fixture(scope="session")
def image(podman: Podman, archives: list[Path]) -> Iterator[Callable[[str], str]]:
    """Return what loads an image: ``image("gangline")`` is its name for podman."""
    loaded = {}

    def load(name: str) -> str:
        if name not in loaded:
            (archive,) = (one for one in archives if one.name.rpartition("-")[0] == name.replace("/", "-"))
            done = podman("load", "-q", "-i", archive)
            assert done.returncode == 0, done.stderr
            loaded[name] = done.stdout.split()[-1]
        return loaded[name]

    yield load
    if loaded:
        podman("rmi", "-f", *loaded.values())


@pytest.fixture(scope="session")
def run(podman: Podman) -> Podman:
    """Run a command in a container without a network whose root cannot be written to, as services have it."""
    # podman would raise limits, which containers in containers may not
    limits = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096")

    def in_container(image: str, *command: str) -> Done:
        return podman("run", "--rm", "--read-only", "--network=none", *limits, image, *command)

    return in_container
