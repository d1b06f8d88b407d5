"""Lay out an image's files from Debian's packages and wheels of PyPI: no root, no container runtime."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

LEFT_OUT = re.compile(
    r"(lib)?perl|debconf|dpkg|ucf$|adduser|usrmerge|gcc-.*-base|tar$|runit-helper|media-types"
)
"""Packages that only other packages' installation needs."""

_UNUSED = re.compile(r"^(usr/share/(doc|man|locale|info|lintian|bash-completion)|var/(cache|lib/dpkg))(/|$)")
_UNUSED_OF_WHEELS = re.compile(
    r"/bin/IMB-|/lib/libmpcp|/lib/libmpifort|/lib/mpi/debug|/data/etc/|/tests/|/include/"
)


class CannotMake(Exception):
    """An image cannot be made on this machine; the message names what is missing."""


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
    (folder / "tmp").mkdir(exist_ok=True)
    (folder / "tmp").chmod(0o1777)
    (folder / "usr/bin/sh").unlink(missing_ok=True)
    (folder / "usr/bin/sh").symlink_to("dash")


def make_host_key(folder: Path) -> None:
    """Do what the ssh packages' own scripts do: a host key, folders with the modes that sshd asks for."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = folder / "etc/ssh/ssh_host_ed25519_key"
    key.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    )
    key.chmod(0o600)
    for path, mode in (("run/sshd", 0o755), ("root/.ssh", 0o700), ("home/mpiuser/.ssh", 0o700)):
        (folder / path).mkdir(parents=True, exist_ok=True)
        (folder / path).chmod(mode)
    (folder / "etc/shadow").chmod(0o640)


def python_of(folder: Path) -> str:
    """Return the name of the Python that was laid out, ``python3.11``."""
    return next(path.name for path in sorted((folder / "usr/bin").glob("python3.*")))


def unpack_wheels(wheels: Sequence[str], folder: Path, python: str, *, with_needs: bool = False) -> None:
    """Lay wheels out, an MPI under /usr, where the loader looks; a second copy of a file becomes a link.

    Args:
        wheels: requirements, or paths of wheels.
        folder: the image's root.
        python: ``python3.11``.
        with_needs: also what the wheels ask for.

    Raises:
        CannotMake: a wheel cannot be fetched.
    """
    packages = folder / "usr/local/lib" / python / "dist-packages"
    kept: dict[tuple[int, int], Path] = {}
    with tempfile.TemporaryDirectory() as scratch:
        version = ["--python-version", python.removeprefix("python"), "--only-binary=:all:"]
        version += [] if with_needs else ["--no-deps"]
        _run([sys.executable, "-m", "pip", "download", "-q", "-d", scratch, *version, *wheels])
        for path in sorted(Path(scratch).glob("*.whl")):
            with zipfile.ZipFile(path) as wheel:
                for member in wheel.infolist():
                    _place(wheel, member, folder, packages, kept)


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
