"""How long things took: a bounded sample with its percentiles."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from itertools import accumulate

samples_max = 4096

bucket_bounds_s = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets that durations are counted in; longer ones are only in the total count."""


@dataclass(frozen=True, slots=True)
class DurationStatistics:
    """Durations since the start (``count``, ``total_s``, ``buckets``) and percentiles of the last ones.

    ``buckets`` has for each of ``bucket_bounds_s`` how many were not longer.
    """

    count: int = 0
    total_s: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    buckets: tuple[int, ...] = (0,) * len(bucket_bounds_s)


class Durations:
    """Takes durations; keeps the last ``samples_max``."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=samples_max)
        self._count = 0
        self._total_s = 0.0
        self._in_bucket = [0] * (len(bucket_bounds_s) + 1)

    def add(self, duration_s: float) -> None:
        """Take one duration."""
        self._last.append(duration_s)
        self._count += 1
        self._total_s += duration_s
        self._in_bucket[bisect_left(bucket_bounds_s, duration_s)] += 1

    def statistics(self) -> DurationStatistics:
        """Return the figures of this moment. Cost: sorts the sample, about a millisecond."""
        if not self._last:
            return DurationStatistics()
        ordered = sorted(self._last)

        def percentile_ms(share: float) -> float:
            return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 3)

        return DurationStatistics(
            self._count,
            round(self._total_s, 6),
            percentile_ms(0.5),
            percentile_ms(0.99),
            tuple(accumulate(self._in_bucket[:-1])),
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
        watch_restarts: (plural of the kind, watches after the first since the start), sorted.
        is_synced: whether all caches have had their first list.
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
    watch_restarts: tuple[tuple[str, int], ...]
    is_synced: bool
    process_cpu_s: float
