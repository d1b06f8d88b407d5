"""One training at a time writes into a folder of checkpoints."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import IO

LOCK_LIMIT_S = 8.0
"""Data-loading workers that a killed rank has forked have its lock, and look after it every 5 s."""
_LOOK_EVERY_S = 0.1


class FolderLock:
    """A lock that ends with the process that has it, and with `release`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".lock"
        self._file: IO[bytes] | None = None

    def take(self, *, is_ours: bool, limit_s: float = LOCK_LIMIT_S) -> bool:
        """Return whether no other one has it, or lets go of it in a while.

        Args:
            is_ours: who has it is a lost rank of this training, which may live on where nobody reaches it.
            limit_s: how long the one that has it is waited for.

        Raises:
            OSError: the file cannot be made.
        """
        deadline = time.monotonic() + limit_s
        while (file := self._locked()) is None:
            if is_ours:
                self._path.unlink(missing_ok=True)  # its lock stays that of a file without a name
            elif time.monotonic() > deadline:
                return False
            else:
                time.sleep(_LOOK_EVERY_S)
        self._file = file
        return True

    def _locked(self) -> IO[bytes] | None:
        file = self._path.open("wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        except OSError:
            return file  # a file system without locks
        if _is_file(self._path, file):
            return file
        file.close()  # another one has it under this name by now
        return None

    def release(self) -> None:
        """Let another training write."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _is_file(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
