"""A running `gangline launch` whose ranks say where they begin."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

LIMIT_S = 150.0
# worker 0 pid 4711 is rank 0 of 4 at step 25 1764110000.5
BEGIN = re.compile(r"worker (\d+) pid (\d+) is rank (\d+) of (\d+) at step (\d+)")


class Launch:
    """A running `gangline launch`.

    Args:
        folder: for its output.
        environment: of it.
        words: after ``launch``.
        before: words of a command that runs it, on another host for example.
    """

    def __init__(
        self, folder: Path, environment: dict[str, str], *words: str, before: tuple[str, ...] = ()
    ) -> None:
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "gangline", "launch", *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def begins(self, size: int) -> list[tuple[int, ...]]:
        """Return worker, pid, rank, size and step of all who began in a generation of this size."""
        found = [tuple(map(int, match.groups())) for match in BEGIN.finditer(self.text())]
        return [one for one in found if one[3] == size]

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"waited for {what}: {self.text()}"
            assert self.process.poll() is None, self.text()
            time.sleep(0.05)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
