"""Turn the tags that ``mpirun --tag-output`` puts before every line into what people read. Pure.

``gangline run -n`` asks for the tags so that a failed rank's last lines can be told from the others'. Shown
are the lines of rank 0 as the program wrote them, and those of every other rank behind ``[RANK] ``.

Open MPI passes on a last line that has no newline at the end of the program, and puts the next rank's tag
right behind it. Inside a tagged line a tag of the same launch that names another rank or stream therefore
begins a line of its own; a program that prints such a tag itself is taken for it.
"""

from __future__ import annotations

import re

ANNOTATION = "gangline.dev/rank-tags"
"""On a job and its launcher pod: the launcher's log carries these tags, and readers may take them off."""

_TAG = re.compile(rb"\[(\d+),(\d+)\]<(std(?:out|err|diag))>: ?")
_BEGINNING = re.compile(rb"\[(\d*|\d+,\d*|\d+,\d+\]<?[a-z]{0,7}>?:?)$")
_TAG_BYTES_MAX = 40

_Tag = tuple[bytes, bytes, bytes]


class RankTags:
    """Takes tags off a log piece by piece; holds back only what may still become a tag."""

    def __init__(self) -> None:
        self._held = b""
        self._inside_line = False
        self._tag: _Tag | None = None

    def feed(self, data: bytes) -> bytes:
        """Return what may be shown now; one regular expression for each line."""
        *lines, rest = (self._held + data).split(b"\n")
        shown = bytearray()
        for line in lines:
            shown += self._plain(line) + b"\n"
            self._inside_line, self._tag = False, None
        self._held = self._beginning_of_tag(rest)
        if ready := rest[: len(rest) - len(self._held)]:
            shown += self._plain(ready)
            self._inside_line = True
        return bytes(shown)

    def flush(self) -> bytes:
        """Return what is still held at the end of the log, and the end of a rank's line that has none."""
        shown = self._plain(self._held) if self._held else b""
        end = b"\n" if self._tag is not None else b""
        self._held, self._inside_line, self._tag = b"", False, None
        return shown + end

    def _beginning_of_tag(self, rest: bytes) -> bytes:
        """Return the end of an unfinished line that may become a tag with the next piece."""
        if not self._inside_line and not rest.startswith(b"["):
            return b""
        if self._inside_line and self._tag is None:
            return b""
        start = rest.rfind(b"[", max(0, len(rest) - _TAG_BYTES_MAX))
        return rest[start:] if start >= 0 and _BEGINNING.match(rest, start) else b""

    def _plain(self, text: bytes) -> bytes:
        """Return a whole line, or a part of one, without its tags."""
        shown = bytearray()
        if not self._inside_line:
            match = _TAG.match(text)
            if match is None:
                return text
            shown += self._begin(match)
            text = text[match.end() :]
        while self._tag is not None and (match := _next_tag(text, self._tag)):
            shown += text[: match.start()] + b"\n" + self._begin(match)
            text = text[match.end() :]
        return bytes(shown + text)

    def _begin(self, match: re.Match[bytes]) -> bytes:
        self._tag = _tag_of(match)
        self._inside_line = True
        rank = int(match.group(2))
        return b"" if rank == 0 else b"[%d] " % rank


def split_line(line: bytes) -> list[bytes]:
    """Return the lines of single ranks that stand in one line of a log, each with its tag."""
    match = _TAG.match(line)
    parts: list[bytes] = []
    while match is not None:
        following = _next_tag(line, _tag_of(match), match.end())
        if following is None:
            break
        parts.append(line[: following.start()])
        line = line[following.start() :]
        match = _TAG.match(line)
    return [*parts, line]


def untagged(line: bytes) -> list[tuple[int, str, bytes]]:
    """Return the rank, the stream and the text of all that ranks wrote in one line of a log."""
    found = []
    for part in split_line(line):
        if match := _TAG.match(part):
            stream = "stdout" if match.group(3) == b"stdout" else "stderr"
            found.append((int(match.group(2)), stream, part[match.end() :].removesuffix(b"\n") + b"\n"))
    return found


def _tag_of(match: re.Match[bytes]) -> _Tag:
    return match.group(1), match.group(2), match.group(3)


def _next_tag(text: bytes, tag: _Tag, start: int = 0) -> re.Match[bytes] | None:
    """Return the next tag of the same launch that names another rank or stream."""
    for match in _TAG.finditer(text, start):
        if match.group(1) == tag[0] and _tag_of(match) != tag:
            return match
    return None
