"""What a callback of a trainer tells Gangline: steps, saves, the watch, and whether it was asked to stop."""

from __future__ import annotations

import sys
from typing import Any

from gangline.errors import EXIT_RESUME
from gangline.train.checkpoint_log import KIND
from gangline.train.preemption import StopRequest
from gangline.train.progress import Progress
from gangline.train.records import format_record


class Report:
    """One training of a trainer that has its own process group. All ranks make one, in the main thread.

    Args:
        done: steps done before.
        steps: in all, None when unknown.
        items_per_step: of all ranks together.
        stops: take SIGTERM and SIGUSR1 as the wish to save and end.
        options: of `gangline.train.progress.Progress`.
    """

    def __init__(
        self, done: int, steps: int | None, items_per_step: float, *, stops: bool, **options: Any
    ) -> None:
        import torch.distributed as dist

        rank, size, watch = 0, 1, None
        if dist.is_available() and dist.is_initialized():
            from gangline.train.silence.script_watch import watch as watch_ranks

            rank, size, watch = dist.get_rank(), dist.get_world_size(), watch_ranks()
        options = {"unit": "samples", "lines": False, **options}
        self._rank, self._watch = rank, watch
        self._progress = Progress(
            rank, size, done=done, steps=steps, items_per_step=items_per_step, watch=watch, **options
        )
        self._stop = StopRequest(rank, size) if stops else None
        self.is_stopping = False

    def step(self, loss: Any = None) -> bool:
        """Count a step; return whether the job was asked to stop, the same on all ranks."""
        self._progress.step(loss)
        if self._stop is not None and not self.is_stopping:
            self.is_stopping = self._stop.agreed()
        return self.is_stopping

    def log(self, step: int, values: dict[str, Any]) -> None:
        """Record rank 0's numbers among these values."""
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        if numbers:
            self._progress.log(step, numbers, reduce=None)

    def saved(self, step: int) -> None:
        """Say that a checkpoint of this step is complete on disk."""
        if self._rank == 0:
            sys.stdout.write(format_record(KIND, step=step))
            sys.stdout.flush()

    def end(self) -> None:
        """End the report; a training that was asked to stop ends with the code 75, to be started again.

        Raises:
            SystemExit: it was asked to stop.
        """
        self._progress.close()
        if self._stop is not None:
            self._stop.close()
        if self._watch is not None:
            self._watch.close()
        if self.is_stopping:
            raise SystemExit(EXIT_RESUME)
