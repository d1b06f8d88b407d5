"""One cluster of a machine at a time hands out its real GPUs: who does is settled by a lock on a file.

Two clusters, perhaps of two users, would each count the same GPUs. The kernel drops the lock when its holder
dies, however it dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

LOCK = Path("/tmp/gangline-gpus.lock")
"""One for all users of the machine, so not in a folder that `TMPDIR` may name."""


class MachineClaim:
    """The claim of this process on the machine's GPUs."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or LOCK
        self._descriptor = -1

    @property
    def is_held(self) -> bool:
        """Whether this process has it."""
        return self._descriptor >= 0

    def acquire(self) -> bool:
        """Take the claim if nobody has it; True when this process has it now.

        Raises:
            OSError: the file can be neither made nor opened.
        """
        if self.is_held:
            return True
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give it up; nothing happens when it is not held. The file stays: others may have it open."""
        if self.is_held:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> int:
        # Not with O_CREAT where it exists: in a sticky folder kernels refuse that for another user's file.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self.path, flags)
        except FileNotFoundError:
            pass
        try:
            descriptor = os.open(self.path, flags | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return os.open(self.path, flags)
        os.fchmod(descriptor, 0o644)
        return descriptor
