"""The same pods as a plain user: user and plain isolation must need no root at all.

As root the tests of pods are run again by the user ``nobody``, with an interpreter that it may execute. A
plain user has run them already.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import everyones_python
import pytest

NOBODY = 65534
TESTS = Path(__file__).parent / "test_agent_pods.py"


@pytest.fixture
def python_of_nobody() -> Iterator[Path]:
    """An interpreter for `nobody`, with a folder ``work`` of its own two folders above."""
    if os.geteuid() != 0:
        pytest.skip("runs as a plain user already")
    if reason := everyones_python.why_not(TESTS.parent):
        pytest.skip(reason)
    with everyones_python.everyones_python() as python:
        work = python.parents[2] / "work"
        work.mkdir()
        os.chown(work, NOBODY, NOBODY)
        yield python


def test_pods_run_for_a_plain_user(python_of_nobody):
    work = python_of_nobody.parents[2] / "work"
    mpi = Path(sys.executable).parent  # where the MPI of the tests is, if it is a wheel

    done = subprocess.run(
        [
            *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"),
            *(str(python_of_nobody), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "user or plain"),
            *(f"--basetemp={work / 'tests'}", f"--rootdir={TESTS.parents[3]}", str(TESTS)),
        ],
        env={
            "PATH": f"{python_of_nobody.parent}:/usr/bin:/bin:{mpi}",
            "HOME": str(work),
            "TMPDIR": str(work),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LANG": "C.UTF-8",
        },
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
