"""The programs of a Kubernetes control plane: where they are found, and whether they are new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gangline.errors import UserError

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLERS = "kube-controller-manager"

BUILT_VERSION = "v1.35.4"
"""What ``make kubernetes`` builds; its folder in the cache is named so."""

VERSIONS_MIN: Mapping[str, tuple[int, int]] = {ETCD: (3, 5), API_SERVER: (1, 31), CONTROLLERS: (1, 31)}
"""kubectl speaks WebSocket to pods from 1.31 on, and 1.31 wants etcd 3.5."""

VERSION_TIMEOUT_S = 30.0
# "etcd Version: 3.6.16", "Kubernetes v1.35.4"
_VERSION = re.compile(r"(?:etcd Version: |Kubernetes v)(\d+)\.(\d+)")
_HINT = (
    "run `make kubernetes` in a clone of Gangline, which builds them with Go, or name a folder with them: "
    "KUBEBUILDER_ASSETS=FOLDER (`setup-envtest use -p path` prints one)"
)


def _built() -> Path:
    """Return the folder where ``make kubernetes`` puts what it builds."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache.absolute() / "gangline" / "kubernetes" / BUILT_VERSION


def find_programs() -> dict[str, Path]:
    """Return the path of each program: from ``KUBEBUILDER_ASSETS``, ``PATH``, or where ``make`` builds them.

    Raises:
        UserError: some are missing; with the way to get them.
    """
    folders = (
        os.environ.get("KUBEBUILDER_ASSETS", ""),
        os.environ.get("PATH", os.defpath),
        str(_built()),
    )
    path = os.pathsep.join(filter(None, folders))
    found = {name: shutil.which(name, path=path) for name in VERSIONS_MIN}
    if missing := [name for name, file in found.items() if file is None]:
        raise UserError(
            f"--control-plane kubernetes needs {', '.join(missing)}, found in none of KUBEBUILDER_ASSETS, "
            f"PATH and {folders[-1]}",
            hint=_HINT,
        )
    return {name: Path(file).absolute() for name, file in found.items() if file is not None}


def check_programs() -> None:
    """Find the programs and ask each for its version. Cost: 0.1 s.

    Raises:
        UserError: one is missing, too old, or does not run.
    """
    programs = find_programs()
    if {program.parent for program in programs.values()} == {_built()}:
        return  # whose version is the folder's name
    with ThreadPoolExecutor(len(programs)) as threads:
        told = dict(zip(programs, threads.map(_told_version, programs.values()), strict=True))
    versions = {name: _read_version(text, programs[name]) for name, text in told.items()}
    for name, version in versions.items():
        least = VERSIONS_MIN[name]
        if version < least:
            raise UserError(
                f"`{programs[name]}` is version {_words(version)}, {_words(least)} or newer is needed",
                hint=_HINT,
            )
    if versions[CONTROLLERS] > versions[API_SERVER]:
        raise UserError(
            f"`{programs[CONTROLLERS]}` is version {_words(versions[CONTROLLERS])}, newer than "
            f"`{programs[API_SERVER]}`, {_words(versions[API_SERVER])}: only an older one works with it",
            hint=_HINT,
        )


def _told_version(program: Path) -> str:
    try:
        return subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, timeout=VERSION_TIMEOUT_S
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"`{program} --version` does not run: {error}", hint=_HINT) from error


def _read_version(text: str, program: Path) -> tuple[int, int]:
    found = _VERSION.search(text)
    if found is None:
        raise UserError(f"`{program} --version` tells no version: {text[:80]!r}", hint=_HINT)
    return int(found[1]), int(found[2])


def _words(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
