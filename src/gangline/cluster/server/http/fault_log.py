"""What the server logs of requests that go wrong: a bounded number of lines, tracebacks of ours only.

A client, known or not, must not be able to fill the disk. So many lines a minute are written; the next minute
begins with the number of those that were not.
"""

from __future__ import annotations

import logging
import time
import traceback
from typing import Any, Final

LINES_PER_MINUTE: Final = 30
TRACEBACK_FRAMES_MAX: Final = 8
_MINUTE_S: Final = 60.0


class LineBudget:
    """So many lines a minute."""

    def __init__(self, lines_per_minute: int = LINES_PER_MINUTE) -> None:
        self._lines_per_minute = lines_per_minute
        self._since = 0.0
        self._lines = 0
        self.dropped = 0
        """Lines that were not written in the last minute that had some."""
        self._dropping = 0

    def take(self, now: float | None = None) -> bool:
        """Whether one more line may be written."""
        now = time.monotonic() if now is None else now
        if now - self._since >= _MINUTE_S:
            self._since, self._lines = now, 0
            self.dropped, self._dropping = self._dropping, 0
        if self._lines >= self._lines_per_minute:
            self._dropping += 1
            return False
        self._lines += 1
        return True


class FaultLog:
    """The log of a server's own faults."""

    def __init__(self) -> None:
        self._budget = LineBudget()

    def failed(self, method: str, path: str, error: BaseException) -> None:
        """Write down a request of a known client that ended in a fault of ours, with its traceback."""
        if not self._budget.take():
            return
        import structlog

        structlog.get_logger().error(
            "request failed",
            method=method[:16],
            path=path[:256],
            lines_not_written=self._budget.dropped,
            traceback="".join(traceback.format_exception(error, limit=-TRACEBACK_FRAMES_MAX))[:8192],
        )


class LibraryLines(logging.Filter):
    """Lets through so many lines of a library a minute, each without its traceback."""

    def __init__(self) -> None:
        super().__init__()
        self._budget = LineBudget()

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop what is over the budget, and what is only told on level info."""
        if record.levelno < logging.WARNING or not self._budget.take():
            return False
        error: Any = record.exc_info[1] if record.exc_info else None
        said = f" {type(error).__name__}: {error}" if error is not None else ""
        record.msg = f"{record.getMessage()}{said}".replace("\n", " ")[:512]
        record.args, record.exc_info, record.exc_text = (), None, None
        return True


_library_lines = LibraryLines()


def bound_library_logs() -> None:
    """Bound what asyncio and aiohttp write about connections: one line each, so many a minute."""
    for name in ("asyncio", "aiohttp.server"):
        logger = logging.getLogger(name)
        if _library_lines not in logger.filters:
            logger.addFilter(_library_lines)
