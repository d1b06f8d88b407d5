"""How long things took: a bounded sample with its percentiles."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

samples_max = 4096


@dataclass(frozen=True, slots=True)
class DurationStatistics:
    """Durations since the start (``count``, ``total_s``) and percentiles of the last ones."""

    count: int = 0
    total_s: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0


class Durations:
    """Takes durations; keeps the last ``samples_max``."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=samples_max)
        self._count = 0
        self._total_s = 0.0

    def add(self, duration_s: float) -> None:
        """Take one duration."""
        self._last.append(duration_s)
        self._count += 1
        self._total_s += duration_s

    def statistics(self) -> DurationStatistics:
        """Return the figures of this moment. Cost: sorts the sample, about a millisecond."""
        if not self._last:
            return DurationStatistics()
        ordered = sorted(self._last)

        def percentile_ms(share: float) -> float:
            return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 3)

        return DurationStatistics(
            self._count, round(self._total_s, 6), percentile_ms(0.5), percentile_ms(0.99)
        )


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """A moment of the operator.

    Attributes:
        jobs: held now, finished ones included.
        jobs_created: jobs accepted since the start.
        jobs_successful: jobs that succeeded since the start.
        jobs_failed: jobs that failed since the start.
        launchers: (namespace, launcher Job) of every job that has one now.
        reconcile: from taking a job to having written everything.
        decide: the part of it that works out the plan; own processor time.
        queue_ready: jobs that wait for a worker.
        retries: reconciles that failed and were tried again.
        events_dropped: events that could not be sent.
        process_cpu_s: processor seconds of the whole process.
    """

    jobs: int
    jobs_created: int
    jobs_successful: int
    jobs_failed: int
    launchers: tuple[tuple[str, str], ...]
    reconcile: DurationStatistics
    decide: DurationStatistics
    queue_ready: int
    retries: int
    events_dropped: int
    process_cpu_s: float
