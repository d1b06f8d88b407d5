"""A Python with torch for the programs of published images: found on this machine, or made when asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click

from gangline.errors import UserError

FOLDER = "torch-environment"
"""Below Gangline's folder, beside those of the clusters."""
ASK_LIMIT_S = 20.0
PACKAGES = ("torch", "numpy")
SIZE = "about 2.7 GB from PyPI on Linux; 0.2 GB with PIP_INDEX_URL=https://download.pytorch.org/whl/cpu"
_ASK = "import importlib.util as i, sys; print(sys.prefix); sys.exit(i.find_spec('torch') is None)"


def find_torch(home: Path) -> Path | None:
    """Return a virtual environment with torch, None where no Python that is looked at has it.

    Looked at are the active environment, the first ``python`` and ``python3`` on the PATH, and the
    environment that was made here before. A Python of the system's or conda's is lent through an
    environment that sees its packages.

    Args:
        home: Gangline's folder.
    """
    own = home / FOLDER
    active = os.environ.get("VIRTUAL_ENV")
    names = [f"{active}/bin/python"] if active else []
    for python in [*names, shutil.which("python"), shutil.which("python3"), str(own / "bin" / "python")]:
        prefix = _prefix_with_torch(python) if python else None
        if prefix is None:
            continue
        if (prefix / "pyvenv.cfg").is_file():
            return prefix
        seen = home / f"{FOLDER}-of-{prefix.name or 'system'}"
        made = subprocess.run(
            [str(python), "-m", "venv", "--system-site-packages", "--without-pip", "--clear", str(seen)],
            capture_output=True,
            check=False,
        )
        if made.returncode == 0:
            return seen
    return None


def _prefix_with_torch(python: str) -> Path | None:
    with suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run(
            [python, "-I", "-c", _ASK], capture_output=True, text=True, timeout=ASK_LIMIT_S, check=False
        )
        return Path(asked.stdout.strip()) if asked.returncode == 0 else None
    return None


def make_torch(home: Path, *, is_agreed: bool, say: Callable[[str], None]) -> Path:
    """Make a virtual environment with torch by pip, whose progress goes to standard error; return it.

    Args:
        home: Gangline's folder.
        is_agreed: whether the user said yes already; else he is asked where there is a terminal.
        say: is told what is done.

    Raises:
        UserError: the user says no, cannot be asked, or pip fails: nothing is left behind.
    """
    folder = home / FOLDER
    question = f"No Python here has torch. Make {folder} ({SIZE})?"
    way = "name an environment that has it: --image NAME=FOLDER, or activate one before"
    if not is_agreed and not sys.stdin.isatty():
        raise UserError(
            f"no Python here has torch, and nobody can be asked whether to make {folder} ({SIZE})",
            hint=f"add --yes; or {way}",
        )
    if not is_agreed and not click.confirm(question, default=False, err=True):
        raise UserError("no Python here has torch, and none was made", hint=way)
    say(f"making {folder} with {' and '.join(PACKAGES)}: {SIZE}")
    python = folder / "bin" / "python"
    steps = (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "--disable-pip-version-check", *PACKAGES],
    )
    for step in steps:
        done = subprocess.run(step, stdout=sys.stderr, check=False)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            raise UserError(
                f"the environment with torch could not be made: `{' '.join(step[1:4])}` ended with code "
                f"{done.returncode}; its words are above",
                hint=f"when the package index can be reached, run the command again; or {way}",
            )
    return folder
