"""A Python that every user may execute, with this one's packages: root's own may lie in its home."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import gangline

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
SYSTEM = Path(f"/usr/bin/python{VERSION}")
PLACES = (Path(pytest.__file__).parents[1], Path(gangline.__file__).parents[1])
"""The packages, and the source of this checkout."""


def why_not(*more: Path) -> str:
    """Return why there is none, empty when there is; ``more`` is what others have to read beside."""
    if not SYSTEM.exists() or not shutil.which("setpriv"):
        return f"needs {SYSTEM} and setpriv"
    if not all(_is_readable(path) for path in (*PLACES, *more)):
        return "a plain user cannot read this checkout and its packages"
    return ""


def _is_readable(path: Path) -> bool:
    return all(place.stat().st_mode & 0o5 == 0o5 for place in (path, *path.parents))


@contextmanager
def everyones_python() -> Iterator[Path]:
    """Make a virtual environment of the system's Python in a folder of its own, and remove that."""
    folder = Path(tempfile.mkdtemp(prefix="gangline-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        subprocess.run([SYSTEM, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        site = folder / "venv" / "lib" / f"python{VERSION}" / "site-packages"
        (site / "shared.pth").write_text("".join(f"{place}\n" for place in PLACES))
        yield folder / "venv" / "bin" / "python"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
