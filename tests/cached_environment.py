"""Virtual environments for tests, made once for this machine and shared by every clone of the repository.

They lie in the user's cache under a hash of what they are made from. Of two processes at once a lock lets one
build, and the other waits for it. An environment is built beside its final place and renamed at the end: half
of one is never used.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path


def cached_path(kind: str, words: list[str]) -> Path:
    """Return where an environment of this kind, made from these words, lies; nothing is made."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gangline"
    return cache / f"{kind}-{hashlib.sha256(repr(words).encode()).hexdigest()[:12]}"


def made_once(target: Path, size: str, build: Callable[[Path], None]) -> Path:
    """Return the folder, which `build` fills beside its final place if it is not there yet."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            part = target.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            print(f"making {target} ({size} to download, once for this machine)", file=sys.stderr)
            build(part)
            _name_python(part, target)
            part.rename(target)
    return target


def _name_python(part: Path, target: Path) -> None:
    """Let the programs of an environment start by the Python of its final place."""
    for program in (part / "bin").glob("*"):
        if program.is_file() and not program.is_symlink():
            program.write_bytes(program.read_bytes().replace(bytes(part), bytes(target)))


def make_environment(folder: Path, *packages: str | Path) -> Path:
    """Make a virtual environment from wheels, and return its Python; ends the program when pip fails."""
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    options = ["--quiet", "--disable-pip-version-check", "--no-cache-dir", "--only-binary=:all:"]
    subprocess.run([python, "-m", "pip", "install", *options, *packages], check=True, stdout=sys.stderr)
    return python
