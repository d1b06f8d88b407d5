"""The timeline: what was negotiated and carried out, as events that a browser's trace viewer draws.

Rank 0 writes it. A file that is cut off is still read by the viewers: an open list of events is allowed.

Source: Trace Event Format, duration events (``B`` and ``E``), and the names that Horovod gives them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from horovod.engine.batches import Batch


class Timeline:
    """A file of events; silent until it is started."""

    def __init__(self) -> None:
        self._file: IO[str] | None = None
        self._lock = threading.Lock()
        self._rows: dict[str, int] = {}
        self._mark_cycles = False
        self._began = 0.0

    @property
    def is_on(self) -> bool:
        """Events are written."""
        return self._file is not None

    def start(self, path: str, *, mark_cycles: bool = False) -> None:
        """Write into a file from now on, which is made anew."""
        self.stop()
        with self._lock:
            self._file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 - until `stop`
            self._file.write("[\n")
            self._rows = {}
            self._mark_cycles = mark_cycles
            self._began = time.perf_counter()

    def stop(self) -> None:
        """Close the file; nothing when there is none."""
        with self._lock:
            if self._file is not None:
                self._file.write("{}]\n")
                self._file.close()
                self._file = None

    def _write(self, **event: object) -> None:
        if self._file is not None:
            self._file.write(json.dumps(event) + ",\n")
            self._file.flush()

    def _now(self) -> int:
        return int((time.perf_counter() - self._began) * 1e6)

    def _row(self, name: str) -> int:
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = len(self._rows) + 1
            self._write(name="process_name", ph="M", pid=row, args={"name": name})
            self._write(name="process_sort_index", ph="M", pid=row, args={"sort_index": row})
        return row

    def negotiated(self, name: str, kind: str, began: float) -> None:
        """Note how long a name waited for all ranks; `began` is a `time.perf_counter`."""
        with self._lock:
            if self._file is None:
                return
            row, begin = self._row(name), max(0, int((began - self._began) * 1e6))
            self._write(ph="B", name=f"NEGOTIATE_{kind.upper()}", ts=begin, pid=row)
            self._write(ph="E", ts=self._now(), pid=row)

    @contextmanager
    def activity(self, batch: Batch) -> Iterator[None]:
        """Note a batch from its begin to its end."""
        if self._file is None:
            yield
            return
        names = [made.request.name for made in batch.agreements]
        with self._lock:
            for name in names:
                self._write(ph="B", name=batch.kind.upper(), ts=self._now(), pid=self._row(name))
        yield
        with self._lock:
            for name in names:
                self._write(ph="E", ts=self._now(), pid=self._row(name))

    def mark_cycle(self) -> None:
        """Note that a cycle began."""
        with self._lock:
            if self._file is not None:
                self._write(name="CYCLE_START", ph="i", s="g", ts=self._now(), pid=0)
