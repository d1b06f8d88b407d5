"""The log of a daemon: bounded, whatever is written to it, and for how long.

Server and agent have their log as standard output and error. At 8 MiB the file becomes ``NAME.log.old``, in
the place of the one before it, and a fresh one begins.
"""

from __future__ import annotations

import contextlib
import io
import os
import time
from pathlib import Path
from typing import Final

BYTES_MAX: Final = 8 << 20
LINE_CHARACTERS_MAX: Final = 64 << 10


class ServiceLog(io.TextIOBase):
    """A stream that changes files when its file is long, and loses lines rather than raise: a full disk must
    not end a service by its log.

    Args:
        path: the log file; None, or where the descriptor is of another one (a terminal, say): never changed.
        descriptor: standard error.
    """

    def __init__(self, path: Path | None = None, *, descriptor: int = 2, bytes_max: int = BYTES_MAX) -> None:
        self._path = path or Path()
        self._descriptor = descriptor
        self._bytes_max = bytes_max
        self._bytes = 0
        self._is_file = False
        if path is not None:
            with contextlib.suppress(OSError):
                mine, found = os.fstat(descriptor), path.stat()
                self._is_file = (mine.st_dev, mine.st_ino) == (found.st_dev, found.st_ino)
                self._bytes = found.st_size
        self._make_room(0)

    def write(self, text: str) -> int:
        """Write, or drop the text."""
        data = text[:LINE_CHARACTERS_MAX].encode(errors="replace")
        self._make_room(len(data))
        with contextlib.suppress(OSError):
            self._bytes += os.write(self._descriptor, data)
            return len(text)
        return 0

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(self._descriptor)

    def _make_room(self, size_bytes: int) -> None:
        if not self._is_file or self._bytes + size_bytes <= self._bytes_max:
            return
        self._bytes = 0  # also where it fails: not every line is to try again
        with contextlib.suppress(OSError):
            self._path.replace(self._path.with_suffix(".log.old"))
            fresh = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(fresh, self._descriptor)
            if self._descriptor == 2:
                os.dup2(fresh, 1)
            os.close(fresh)
            os.write(self._descriptor, f"log continued at {time.strftime('%Y-%m-%dT%H:%M:%S')}\n".encode())
