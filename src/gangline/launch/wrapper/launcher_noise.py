"""Leave two harmless messages of Open MPI 5 out of a launcher's log. Pure.

``prterun`` puts each remote shell into a process group of its own, in the parent and in the child. When the
child was faster, the parent prints ``[HOST:PID] plm:ssh: Warning: setpgid(…) failed in parent …``. And when
several ranks of one host end at the same moment, ``prted`` may find a folder of theirs under ``/tmp`` removed
already, and prints a block between two dashed lines. Nothing is wrong, yet both would stand among the lines
of many runs.
"""

from __future__ import annotations

import re

_WARNING = re.compile(rb"\[[^\]\s]+:\d+\] plm:ssh: Warning: setpgid\(\d+,\d+\) failed in parent with errno")
_DASHES = b"-" * 74
_BLOCK = (
    re.compile(_DASHES),
    re.compile(rb"We attempted to remove a file, but were unable to do so:"),
    re.compile(rb""),
    re.compile(rb"  Path:  /tmp/(prted|ompi|prte)\.\S*"),
    re.compile(rb"  Error: No such file or directory"),
    re.compile(_DASHES),
)
_HELD_MAX = 400
"""A line that is not complete and longer than this is no message of the launcher's."""


class LauncherNoise:
    """Passes a log on piece by piece; only lines that begin like the launcher's own wait for their end.

    Args:
        host: host name of the launcher, with which its own lines begin.
    """

    def __init__(self, host: str) -> None:
        self._prefix = f"[{host}:".encode()
        self._held = b""
        self._block: list[bytes] = []
        self._after_block = False
        self._inside_line = False

    def feed(self, data: bytes) -> bytes:
        """Return what may be shown now; one comparison for each line."""
        lines = (self._held + data).split(b"\n")
        self._held = b""
        shown = bytearray()
        for line in lines[:-1]:
            if self._inside_line:
                shown += line + b"\n"
                self._inside_line = False
            else:
                shown += self._line(line)
        rest = lines[-1]
        if not self._inside_line and self._may_be_noise(rest):
            self._held = rest
        elif rest:
            shown += self._give_up() + rest
            self._inside_line = True
        return bytes(shown)

    def flush(self) -> bytes:
        """Return what is still held, at the end of the log."""
        held, self._held = self._give_up() + self._held, b""
        return b"" if held == b"\0" else held

    def _line(self, line: bytes) -> bytes:
        """Return what is shown of a line that has begun and ended."""
        if self._after_block and line.startswith(b"\0"):  # the end of the message, which the launcher prints
            line = line[1:]
            self._after_block = False
            if not line:
                return b""
        if _WARNING.match(line):
            return b""
        if not _BLOCK[len(self._block)].fullmatch(line):
            shown = self._give_up()
            if not _BLOCK[0].fullmatch(line):
                return shown + line + b"\n"
            self._block = [line]
            return shown
        self._block.append(line)
        if len(self._block) == len(_BLOCK):
            self._block = []
            self._after_block = True
        return b""

    def _give_up(self) -> bytes:
        """Return the lines of a block that turned out to be another."""
        lines, self._block = self._block, []
        return b"".join(line + b"\n" for line in lines)

    def _may_be_noise(self, rest: bytes) -> bool:
        if not rest or len(rest) > _HELD_MAX:
            return False
        is_ours = rest.startswith(self._prefix) or self._prefix.startswith(rest)
        return is_ours or bool(self._block) or _DASHES.startswith(rest) or rest == b"\0"
