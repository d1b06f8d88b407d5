"""A folder for each rank's output: ``rank.NN/stdout`` and ``stderr``, bounded by size and age."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

LOG_BYTES_MAX = 64 << 20
"""A file that is larger is put aside as ``stdout.1``, in place of the one that lay there."""
LOG_AGE_MAX_S = 30 * 86400.0
"""Files of ranks in the folder that nobody has written to for so long are removed at a start."""


class RankLogs:
    """Writes what ranks write into files of their own.

    Args:
        folder: made if absent.
        size: number of ranks, for the width of NN.
        bytes_max: of one file.
    """

    def __init__(self, folder: Path, size: int, bytes_max: int = LOG_BYTES_MAX) -> None:
        self._folder, self._width, self._bytes_max = folder, len(str(size - 1)), bytes_max
        self._files: dict[tuple[int, str], BinaryIO] = {}
        _remove_old(folder)

    def write(self, rank: int, stream: str, data: bytes) -> None:
        """Write a piece of a rank's output at once."""
        file = self._files.get((rank, stream)) or self._open(rank, stream)
        if file.tell() and file.tell() + len(data) > self._bytes_max:
            file.close()
            path = Path(file.name)
            path.replace(path.with_suffix(".1"))
            file = self._open(rank, stream)
        file.write(data)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def _open(self, rank: int, stream: str) -> BinaryIO:
        folder = self._folder / f"rank.{rank:0{self._width}d}"
        folder.mkdir(parents=True, exist_ok=True)
        file = self._files[rank, stream] = (folder / stream).open("wb", buffering=0)
        return file


def _remove_old(folder: Path) -> None:
    oldest = time.time() - LOG_AGE_MAX_S
    for path in folder.glob("rank.*/std*"):
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()
