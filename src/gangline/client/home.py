"""The folder of a one-machine cluster, found fit for use before a command uses it."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

from gangline.cluster.paths import ClusterPaths
from gangline.errors import UserError

STATE_BYTES_MAX = 480
"""The store's path, with what SQLite appends to it, may have 512 bytes (sqlite3 os_unix.c, MAX_PATHNAME)."""

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def usable_paths(name: str) -> ClusterPaths:
    """Return the paths of this user's cluster of that name; nothing stays created.

    Raises:
        UserError: its folder is none, or cannot be made or written.
    """
    hint = (
        "set GANGLINE_HOME to a folder that you can write to"
        if os.environ.get("GANGLINE_HOME")
        else "name another folder for Gangline's files: export GANGLINE_HOME=FOLDER"
    )
    try:
        paths = ClusterPaths.of(name)
    except RuntimeError as error:  # no HOME, and an account without an entry
        raise UserError(f"cannot tell where Gangline's files belong: {error}", hint=hint) from None
    if problem := _problem(paths.state):
        text = os.fsencode(paths.state).decode(errors="replace")
        text = text if len(text) <= STATE_BYTES_MAX else f"{text[:60]}…"
        raise UserError(f"cannot use `{text}` for cluster `{name}`: {problem}", hint=hint)
    return paths


def _problem(state: Path) -> str:
    """Return why a folder cannot be used; empty when it can."""
    size = len(os.fsencode(state))
    if size > STATE_BYTES_MAX:
        return f"its path has {size} bytes, and {STATE_BYTES_MAX} at most leave room for the files in it"
    try:
        str(state).encode()
    except UnicodeEncodeError:
        return "its path is no UTF-8"
    nearest = state
    while True:
        try:
            mode = nearest.stat().st_mode
            break
        except (FileNotFoundError, NotADirectoryError):
            if nearest.is_symlink():
                return f"`{nearest}` is a link that leads nowhere"
            nearest = nearest.parent
        except OSError as error:
            return f"`{nearest}`: {error.strerror}"
    if not stat.S_ISDIR(mode):
        return f"`{nearest}` is no folder"
    if nearest == state:
        return _why_not_writable(state)
    return _why_no_folder_in(nearest)


def _why_not_writable(folder: Path) -> str:
    if os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return ""
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return f"its disk is mounted for reading only (`findmnt -T {folder}` shows where from)"
    return "you may not write there"


def _why_no_folder_in(parent: Path) -> str:
    """Try whether a folder can be made somewhere, for permission bits do not tell all; it goes again."""
    try:
        Path(tempfile.mkdtemp(prefix=".gangline-", dir=parent)).rmdir()
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise
        return f"no folder can be made in `{parent}`: {error.strerror}"
    return ""
