"""Files that hold secrets: for their owner only, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gangline.errors import ClusterError


def write_private(path: Path, content: bytes) -> None:
    """Write a file with mode 0600, whole or not at all; one that holds this already is left alone.

    Raises:
        ClusterError: the disk does not take it.
    """
    with contextlib.suppress(OSError):  # so that a full disk keeps no server from starting again
        if path.read_bytes() == content and path.stat().st_mode & 0o077 == 0:
            return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(temporary, "wb", opener=_private) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ClusterError(
            f"cannot write `{path}`: {error.strerror}",
            hint=f"see `df -h {path.parent}` and `findmnt -T {path.parent}`, and start again",
        ) from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
