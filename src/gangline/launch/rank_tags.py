"""Turn the tags that ``mpirun --tag-output`` puts before every line into what people read. Pure.

``gangline run -n`` asks for the tags so that a failed rank's last lines can be told from the others'. Shown
are the lines of rank 0 as the program wrote them, and those of every other rank behind ``[RANK] ``.
"""

from __future__ import annotations

import re

ANNOTATION = "gangline.dev/rank-tags"
"""On a job and its launcher pod: the launcher's log carries these tags, and readers may take them off."""

_TAG = re.compile(rb"\[\d+,(\d+)\]<std(?:out|err|diag)>: ?")
_BEGINNING = re.compile(rb"\[(\d*|\d+,\d*|\d+,\d+\]<?[a-z]{0,7}>?:?)$")


class RankTags:
    """Takes tags off a log piece by piece; holds back only what may still become a tag."""

    def __init__(self) -> None:
        self._held = b""
        self._inside_line = False

    def feed(self, data: bytes) -> bytes:
        """Return what may be shown now; one regular expression for each line."""
        *lines, rest = (self._held + data).split(b"\n")
        self._held = b""
        shown = bytearray()
        for line in lines:
            shown += self._plain(line) + b"\n"
            self._inside_line = False
        if rest and not self._inside_line and _BEGINNING.match(rest):
            self._held = rest
        elif rest:
            shown += self._plain(rest)
            self._inside_line = True
        return bytes(shown)

    def flush(self) -> bytes:
        """Return what is still held, at the end of the log."""
        held, self._held = self._held, b""
        return held

    def _plain(self, line: bytes) -> bytes:
        match = None if self._inside_line else _TAG.match(line)
        if match is None:
            return line
        rank = int(match.group(1))
        text = line[match.end() :]
        return text if rank == 0 else b"[%d] %s" % (rank, text)
