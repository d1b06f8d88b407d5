"""Local images: what a pod's ``image`` stands for on this machine, where nothing is pulled.

``gangline/base`` (any tag, with or without a registry before it) is the machine's own files with Gangline's
Python and the MPI that Gangline found first on the PATH, and an environment in which MPI starts ranks on
other pods through ``gangline-rsh``. Before every ``mpirun`` stands a front, ``launch/mpirun_front.py``.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gangline.launch.mpi import MpiInstallation, MpiNotFoundError, find_mpi

BASE_IMAGE = "gangline/base"
REMOTE_SHELL = "gangline-rsh"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image of this machine.

    Attributes:
        name: without registry and tag.
        path_entries: folders that come first on the PATH, after the one with ``gangline-rsh``.
        show: folders that stay visible read-only although the home around them is hidden.
        env: defaults; a container's own variables win.
    """

    name: str
    path_entries: tuple[str, ...]
    show: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def image_name(reference: str) -> str:
    """Return a reference without registry host, tag and digest.

    Example:
        >>> image_name("localhost:5000/gangline/base:v1@sha256:00")
        'gangline/base'
    """
    name = reference.partition("@")[0]
    head, slash, tail = name.partition("/")
    if slash and ("." in head or ":" in head or head == "localhost"):
        name = tail
    return name.rpartition("/")[0] + "/" * ("/" in name) + name.rpartition("/")[2].partition(":")[0]


class LocalImages:
    """The local images of a cluster; looks for an MPI once."""

    def __init__(self, mpi: MpiInstallation | None = None) -> None:
        if mpi is None:
            try:
                mpi = find_mpi()
            except MpiNotFoundError:
                mpi = None
        self.mpi = mpi
        self._base = _base_image(mpi)

    def find(self, reference: str) -> LocalImage | None:
        """Return the image that serves a reference, None when there is none."""
        return self._base if image_name(reference) == BASE_IMAGE else None

    @staticmethod
    def missing(reference: str) -> str:
        """Return the message for an image that this machine does not have."""
        return (
            f'image "{reference}" is not on this machine and the one-machine cluster pulls no images: '
            f"use `{BASE_IMAGE}` (this machine's programs, Python and MPI), or run the job on a cluster "
            "with `--context`"
        )


def _base_image(mpi: MpiInstallation | None) -> LocalImage:
    python_bin = Path(sys.executable).parent
    entries = [str(python_bin)]
    show = [sys.prefix, sys.base_prefix, str(Path(__file__).parents[2])]
    env: dict[str, str] = {}
    if mpi is not None:
        entries.insert(0, str(mpi.bin))
        show.append(str(mpi.prefix))
        env = mpi_environment(mpi)
    return LocalImage(BASE_IMAGE, tuple(dict.fromkeys(entries)), _outermost(show), env)


def _outermost(paths: list[str]) -> tuple[str, ...]:
    """Return the paths without those that lie below another; system folders are visible anyway."""
    unique = sorted({os.path.realpath(path) for path in paths} | {*paths}, key=len)
    kept: list[str] = []
    for path in unique:
        if path in ("/", "/usr", "/usr/local"):
            continue
        if not any(Path(path).is_relative_to(other) for other in kept):
            kept.append(path)
    return tuple(kept)


def mpi_environment(mpi: MpiInstallation) -> dict[str, str]:
    """Return variables that let this MPI start ranks in other pods, and start them fast."""
    return {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_plm_ssh_agent": REMOTE_SHELL,
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "OMPI_MCA_plm_rsh_agent": REMOTE_SHELL,
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": REMOTE_SHELL,
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": REMOTE_SHELL,
        "I_MPI_PIN": "off",
    } | library_environment(mpi)


def library_environment(mpi: MpiInstallation) -> dict[str, str]:
    """Return variables with which ranks load this MPI's library, and start fast.

    Measured with Open MPI 5.0.11: ``pml ob1`` saves one second of start, ``btl self,sm,tcp`` another. Where
    there is no RDMA device Intel MPI is told to use TCP between pods, as it would find out by itself.
    """
    env: dict[str, str] = {}
    if not Path("/sys/class/infiniband").is_dir():
        if mpi.flavour == "openmpi":
            shared_memory = "vader" if 0 < mpi.major < 5 else "sm"
            env |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": f"self,{shared_memory},tcp"}
        elif mpi.flavour == "intel":
            env |= {"FI_PROVIDER": "tcp"}
    if library := _library_file(mpi.lib):
        # mpi4py from PyPI then loads the launcher's library, whatever else is there.
        env["MPI4PY_LIBMPI"] = library
    return env


def _library_file(folder: Path) -> str:
    found = sorted(
        (*folder.glob("libmpi.so*"), *folder.glob("libmpi.dylib")), key=lambda path: len(path.name)
    )
    return str(found[-1] if found else "")


def write_programs(folder: Path) -> None:
    """Write what stands first on the PATH of a local image: ``gangline-rsh``, and a front of ``mpirun``."""
    folder.mkdir(parents=True, exist_ok=True)
    launch = Path(__file__).parents[1] / "launch"
    python = " ".join(shlex.quote(word) for word in [sys.executable, "-I", "-S"])
    shell, front = (shlex.quote(str(launch / name)) for name in ("remote_shell.py", "mpirun_front.py"))
    _write_script(folder / REMOTE_SHELL, f'#!/bin/sh\nexec {python} {shell} "$@"\n')
    for name in ("mpirun", "mpiexec"):
        _write_script(folder / name, f'#!/bin/sh\nexec {python} {front} "$0" "$@"\n')


def _write_script(target: Path, text: str) -> None:
    if target.exists() and target.read_text(encoding="utf-8") == text:
        return
    draft = target.with_name(f".{target.name}.new")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o755)
    draft.replace(target)


def base_path(image: LocalImage, own_bin: str) -> str:
    """Return the PATH of a container of a local image."""
    return ":".join([own_bin, *image.path_entries, _SYSTEM_PATH])
