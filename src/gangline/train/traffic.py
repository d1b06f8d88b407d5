"""What this rank waits in: every collective from its begin to its end, by name.

Imports nothing of torch: the watch reads it also where another backend than ours runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Traffic:
    """Counts collectives: whoever has begun more than it has ended waits for its peers."""

    def __init__(self) -> None:
        self.begun = self.ended = 0
        self.changed_at = self.ended_at = time.monotonic()
        self._under_way: dict[int, str] = {}
        self._lock = threading.Lock()

    def begin(self, what: str) -> int:
        """Count a collective that this rank has come to; the number is for `end`."""
        with self._lock:
            self.begun += 1
            self.changed_at = time.monotonic()
            self._under_way[self.begun] = what
            return self.begun

    def end(self, number: int) -> None:
        """Count a collective that is done."""
        with self._lock:
            self.ended += 1
            self.changed_at = self.ended_at = time.monotonic()
            del self._under_way[number]

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Count one from here to the end of the block."""
        number = self.begin(what)
        try:
            yield
        finally:
            self.end(number)

    def waits(self) -> bool:
        """Return whether a collective is under way."""
        return bool(self._under_way)

    def oldest(self) -> str:
        """Return the first of those under way, ``""`` when there is none."""
        with self._lock:
            return next(iter(self._under_way.values()), "")


traffic = Traffic()
"""Of this process."""
