"""One save that is written by a thread of its own, which a process that ends waits for."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable

from gangline.train.unless_lost import leave_behind

_YIELD_S = 0.001
"""The caller goes on first: on busy cores Python lets a thread that computes run 5 ms before it."""


class Behind:
    """Begins to write at once.

    Args:
        write: a save; it ends by itself, soon, once the ranks that save are over.
    """

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
        self._error: Exception | None = None
        # A daemon: one that is abandoned may hang on a disk, and holds no process up.
        self._thread = threading.Thread(target=self._run, name="gangline-checkpoint", daemon=True)
        atexit.register(self._thread.join)
        self._thread.start()

    def _run(self) -> None:
        time.sleep(_YIELD_S)
        try:
            self._write()
        except Exception as error:  # noqa: BLE001 - raised again by who waits for this save
            self._error = error

    def finish(self) -> None:
        """Wait for it, and raise what went wrong."""
        self._thread.join()
        atexit.unregister(self._thread.join)
        if self._error is not None:
            raise self._error

    def abandon(self, limit_s: float) -> None:
        """Let it end by itself, whatever becomes of it; it is waited for no longer than this."""
        atexit.unregister(self._thread.join)
        self._thread.join(limit_s)
        if self._thread.is_alive():
            leave_behind(self._thread)
