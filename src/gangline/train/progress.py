"""Progress of a training: a line for people, a record for ``gangline run``, metrics for Prometheus.

Rank 0 says it, the other ranks only count their steps. Nothing here waits for another rank, but ``log`` with
a reduction.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gangline.errors import GanglineError, UserError
from gangline.train.records import format_record
from gangline.train.scalars import Reducer, check_scalars, scalar_records
from gangline.train.trackers import Trackers, open_trackers
from gangline.units import format_age

if TYPE_CHECKING:
    from gangline.train.metrics import MetricsServer
    from gangline.train.silence.watch import Watch

INTERVAL_S = 10.0
METRICS_VARIABLE = "GANGLINE_TRAIN_METRICS"


class NotFiniteError(GanglineError):
    """A loss is NaN or infinite, and the training was to stop at that."""

    code = "not-finite"


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """Where a training is.

    Attributes:
        step: steps done, the steps before a resume included.
        steps: steps in all, None when unknown.
        rate: items a second of all ranks together since the last snapshot; None before two steps are done.
        unit: what an item is.
        loss: of rank 0's last step, None when it was not told.
        eta_s: seconds to the end, None when unknown.
        ranks: number of ranks.
    """

    step: int
    steps: int | None
    rate: float | None
    unit: str
    loss: float | None
    eta_s: float | None
    ranks: int

    def line(self) -> str:
        """Return the line for people: ``step 240/1000  123.4 images/s  loss 0.2310  ETA 2m10s``."""
        parts = [f"step {self.step}" + (f"/{self.steps}" if self.steps else "")]
        if self.rate is not None:
            parts.append(f"{self.rate:.1f} {self.unit}/s")
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4f}")
        if self.eta_s is not None and self.eta_s >= 1:
            parts.append(f"ETA {format_age(self.eta_s)}")
        return "  ".join(parts)

    def record(self) -> str:
        """Return the record for programs; a loss that is no number is left out, as JSON has none such."""
        loss = self.loss if self.loss is not None and math.isfinite(self.loss) else None
        return format_record(
            "progress",
            step=self.step,
            steps=self.steps,
            rate=_rounded(self.rate),
            unit=self.unit,
            loss=loss,
            eta_s=_rounded(self.eta_s),
            ranks=self.ranks,
        )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


class Progress:
    """Counts steps; call ``step(loss)`` at the end of each.

    Args:
        rank: this rank; only rank 0 reports.
        size: number of ranks.
        steps: in all, for the ETA.
        items_per_step: of all ranks together, for example the global batch size.
        unit: what an item is.
        done: steps that were done before, after a resume.
        interval_s: seconds between reports; the first step and the last are always reported.
        lines: write the line for people beside the record.
        metrics: ``HOST:PORT`` or ``PORT`` of an endpoint for Prometheus on rank 0; None reads
            GANGLINE_TRAIN_METRICS, and without that there is none.
        watch: is told every step.
        clock: monotonic seconds.
        write: where lines go; standard output by default.
        reducer: brings scalars of all ranks together; None for one rank.
        stop_at_nan: end this rank with a `NotFiniteError` at the first step whose loss is NaN or infinite.
            The loss is read in every step then, for which a GPU is waited for.
        track: names of trackers that get the scalars on rank 0 (``wandb``, ``mlflow``); None reads
            GANGLINE_TRACK, and without that there is none.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        *,
        steps: int | None = None,
        items_per_step: float = 1,
        unit: str = "images",
        done: int = 0,
        interval_s: float = INTERVAL_S,
        lines: bool = True,
        metrics: str | int | None = None,
        watch: Watch | None = None,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], object] | None = None,
        reducer: Reducer | None = None,
        stop_at_nan: bool = False,
        track: str | Sequence[str] | None = None,
    ) -> None:
        if steps is not None and steps < done:
            raise UserError(f"progress of {steps} steps cannot begin with {done} done")
        self._rank, self._size = rank, size
        self._steps, self._items, self._unit = steps, items_per_step, unit
        self._interval_s, self._clock, self._watch = interval_s, clock, watch
        self._stop_at_nan = stop_at_nan
        self._write, self._has_lines = write or _write, lines
        self._done = done
        self._loss: Any = None
        self._reported_at: float | None = None
        self._reported_step = done
        self._seconds_per_step: float | None = None
        self._metrics: MetricsServer | None = None
        self._trackers: Trackers | None = None
        self.last = ProgressReport(done, steps, None, unit, None, None, size)
        if watch is not None:
            watch.expect_steps(done)
        self._reducer = reducer
        if rank == 0:
            self._metrics = _open_metrics(metrics)
            self._trackers = open_trackers(track)

    @property
    def done(self) -> int:
        """Steps done."""
        return self._done

    def step(self, loss: Any = None) -> None:
        """Count a step; `loss` may be a number or a tensor, which is read only when it is reported.

        Raises:
            NotFiniteError: the loss is no finite number, where it is asked to stop at one.
        """
        self._done += 1
        now = self._clock()
        if self._watch is not None:
            self._watch.stepped(self._done)
        if self._stop_at_nan and loss is not None and not math.isfinite(value := float(loss)):
            raise NotFiniteError(
                f"the loss of rank {self._rank} is {value} after step {self._done}",
                hint="resume from a checkpoint before it, with a smaller learning rate or clipped gradients",
            )
        if self._rank != 0:
            return
        if loss is not None:
            self._loss = loss.detach() if hasattr(loss, "detach") else loss
        is_first = self._reported_at is None
        is_last = self._done == self._steps
        if is_first or is_last or now - (self._reported_at or 0.0) >= self._interval_s:
            self._report(now)

    def log(
        self,
        step: int | None = None,
        values: Mapping[str, Any] | None = None,
        *,
        reduce: str | None = "mean",
        **scalars: Any,
    ) -> dict[str, float]:
        """Record scalars of a step, and return them as all ranks have them together.

        All ranks call it, with the same names in the same order, and wait for one another; with
        ``reduce=None`` nobody waits, and rank 0's values are recorded. A record is written at once, so call
        it as often as a point is worth one line of the log.

        Args:
            step: that they belong to; the last one counted by default.
            values: numbers or tensors of one element, by names that Python cannot write (``val/loss``).
            reduce: ``mean``, ``sum``, ``min``, ``max`` over the ranks, or None.
            scalars: the same by other names.

        Raises:
            UserError: there is no scalar, or a name or the reduction is none.
            PeerLostError: a rank ended that never came.
        """
        named = {**(values or {}), **scalars}
        check_scalars(named, reduce)
        numbers = [float(value) for value in named.values()]
        if reduce is not None and self._reducer is not None:
            numbers = self._reducer(numbers, reduce)
        found = dict(zip(named, numbers, strict=True))
        at = self._done if step is None else step
        if self._rank == 0:
            self._write("".join(scalar_records(at, found)))
            if self._trackers is not None:
                self._trackers.write(at, found)
        return found

    def close(self) -> None:
        """Report what was not reported yet, and end the metrics and trackers."""
        if self._trackers is not None:
            self._trackers.close()
            self._trackers = None
        if self._rank == 0 and self._done != self._reported_step:
            self._report(self._clock())
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None

    def _report(self, now: float) -> None:
        rate = None
        if self._reported_at is not None and now > self._reported_at and self._done > self._reported_step:
            recent = (now - self._reported_at) / (self._done - self._reported_step)
            old = self._seconds_per_step
            self._seconds_per_step = recent if old is None else 0.5 * old + 0.5 * recent
            rate = self._items / recent
        eta_s = None
        if self._steps is not None and self._seconds_per_step is not None:
            eta_s = (self._steps - self._done) * self._seconds_per_step
        loss = None if self._loss is None else float(self._loss)
        self.last = ProgressReport(self._done, self._steps, rate, self._unit, loss, eta_s, self._size)
        self._reported_at, self._reported_step = now, self._done
        line = f"{self.last.line()}\n" if self._has_lines else ""
        self._write(f"{line}{self.last.record()}")
        if self._metrics is not None:
            self._metrics.snapshot = self.last


def _write(text: str) -> None:
    """Write to standard output at once, so that records stay whole and in order with the program's lines."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _open_metrics(wanted: str | int | None) -> MetricsServer | None:
    place = str(wanted if wanted is not None else os.environ.get(METRICS_VARIABLE, ""))
    if not place:
        return None
    from gangline.train.metrics import open_metrics

    return open_metrics(place)
