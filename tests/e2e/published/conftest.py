"""What the published manifests are run with, as they are, on one-machine clusters of the tests' own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "published"
SAYING_PYTHON = """#!/bin/sh
[ -f "$1" ] && echo "rank ${OMPI_COMM_WORLD_RANK} of ${OMPI_COMM_WORLD_SIZE} on $HOSTNAME \
has $CUDA_VISIBLE_DEVICES and runs $*"
"""
SAID = re.compile(r"rank (\d+) of (\d+) on (\S+) has (\S*) and runs (.*)$", re.MULTILINE)


@pytest.fixture(scope="session")
def saying_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment whose Python says what it was told to run, by which rank, and on which GPUs."""
    environment = tmp_path_factory.mktemp("saying")
    (environment / "bin").mkdir()
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\n")
    python = environment / "bin" / "python"
    python.write_text(SAYING_PYTHON)
    python.chmod(0o755)
    return environment


@pytest.fixture(scope="session")
def said() -> Callable[[str], dict[int, tuple[int, str, str, str]]]:
    """Return what each rank said in a log: how many there are, its host, its GPUs, its command line."""
    return lambda log: {int(rank): (int(size), *rest) for rank, size, *rest in SAID.findall(log)}


@pytest.fixture
def published() -> Path:
    """The folder of the published manifests."""
    return FOLDER
