"""How the benchmarks make their figures from step times, by upstream's rules. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MAD_TO_SIGMA = 1.4826
"""Factor from a normal distribution's median absolute deviation to its standard deviation."""


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of one rank over its steps. Unit: images/s.

    Attributes:
        mean: images of a step over the mean step time (the harmonic mean of the steps' speeds).
        uncertainty: standard deviation of the steps' speeds over the square root of their number.
        jitter: 1.4826 times the median absolute deviation of the steps' speeds from their median.
    """

    mean: float
    uncertainty: float
    jitter: float


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two in the middle."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def deviation(values: Sequence[float]) -> float:
    """Return the population's standard deviation."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def step_speed(images: int, step_times_s: Sequence[float], weight: float = 0.0) -> Speed:
    """Return the speed over the steps so far.

    Args:
        images: of one step of this rank.
        step_times_s: of every step since the warm-up, at least one.
        weight: of the newest step in an exponentially weighted mean; 0 weighs all steps alike.

    Source: tf_cnn_benchmarks, ``get_perf_timing``.
    """
    speeds = [images / seconds for seconds in step_times_s]
    count = len(speeds)
    if weight > 0:
        weights = [(1 - weight) ** (count - 1 - index) for index in range(count)]
        total_s = math.fsum(w * seconds for w, seconds in zip(weights, step_times_s, strict=True))
        mean_s = total_s / math.fsum(weights)
    else:
        mean_s = math.fsum(step_times_s) / count
    middle = median(speeds)
    return Speed(
        mean=images / mean_s,
        uncertainty=deviation(speeds) / math.sqrt(count),
        jitter=MAD_TO_SIGMA * median([abs(speed - middle) for speed in speeds]),
    )


def confidence(values: Sequence[float]) -> tuple[float, float]:
    """Return the arithmetic mean and 1.96 times the population's standard deviation.

    Source: Horovod's ``pytorch_synthetic_benchmark.py``.
    """
    return math.fsum(values) / len(values), 1.96 * deviation(values)
