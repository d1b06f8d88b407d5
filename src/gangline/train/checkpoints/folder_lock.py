"""One training at a time writes into a folder of checkpoints."""

from __future__ import annotations

import fcntl
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

    def take(self, limit_s: float = LOCK_LIMIT_S) -> bool:
        """Return whether no other one has it, or lets go of it in a while.

        Raises:
            OSError: the file cannot be made.
        """
        file, deadline = self._path.open("wb"), time.monotonic() + limit_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    file.close()
                    return False
                time.sleep(_LOOK_EVERY_S)
                continue
            except OSError:
                pass  # a file system without locks
            self._file = file
            return True

    def release(self) -> None:
        """Let another training write."""
        if self._file is not None:
            self._file.close()
            self._file = None
