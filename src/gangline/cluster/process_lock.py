"""A lock file that one process holds while it lives: flock, with its process id inside.

The kernel drops the lock when the process dies, however it dies. A process that ends in order empties the
file first; so a free lock with a process id inside means that its process was killed.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Literal, Self

import msgspec

ACQUIRE_TIMEOUT_S = 0.5
_RETRY_S = 0.02


class LockState(msgspec.Struct, frozen=True):
    """What a lock file says.

    Attributes:
        state: ``held`` by a living process, ``free``, or ``killed``: its last process died without ending.
        pid: process id inside; 0 when there is none.
    """

    state: Literal["held", "free", "killed"]
    pid: int = 0


def read_lock(path: Path) -> LockState:
    """Return who holds the lock; takes a shared lock for a moment, which other probes do not notice."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return LockState("free")
    try:
        text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        pid = int(text) if text.isdigit() else 0
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return LockState("held", pid)
        return LockState("killed", pid) if pid else LockState("free")
    finally:
        os.close(descriptor)


class ProcessLock:
    """The lock of this process; ``acquire`` it, and ``release`` it when the process ends in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self.previous = LockState("free")

    def acquire(self, *, timeout_s: float = ACQUIRE_TIMEOUT_S) -> bool:
        """Take the lock and write this process's id; ``False`` when another living process has it.

        ``previous`` then says whether the process before this one was killed. The wait only bridges probes.

        Raises:
            OSError: the file cannot be written; it carries the path.
        """
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    return False
                time.sleep(_RETRY_S)
        text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        self.previous = LockState("killed", int(text)) if text.isdigit() else LockState("free")
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(descriptor)
            raise OSError(error.errno, error.strerror, str(self._path)) from error
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Empty the file and drop the lock; nothing happens when it is not held."""
        if self._descriptor < 0:
            return
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = -1

    def abandon(self) -> None:
        """Let go of the lock without giving it up: in a forked process, or for a process that has failed.

        The next one then finds it as that of a killed process once its last holder is gone.
        """
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
