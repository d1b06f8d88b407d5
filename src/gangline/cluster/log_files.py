r"""Container logs on disk, in CRI format: which part of them is asked for, and waiting for more.

A record is ``TIME STREAM TAG TEXT\n``; tag ``P`` says that the next record goes on with the same line. The
files are written by the pods' shims and only read here.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

BLOCK_BYTES = 64 << 10
POLL_PERIOD_S = 0.02
"""How often a file is looked at where the system cannot tell of changes."""

_IN_MODIFY, _IN_CLOSE_WRITE, _IN_MOVED_TO, _IN_CREATE = 0x2, 0x8, 0x80, 0x100
_IN_NONBLOCK, _IN_CLOEXEC = 0o4000, 0o2000000


@dataclass(frozen=True, slots=True)
class LogQuery:
    """What is asked of a log.

    Attributes:
        timestamps: begin each line with its time.
        since: RFC 3339 in UTC; older lines are left out. Empty for all.
        tail_lines: only so many of the last lines; None for all.
        stream: ``stdout``, ``stderr`` or empty for both.
        limit_bytes: of text, of which the last line may be cut; None for all.
    """

    timestamps: bool = False
    since: str = ""
    tail_lines: int | None = None
    stream: str = ""
    limit_bytes: int | None = None


class LogReader:
    """Reads the log of a container from where the query starts, through all files that it was rotated into.

    With ``tail_lines`` it starts in the newest one. What was removed before it was reached is left out.
    """

    def __init__(self, path: Path, query: LogQuery) -> None:
        self._path = path
        self._query = query
        self._file: BinaryIO | None = None
        self._successor: BinaryIO | None = None
        self._rest = b""
        self._line_open = False
        self._left = query.limit_bytes

    @property
    def is_full(self) -> bool:
        """Whether all that was asked for has been read, however much the log grows."""
        return self._left == 0

    def close(self) -> None:
        """Let go of the files."""
        for file in (self._file, self._successor):
            if file is not None:
                file.close()
        self._file = self._successor = None

    def read(self) -> bytes:
        """Return the text of the next records, up to a block; empty when there are no more now."""
        text = b"" if self.is_full else self._read()
        if self._left is not None:
            text = text[: self._left]
            self._left -= len(text)
        return text

    def _read(self) -> bytes:
        if self._file is None:
            self._file = self._open_next() if self._query.tail_lines is None else self._open(self._path)
            if self._file is None:
                return b""
            if self._query.tail_lines is not None:
                self._file.seek(tail_offset(self._file, self._query.tail_lines))
        while True:
            block = self._file.read(BLOCK_BYTES)
            if block:
                whole, _, self._rest = (self._rest + block).rpartition(b"\n")
                if text := self._text(whole):
                    return text
            elif self._successor is not None:
                self._file.close()
                self._file, self._successor = self._successor, None
            elif (found := self._open_next()) is not None:
                self._successor = found  # the file may have grown until it was rotated: it is read once more
            else:
                return b""

    def _open_next(self) -> BinaryIO | None:
        """Open the file that came after this one, at first the oldest; None while there is none."""
        here = None if self._file is None else os.fstat(self._file.fileno()).st_ino
        while True:
            try:
                newest = self._path.stat().st_ino
            except FileNotFoundError:  # not there yet, or just being rotated
                return None
            if newest == here:
                return None
            rotated = sorted(self._path.parent.glob(f"{self._path.name}.*"))  # by their dates
            places = [index for index, path in enumerate(rotated) if _inode(path) == here]
            path = [*rotated[places[0] + 1 if places else 0 :], self._path][0]
            file = self._open(path)
            if file is None:
                continue
            if path != self._path or os.fstat(file.fileno()).st_ino == newest:
                return file
            file.close()  # rotated since its name was looked at

    @staticmethod
    def _open(path: Path) -> BinaryIO | None:
        try:
            return path.open("rb")
        except FileNotFoundError:
            return None

    def _text(self, records: bytes) -> bytes:
        query = self._query
        since, stream = query.since.encode(), query.stream.encode()
        parts: list[bytes] = []
        for record in records.split(b"\n"):
            fields = record.split(b" ", 3)
            if len(fields) < 4:
                continue
            time, of_stream, tag, text = fields
            if (since and time < since) or (stream and of_stream != stream):
                continue
            if query.timestamps and not self._line_open:
                parts.append(time + b" ")
            parts.append(text)
            self._line_open = tag.startswith(b"P")
            if not self._line_open:
                parts.append(b"\n")
        return b"".join(parts)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def tail_offset(file: BinaryIO, lines: int) -> int:
    """Return where the last ``lines`` lines of a log begin. Reads backwards, O(what is returned)."""
    end = position = file.seek(0, os.SEEK_END)
    if lines <= 0:
        return end
    seen = 0
    data = b""
    while position > 0:
        step = min(BLOCK_BYTES, position)
        position -= step
        file.seek(position)
        data = file.read(step) + data
        # The first record of the block may be cut: it is counted with the block before it.
        records = data.split(b"\n")
        offset = position + len(data)
        seen = 0
        for index in range(len(records) - 1, -1, -1):
            record = records[index]
            offset -= len(record) + (1 if index < len(records) - 1 else 0)
            if index == 0 and position > 0:
                break
            fields = record.split(b" ", 3)
            if len(fields) == 4 and fields[2].startswith(b"F"):
                seen += 1
                if seen > lines:
                    return offset + len(record) + 1
    return 0


class FolderWatch:
    """Tells when a file of a folder grows or appears: by inotify, elsewhere by looking every 20 ms."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = -1
        self._changed = asyncio.Event()
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            descriptor = libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
        except (OSError, AttributeError):
            return
        if descriptor < 0:
            return
        mask = _IN_MODIFY | _IN_CLOSE_WRITE | _IN_MOVED_TO | _IN_CREATE
        if libc.inotify_add_watch(descriptor, os.fsencode(folder), mask) < 0:
            os.close(descriptor)
            return
        self._descriptor = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._on_readable)

    def _on_readable(self) -> None:
        try:
            while os.read(self._descriptor, 4096):
                pass
        except BlockingIOError:
            pass
        self._changed.set()

    async def changed(self) -> None:
        """Return when something may have changed since the last call."""
        if self._descriptor < 0:
            await asyncio.sleep(POLL_PERIOD_S)
            return
        await self._changed.wait()
        self._changed.clear()

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
