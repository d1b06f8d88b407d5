"""Container logs in CRI format, with rotation: ``2026-11-21T08:00:00.123456789Z stdout F text``.

Lines longer than 16 KiB are split: parts carry the tag ``P``, the last one ``F``. So is a line that stays
unfinished for ``UNFINISHED_S``: a progress bar can then be followed, and the parts, ten a second at most, add
less than half a kilobyte a second to the program's own bytes. A file that reaches ``rotate_bytes`` is renamed
to ``N.log.DATE-TIME.NANOSECONDS`` between two lines or parts; ``keep_files`` are kept.
Source: the kubelet's CRI log format and its defaults (10 MiB, 5 files).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

LINE_LIMIT_BYTES = 16 * 1024
ROTATE_BYTES = 10 * 1024 * 1024
KEEP_FILES = 5
UNFINISHED_S = 0.1


def stamp(moment_ns: int) -> bytes:
    """Return RFC 3339 with nine decimals, in UTC."""
    seconds, rest_ns = divmod(moment_ns, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode() + b".%09dZ" % rest_ns


class LogFile:
    """The log of one attempt of one container; both streams write here.

    Cost: one timestamp and one write for each chunk read from a pipe, about 3 ms for a MiB of short lines.
    """

    def __init__(self, path: str, *, rotate_bytes: int = ROTATE_BYTES, keep_files: int = KEEP_FILES) -> None:
        self._path = Path(path)
        self._rotate_bytes = rotate_bytes
        self._keep_files = keep_files
        self._rest: dict[bytes, bytes] = {}
        self._since_s: dict[bytes, float] = {}
        self._begun: set[bytes] = set()
        self._open()

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._size_bytes = os.fstat(self._fd).st_size

    def write(self, stream: bytes, chunk: bytes) -> None:
        """Append what arrived on ``b"stdout"`` or ``b"stderr"``; an unfinished line is kept back a while."""
        head = stamp(time.time_ns()) + b" " + stream
        full, partial = head + b" F ", head + b" P "
        *lines, rest = (self._rest.pop(stream, b"") + chunk).split(b"\n")
        out = []
        for line in lines:
            while len(line) > LINE_LIMIT_BYTES:
                out.append(partial + line[:LINE_LIMIT_BYTES])
                line = line[LINE_LIMIT_BYTES:]
            out.append(full + line)
        while len(rest) > LINE_LIMIT_BYTES:
            out.append(partial + rest[:LINE_LIMIT_BYTES])
            rest = rest[LINE_LIMIT_BYTES:]
        if lines:
            self._begun.discard(stream)
            self._since_s.pop(stream, None)
        if rest:
            self._rest[stream] = rest
            self._since_s.setdefault(stream, time.monotonic())
        if out:
            out.append(b"")
            self._append(b"\n".join(out))

    def due_s(self) -> float | None:
        """Return when an unfinished line is to be written so far (monotonic clock), None without one."""
        return min(self._since_s.values()) + UNFINISHED_S if self._since_s else None

    def write_unfinished(self, now_s: float) -> None:
        """Write the lines so far that have been unfinished long enough."""
        for stream, since_s in list(self._since_s.items()):
            if now_s >= since_s + UNFINISHED_S:
                del self._since_s[stream]
                self._begun.add(stream)
                rest = self._rest.pop(stream)
                self._append(stamp(time.time_ns()) + b" " + stream + b" P " + rest + b"\n")

    def finish(self, stream: bytes) -> None:
        """Write the unfinished line of a stream that has ended."""
        rest = self._rest.pop(stream, b"")
        self._since_s.pop(stream, None)
        if rest or stream in self._begun:
            self._begun.discard(stream)
            self._append(stamp(time.time_ns()) + b" " + stream + b" F " + rest + b"\n")

    def close(self) -> None:
        """Flush unfinished lines and close; may be called twice."""
        if self._fd < 0:
            return
        for stream in {*self._rest, *self._begun}:
            self.finish(stream)
        os.close(self._fd)
        self._fd = -1

    def _append(self, data: bytes) -> None:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            return  # a full disk loses log lines, never the container
        self._size_bytes += len(data)
        if self._size_bytes >= self._rotate_bytes:
            try:
                self._rotate()
            except OSError:
                self._fd = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)  # as above
                self._size_bytes = 0

    def _rotate(self) -> None:
        os.close(self._fd)
        seconds, rest_ns = divmod(time.time_ns(), 1_000_000_000)
        moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds))
        self._path.rename(self._path.with_name(f"{self._path.name}.{moment}.{rest_ns:09d}"))
        rotated = sorted(self._path.parent.glob(f"{self._path.name}.*"))
        for old in rotated[: max(0, len(rotated) - (self._keep_files - 1))]:
            old.unlink(missing_ok=True)
        self._open()
