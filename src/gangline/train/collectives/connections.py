"""Ends the connections of a gloo group: what waits there for a rank whose network is gone waits no more.

gloo has no call for it (``abort`` does nothing), and who silently went away sends no end of a connection.
"""

from __future__ import annotations

import os
import socket
import stat
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Sockets = dict[int, int]
"""File descriptor -> inode, which tells one socket from a later one of that number."""

_of: weakref.WeakKeyDictionary[Any, Sockets] = weakref.WeakKeyDictionary()


def connected(make: Callable[[], Any]) -> Any:
    """Return the group of gloo that ``make`` connects, and remember its sockets.

    One that another thread opens meanwhile is taken for the group's.
    """
    before = _sockets()
    group = make()
    _of[group] = {fd: inode for fd, inode in _sockets().items() if before.get(fd) != inode}
    return group


def end_connections(group: Any) -> None:
    """Let whatever waits in a group end with an error, here and on the other ranks."""
    for fd, inode in _of.get(group, {}).items():
        with suppress(OSError):  # closed, or one that listens
            if os.fstat(fd).st_ino == inode:
                with socket.socket(fileno=os.dup(fd)) as found:
                    found.getpeername()
                    found.shutdown(socket.SHUT_RDWR)


def _sockets() -> Sockets:
    found: Sockets = {}
    for path in Path("/proc/self/fd").iterdir() if Path("/proc/self/fd").exists() else ():
        with suppress(OSError):
            state = os.fstat(int(path.name))
            if stat.S_ISSOCK(state.st_mode):
                found[int(path.name)] = state.st_ino
    return found
