"""A log as lines that know their rank. Pure."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections import deque
from typing import Final, NamedTuple

LINES_MAX: Final = 20_000
LINE_CHARS_MAX: Final = 4_000
RANKS_MAX: Final = 1_024
"""Whose last lines are kept: a line of rank 0 may begin with any number in brackets."""

# [3] epoch 1 loss 0.5
_RANK: Final = re.compile(r"\[(\d{1,7})\] ")


class Line(NamedTuple):
    """One line, and the rank that wrote it; None where nobody says."""

    rank: int | None
    text: str


class Lines:
    """The last lines of a log, in the order in which they came.

    Args:
        has_ranks: lines of other ranks than 0 begin with ``[RANK] ``, those of rank 0 with nothing.

    Attributes:
        total: how many have come.
        last: the last one of each rank that is not empty.
    """

    def __init__(self, *, has_ranks: bool) -> None:
        self._has_ranks = has_ranks
        self._kept: deque[Line] = deque(maxlen=LINES_MAX)
        self._rest = ""
        self._decoder = getincrementaldecoder("utf-8")("replace")  # a character may lie in two pieces
        self.total = 0
        self.last: dict[int | None, str] = {}

    def feed(self, data: bytes) -> None:
        """Take a piece of the log; a line counts once it has ended, or is too long."""
        *whole, self._rest = (self._rest + self._decoder.decode(data)).split("\n")
        for text in whole:
            self._add(text)
        if len(self._rest) > LINE_CHARS_MAX:
            self._add(self._rest)
            self._rest = ""

    def flush(self) -> None:
        """Take a last line that has no end."""
        if self._rest:
            self._add(self._rest)
            self._rest = ""

    def since(self, seen: int) -> tuple[int, list[Line]]:
        """Return how many lines after the first ``seen`` ones are not kept any more, and the others."""
        kept = len(self._kept)
        missing = max(0, self.total - kept - seen)
        wanted = self.total - seen - missing
        return missing, [self._kept[index] for index in range(kept - wanted, kept)]

    def _add(self, text: str) -> None:
        match = _RANK.match(text) if self._has_ranks else None
        rank = int(match.group(1)) if match else 0 if self._has_ranks else None
        shown = (text[match.end() :] if match else text).removesuffix("\r").rpartition("\r")[2]
        self._kept.append(Line(rank, shown[:LINE_CHARS_MAX]))
        if shown.strip() and (rank in self.last or len(self.last) < RANKS_MAX):
            self.last[rank] = shown[:LINE_CHARS_MAX]
        self.total += 1
