"""Turn the output of MPICH's and Intel MPI's launchers into whole lines, tagged as Open MPI tags them. Pure.

Hydra puts its label not before every line but before every piece of output that it reads, and mixes the
pieces of all ranks. With a label of our own (``HYDRA_OPTIONS``) each rank's pieces are put together again,
and leave here as lines ``[0,RANK]<stdout>: TEXT``; a rank's unfinished line waits for its end. Lines of the
launcher itself, which have no label, pass as they are; but its list of exit codes becomes one line, and is
left out when all are 0.
"""

from __future__ import annotations

import re

HYDRA_OPTIONS = ("-prepend-pattern", "[%g,%r]<piece>: ", "-print-all-exitcodes")
"""For ``mpirun`` of both; ``%g`` is the process group, ``%r`` the rank. Exit codes tell which rank failed."""

_LABEL = re.compile(rb"\[(\d+),(\d+)\]<piece>: ")
_BEGINNING = re.compile(rb"\[(\d*|\d+,\d*|\d+,\d+\]<?[a-z]{0,5}>?:?)$")
_LABEL_BYTES_MAX = 32
_TAGGED = re.compile(rb"\[\d+,\d+\]<std(?:out|err|diag)>: ")
_CODES = re.compile(rb"\[mpiexec@[^\]]*\] Exit codes:")
_CODES_OF_HOST = re.compile(rb"\[[^\]]*\] [\d,]+$")
_ALL_WELL = re.compile(rb"\[mpiexec@[^\]]*\] Exit codes:(?: *\[[^\]]*\] [0,]+)*$")

_Place = tuple[bytes, bytes]


class HydraTags:
    """Takes a launcher's log piece by piece; holds back unfinished lines. One regular expression a line."""

    def __init__(self) -> None:
        self._held = b""
        self._place: _Place | None = None
        self._lines: dict[_Place | None, bytearray] = {}
        self._codes = b""
        self._is_shown_so_far = False

    def feed(self, data: bytes) -> bytes:
        """Return what is whole now."""
        text = self._held + data
        start = text.rfind(b"[", max(0, len(text) - _LABEL_BYTES_MAX))
        cut = start if start >= 0 and _BEGINNING.match(text, start) else len(text)
        self._held = text[cut:]
        return self._take(text[:cut])

    def flush(self) -> bytes:
        """Return what is left at the end of the log; lines without an end get one."""
        shown = bytearray(self._take(self._held))
        self._held, self._place = b"", None
        for place, line in self._lines.items():
            if line or (place is None and self._is_shown_so_far):
                shown += self._finish(place, bytes(line))
        self._lines.clear()
        return bytes(shown) + self._release_codes()

    def _take(self, text: bytes) -> bytes:
        shown = bytearray()
        position = 0
        for match in _LABEL.finditer(text):
            shown += self._add(text[position : match.start()])
            self._place = (match.group(1), match.group(2))
            position = match.end()
        return bytes(shown + self._add(text[position:]))

    def _add(self, text: bytes) -> bytes:
        """Add text to the line of the rank whose turn it is; after a line's end it is the launcher's."""
        shown = bytearray()
        while text:
            line = self._lines.setdefault(self._place, bytearray())
            head, newline, text = text.partition(b"\n")
            line += head
            if newline:
                shown += self._finish(self._place, bytes(line))
                line.clear()
                self._place = None
            elif self._place is None and not self._codes and (self._is_shown_so_far or _TAGGED.match(line)):
                shown += line  # of Open MPI: it comes as it is to be shown, unfinished lines included
                line.clear()
                self._is_shown_so_far = True
        return bytes(shown)

    def _finish(self, place: _Place | None, line: bytes) -> bytes:
        """Return a whole line as it leaves here."""
        if place is None and self._is_shown_so_far:
            self._is_shown_so_far = False
            return line + b"\n"
        if place is not None:
            return b"[%s,%s]<stdout>: %s\n" % (*place, line)
        if self._codes and _CODES_OF_HOST.match(line):
            self._codes += b" " + line
            return b""
        before = self._release_codes()
        if _CODES.match(line):
            self._codes = line
            return before
        return before + line + b"\n"

    def _release_codes(self) -> bytes:
        """Return the list of exit codes, which has a line for each host, as one."""
        codes, self._codes = self._codes, b""
        return codes + b"\n" if codes and not _ALL_WELL.match(codes) else b""
