"""Put pieces of many ranks' output together to tagged lines, and show an unfinished line as it grows. Pure.

``mpirun --output tag:raw`` of Open MPI 5 passes on what it reads at once, with a tag before each piece only;
a piece may hold several lines, or a part of one. Here every line gets its tag, as with ``--tag-output``, and
of unfinished lines one at a time is shown while it grows: a progress bar that returns to the beginning of its
line, or a question that waits. That is rank 0's, else the first one. Lines of others appear at their end; the
line that was open is then ended before them, and goes on below.

Imported by ``mpirun_wrapper``: standard library only.
"""

from __future__ import annotations

import re

SHOWN_AFTER_S = 0.1
"""A line that is unfinished for so long is shown so far: most are finished by the next piece."""
LINE_BYTES_MAX = 64 * 1024
"""A longer unfinished line is shown in parts."""

_TAG = re.compile(rb"\[(\d+),(\d+)\]<(std(?:out|err|diag))>: ?")
_BEGINNING = re.compile(rb"\[(\d*|\d+,\d*|\d+,\d+\]<?[a-z]{0,7}>?:?)$")
_TAG_BYTES_MAX = 40

_Place = tuple[int, bytes]


class RankPieces:
    """Takes what the launcher writes; times are in seconds on any clock that only goes forward."""

    def __init__(self) -> None:
        self._held = b""
        self._held_since = 0.0
        self._tags: dict[_Place, bytes] = {}
        self._place: _Place | None = None
        self._lines: dict[_Place, bytearray] = {}
        self._since: dict[_Place, float] = {}
        self._open: _Place | None = None

    def feed(self, data: bytes, now_s: float) -> bytes:
        """Return what is to be written now: lines that are whole. One regular expression for each piece."""
        text = self._held + data
        start = text.rfind(b"[", max(0, len(text) - _TAG_BYTES_MAX))
        cut = start if start >= 0 and _BEGINNING.match(text, start) else len(text)
        self._held, self._held_since = text[cut:], now_s
        return self._take(text[:cut], now_s)

    def due_s(self) -> float | None:
        """Return when ``show`` has something to do, None when it has nothing."""
        moments = [self._since[place] for place in self._showable()]
        if self._held:
            moments.append(self._held_since)
        return min(moments) + SHOWN_AFTER_S if moments else None

    def show(self, now_s: float) -> bytes:
        """Return what is to be shown of unfinished lines by now."""
        shown = b""
        if self._held and now_s >= self._held_since + SHOWN_AFTER_S:  # no tag: that would have come whole
            held, self._held = self._held, b""
            shown = self._take(held, now_s)
        due = [place for place in self._showable() if now_s >= self._since[place] + SHOWN_AFTER_S]
        return shown + (self._part(due[0]) if due else b"")

    def flush(self) -> bytes:
        """Return what is left at the end; a line without an end gets one."""
        held, self._held = self._held, b""
        shown = bytearray(self._take(held, 0.0))
        for place in sorted(self._since, key=lambda place: place != self._open):
            shown += self._part(place)
        return bytes(shown + self._end_open())

    def _showable(self) -> list[_Place]:
        """Return whose unfinished line may be shown, the most wanted first."""
        waiting = sorted(self._since)
        if self._open is None:
            return waiting[:1]
        return [place for place in waiting if place == self._open or place[0] == 0 < self._open[0]]

    def _take(self, text: bytes, now_s: float) -> bytes:
        shown = bytearray()
        position = 0
        for match in _TAG.finditer(text):
            shown += self._add(text[position : match.start()], now_s)
            self._place = (int(match.group(2)), match.group(3))
            self._tags[self._place] = match.group()
            position = match.end()
        return bytes(shown + self._add(text[position:], now_s))

    def _add(self, text: bytes, now_s: float) -> bytes:
        if not text:
            return b""
        place = self._place
        if place is None:  # the launcher itself spoke before any rank
            return text
        line = self._lines.setdefault(place, bytearray())
        line += text
        end = line.rfind(b"\n") + 1
        shown = self._whole(place, bytes(line[:end])) if end else b""
        del line[:end]
        if not line:
            self._since.pop(place, None)
        elif end or place not in self._since:
            self._since[place] = now_s
        return shown + (self._part(place) if len(line) > LINE_BYTES_MAX else b"")

    def _whole(self, place: _Place, lines: bytes) -> bytes:
        """Return whole lines with their tags; the first one may have been shown in part."""
        tag = self._tags[place]
        tagged = tag + lines[:-1].replace(b"\n", b"\n" + tag) + b"\n"
        if self._open == place:
            self._open = None
            return tagged[len(tag) :]
        return self._end_open() + tagged

    def _part(self, place: _Place) -> bytes:
        """Return what is new of an unfinished line."""
        line = self._lines[place]
        text = bytes(line)
        line.clear()
        del self._since[place]
        if self._open == place:
            return text
        before = self._end_open()
        self._open = place
        return before + self._tags[place] + text

    def _end_open(self) -> bytes:
        was_open, self._open = self._open, None
        return b"" if was_open is None else b"\n"
