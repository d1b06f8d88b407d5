"""A thread that waits in torch, left behind for a lost rank: the process ends as it would without it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.train

SCRIPT = Path(__file__).with_name("left_behind_script.py")


def test_a_wait_that_ends_while_the_process_does_changes_no_exit_code(torch_python: str, ranks) -> None:
    done = subprocess.run(
        [torch_python, str(SCRIPT)],
        check=False,
        env=ranks.environment(),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, "terminate" in done.stderr) == (3, False)
