"""When the next save is due: rank 0 measures, and all ranks go by what it said at the save before."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gangline.train.checkpoints.interval import FIRST_STEPS, FailureHistory, failure_s, interval_steps

NAME = ".history.json"


class Due:
    """The time of steps and saves of this rank, and the interval that follows from them.

    Args:
        folder: of the checkpoints, which keeps what the training has met.
        rank: this one; rank 0 reads and writes the history.
        ranks: their number.
        clock: monotonic seconds.
    """

    def __init__(
        self, folder: Path, rank: int, ranks: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._rank, self._ranks, self._clock = folder / NAME, rank, ranks, clock
        self._history = _read(self._path).begun() if rank == 0 else FailureHistory()
        self._counted_at = clock()
        self._steps = FIRST_STEPS
        self._saved_step: int | None = None
        self._stepped: tuple[int, float] | None = None  # step and time of the end of the save before
        self._step_s = 0.0
        self._cost_s = 0.0
        self.write_history()

    def __call__(self, step: int) -> bool:
        """Return whether so many steps have passed since the last save; the same on all ranks."""
        if self._saved_step is None:
            self._saved_step = step - 1
        if self._stepped is None:
            self._stepped = step, self._clock()
        elif step > self._stepped[0]:
            self._step_s = (self._clock() - self._stepped[1]) / (step - self._stepped[0])
        return step - self._saved_step >= self._steps

    def saved(self, step: int, cost_s: float) -> None:
        """Count a save that held the training up for so long."""
        self._saved_step, self._cost_s = step, cost_s
        self._stepped = step, self._clock()

    def wanted_steps(self) -> int:
        """Return the steps between saves by what this rank has measured."""
        if not self._step_s or not self._cost_s:
            return FIRST_STEPS
        return interval_steps(self._cost_s, self._step_s, failure_s(self._counted(), self._ranks))

    def agree(self, steps: int) -> None:
        """Take what rank 0 wants; called at the same step on all ranks."""
        self._steps = steps

    def write_history(self, *, is_open: bool = True) -> None:
        """Keep what the training has met, where the folder can be written; on rank 0."""
        if self._rank != 0:
            return
        counted = self._counted()
        self._history = FailureHistory(counted.rank_hours, counted.failures, is_open)
        self._counted_at = self._clock()
        draft = self._path.with_suffix(".part")
        with suppress(OSError):  # a full disk stops saves, which say so
            draft.write_text(json.dumps(self._history.plain()), encoding="ascii")
            draft.replace(self._path)

    def _counted(self) -> FailureHistory:
        hours = (self._clock() - self._counted_at) * self._ranks / 3600
        return FailureHistory(self._history.rank_hours + hours, self._history.failures, self._history.is_open)


def _read(path: Path) -> FailureHistory:
    try:
        found = json.loads(path.read_text(encoding="ascii"))
        return FailureHistory(float(found["rank_hours"]), int(found["failures"]), bool(found["is_open"]))
    except (OSError, ValueError, KeyError, TypeError):
        return FailureHistory()
