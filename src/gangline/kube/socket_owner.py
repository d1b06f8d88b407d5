"""Whose process listens on a Unix socket: asked before a word is said to it.

Sockets of the one-machine cluster may lie in the temporary folder of all users, where another one could have
put a socket of the same name first, to be told secrets or to answer lies.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from pathlib import Path
from typing import Any

from gangline.errors import UserError

_CREDENTIALS = struct.Struct("3i")
"""struct ucred of Linux: process, user, group."""


class ForeignSocketError(UserError):
    """A socket, or its folder, belongs to another user."""

    code = "foreign-socket"


def check_folder(path: Path) -> None:
    """Refuse a socket whose folder others may write.

    Raises:
        ForeignSocketError: it belongs to neither this user nor root, or is open to others.
    """
    folder = path.parent
    try:
        found = folder.lstat()
    except OSError:
        return  # connecting will say so
    if found.st_uid not in (os.getuid(), 0) or not stat.S_ISDIR(found.st_mode):
        raise _foreign(f"its folder `{folder}` belongs to user {found.st_uid}", path)
    if found.st_mode & 0o022:
        mode = stat.S_IMODE(found.st_mode)
        raise _foreign(f"other users may write its folder `{folder}` (mode {mode:o})", path)


def check_peer(connection: Any, path: Path | str) -> None:
    """Refuse a connected Unix socket at whose other end another user's process listens.

    Args:
        connection: a socket, or asyncio's stand-in for one.
        path: where it was found, for the message.

    Raises:
        ForeignSocketError: the process is neither this user's nor root's.
    """
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:  # macOS: the mode of the folder has to do
        return
    raw = connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(raw)
    if user not in (os.getuid(), 0):
        raise _foreign(f"a process of user {user} listens there", path)


def _foreign(why: str, path: Path | str) -> ForeignSocketError:
    return ForeignSocketError(
        f"refusing to speak to `{path}`: {why}",
        hint="set XDG_RUNTIME_DIR to a folder of your own, or have the other user remove it",
    )
