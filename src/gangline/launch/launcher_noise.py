"""Leave one harmless line of Open MPI 5 out of a launcher's log. Pure.

``prterun`` puts each remote shell into a process group of its own, in the parent and in the child. When the
child was faster, the parent prints ``[HOST:PID] plm:ssh: Warning: setpgid(…) failed in parent …``: nothing is
wrong, yet it would stand above the first line of many runs.
"""

from __future__ import annotations

import re

_NOISE = re.compile(rb"\[[^\]\s]+:\d+\] plm:ssh: Warning: setpgid\(\d+,\d+\) failed in parent with errno")


class LauncherNoise:
    """Passes a log on piece by piece; only a line that begins like the launcher's own waits for its end.

    Args:
        host: host name of the launcher, with which its own lines begin.
    """

    def __init__(self, host: str) -> None:
        self._prefix = f"[{host}:".encode()
        self._held = b""
        self._inside_line = False

    def feed(self, data: bytes) -> bytes:
        """Return what may be shown now; one comparison for each line."""
        lines = (self._held + data).split(b"\n")
        self._held = b""
        shown = bytearray()
        for line in lines[:-1]:
            if self._inside_line or not _NOISE.match(line):
                shown += line + b"\n"
            self._inside_line = False
        rest = lines[-1]
        if not self._inside_line and self._may_be_noise(rest):
            self._held = rest
        else:
            shown += rest
            self._inside_line = self._inside_line or bool(rest)
        return bytes(shown)

    def flush(self) -> bytes:
        """Return what is still held, at the end of the log."""
        held, self._held = self._held, b""
        return held

    def _may_be_noise(self, rest: bytes) -> bool:
        return bool(rest) and (rest.startswith(self._prefix) or self._prefix.startswith(rest))
