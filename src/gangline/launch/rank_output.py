"""Output of many ranks as lines: prefixed for people or as Horovod does it, or written to files."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from gangline.launch.rank_logs import RankLogs

TAIL_LINES = 20
LINE_MAX = 65536
_ENDS = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)")

Prefix = Callable[[int, str], bytes]


def plain_prefix(rank: int, stream: str) -> bytes:
    """Return the prefix of `gangline`: none for rank 0, ``[RANK] `` for every other."""
    return b"" if rank == 0 else b"[%d] " % rank


def horovod_prefix(rank: int, stream: str) -> bytes:
    """Return the prefix of `horovodrun --gloo`: ``[RANK]<stdout>:``."""
    return f"[{rank}]<{stream}>:".encode()


def timestamped(prefix: Prefix) -> Prefix:
    """Return a prefix with the time before it, as `horovodrun -prefix-timestamp` writes it."""
    return lambda rank, stream: time.asctime().encode() + prefix(rank, stream)


class RankOutput:
    """Takes pieces of output and shows whole lines, so that lines of two ranks never mix.

    Args:
        show: takes (stream, bytes) for every line; ``stdout`` or ``stderr``.
        prefix: what stands before a line.
        folder: also write ``rank.NN/stdout`` and ``stderr`` here, as the ranks wrote them.
        size: number of ranks, for the width of NN.
    """

    def __init__(
        self,
        show: Callable[[str, bytes], None],
        prefix: Prefix = plain_prefix,
        folder: Path | None = None,
        size: int = 1,
    ) -> None:
        self._show, self._prefix = show, prefix
        self._logs = RankLogs(folder, size) if folder is not None else None
        self._held: dict[tuple[int, str], bytes] = {}
        self._tails: dict[int, deque[str]] = {}

    def feed(self, rank: int, stream: str, data: bytes) -> None:
        """Take a piece; its unfinished last line waits for its end, 64 KiB at most."""
        if self._logs is not None:
            self._logs.write(rank, stream, data)
        text = self._held.pop((rank, stream), b"") + data
        position = 0
        while match := _ENDS.match(text, position):
            if match.group().endswith(b"\r") and match.end() == len(text):
                break  # perhaps half of \r\n
            self._line(rank, stream, match.group())
            position = match.end()
        rest = text[position:]
        if len(rest) > LINE_MAX:
            self._line(rank, stream, rest + b"\n")
        elif rest:
            self._held[rank, stream] = rest

    def _line(self, rank: int, stream: str, line: bytes) -> None:
        tail = self._tails.setdefault(rank, deque(maxlen=TAIL_LINES))
        tail.append(line.decode(errors="replace").rstrip("\r\n"))
        self._show(stream, self._prefix(rank, stream) + line)

    def tail(self, rank: int) -> list[str]:
        """Return a rank's last lines, 20 at most."""
        return list(self._tails.get(rank, ()))

    def end_rank(self, rank: int) -> None:
        """Show what a rank left without the end of a line."""
        for stream in ("stdout", "stderr"):
            if held := self._held.pop((rank, stream), b""):
                self._line(rank, stream, held if held.endswith(b"\r") else held + b"\n")

    def close(self) -> None:
        """Close the files."""
        if self._logs is not None:
            self._logs.close()
