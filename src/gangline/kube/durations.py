"""How long things took: a bounded sample with its percentiles, and counts in buckets."""

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
