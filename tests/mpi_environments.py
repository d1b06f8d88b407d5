"""Make the virtual environments of the tests marked `mpi`, or reuse them, and print the folder of both.

`mpich` and `intel-mpi` in it have one MPI each from PyPI, mpi4py and numpy, and no Gangline. See
`cached_environment.py` for where they lie.

Measured on two cores: 20 s and 180 MB downloaded the first time, 540 MB on disk; afterwards 0.1 s.
"""

import platform
import sys
from pathlib import Path

from cached_environment import cached_path, made_once, make_environment

REQUIREMENTS = Path(__file__).with_name("requirements-mpi.txt")
PACKAGES = {"mpich": "mpich==5.0.2", "intel-mpi": "impi-rt==2021.18.1"}


def environments_path() -> Path:
    """Return where the environments for these packages and this Python lie; nothing is made."""
    words = [REQUIREMENTS.read_text(), *PACKAGES.values(), platform.python_version(), sys.base_prefix]
    return cached_path("mpi", words)


def build(folder: Path) -> None:
    for name, package in PACKAGES.items():
        make_environment(folder / name, package, "-r", REQUIREMENTS)


if __name__ == "__main__":
    print(made_once(environments_path(), "180 MB", build))
