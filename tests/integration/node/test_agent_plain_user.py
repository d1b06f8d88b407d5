"""The same pods as a plain user: user and plain isolation must need no root at all.

As root the tests of pods are run again by the user ``nobody``, with an interpreter that it may execute. A
plain user has run them already.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gangline

NOBODY = 65534
TESTS = Path(__file__).parent / "test_agent_pods.py"


def readable_by_all(path: Path) -> bool:
    places = [path, *path.parents]
    return all(place.stat().st_mode & 0o5 == 0o5 for place in places)


@pytest.fixture
def python_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment of the system's Python that sees this one's packages."""
    if os.geteuid() != 0:
        pytest.skip("runs as a plain user already")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    system = Path(f"/usr/bin/python{version}")
    packages = Path(pytest.__file__).parents[1]
    source = Path(gangline.__file__).parents[1]
    if not system.exists() or not shutil.which("setpriv"):
        pytest.skip(f"needs {system} and setpriv")
    if not all(readable_by_all(path) for path in (packages, source, TESTS.parent)):
        pytest.skip("a plain user cannot read this checkout and its packages")
    folder = Path("/var/tmp") / f"gangline-test-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        subprocess.run([system, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        site = folder / "venv" / "lib" / f"python{version}" / "site-packages"
        (site / "shared.pth").write_text(f"{packages}\n{source}\n")
        work = folder / "work"
        work.mkdir()
        os.chown(work, NOBODY, NOBODY)
        yield folder / "venv" / "bin" / "python"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
