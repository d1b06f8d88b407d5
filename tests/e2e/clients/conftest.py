"""Where the programs of others are that `make test-clients` builds and fetches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def clients_python() -> str:
    """A Python with others' clients (see tests/clients_environment.py)."""
    return _given("GANGLINE_CLIENTS_PYTHON")


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder with programs of others and the install files of the MPI operator (see builds/build.sh)."""
    return Path(_given("GANGLINE_CLIENTS_PROGRAMS"))


def _given(variable: str) -> str:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} is not set: run `make test-clients`")
    return value
