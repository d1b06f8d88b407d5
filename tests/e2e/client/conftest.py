"""One cluster for the tests of the Python client, in a home of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import gangline


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Gangline's files, also of processes that a test starts."""
    folder = Path(tempfile.mkdtemp(prefix="gangline-client-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GANGLINE_HOME", str(folder))
        patch.delenv("KUBECONFIG", raising=False)
        yield folder
        subprocess.run(
            [sys.executable, "-m", "gangline", "down", "--purge"], check=False, capture_output=True
        )
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def client(home: Path) -> gangline.Client:
    """A client of it."""
    return gangline.Client()
