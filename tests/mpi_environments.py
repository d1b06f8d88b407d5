"""Make the virtual environments of the tests marked `mpi`, or reuse them, and print the folder of both.

`mpich` and `intel-mpi` in it have one MPI each from PyPI, mpi4py and numpy, and no Gangline. The folder lies
in the user's cache under a hash of the packages and the Python version. It is built as `train_environment.py`
builds its own: behind a lock, beside its final place, renamed at the end.

Measured on two cores: 20 s and 180 MB downloaded the first time, 540 MB on disk; afterwards 0.1 s.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements-mpi.txt")
PACKAGES = {"mpich": "mpich==5.0.2", "intel-mpi": "impi-rt==2021.18.1"}


def environments_path() -> Path:
    """Return where the environments for these packages and this Python lie; nothing is made."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gangline"
    words = [REQUIREMENTS.read_text(), *PACKAGES.values(), platform.python_version(), sys.base_prefix]
    return cache / f"mpi-{hashlib.sha256(repr(words).encode()).hexdigest()[:12]}"


def build(target: Path) -> None:
    """Build both environments beside `target` and rename their folder; ends the program when pip fails."""
    part = target.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    print(f"making {target} (180 MB to download, once for this machine)", file=sys.stderr)
    options = ["--quiet", "--disable-pip-version-check", "--no-cache-dir", "--only-binary=:all:"]
    for name, package in PACKAGES.items():
        venv.create(part / name, with_pip=True, symlinks=True)
        python = part / name / "bin" / "python"
        install = [python, "-m", "pip", "install", *options, package, "-r", REQUIREMENTS]
        subprocess.run(install, check=True, stdout=sys.stderr)
    part.rename(target)


def main() -> None:
    target = environments_path()
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            build(target)
    print(target)


if __name__ == "__main__":
    main()
