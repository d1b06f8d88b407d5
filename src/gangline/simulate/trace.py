"""Traces: which jobs arrive when, and how long they would run at their best. Generated from a seed.

GPU counts follow the published histogram of the Philly cluster; all else is a stated parameter. The same
seed gives the same trace: only uniform numbers are drawn, and turned into others by inverse distributions.

Long jobs are few and heavy, so that a day drawn for 95 % may bring 88 % or 102 %. Therefore all durations of
a trace are stretched by one factor, so that the load of the measured span is exactly what was asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import exp, log
from statistics import NormalDist

import numpy as np

from gangline.errors import UserError

PHILLY_JOBS: Mapping[int, int] = {
    1: 76_627, 2: 1_818, 4: 1_870, 8: 1_643, 12: 7, 16: 199, 24: 7, 32: 67, 64: 6, 128: 3,
}  # fmt: skip
"""Jobs by number of GPUs in the reduced Philly trace (82,248 jobs), counted from petuum/adaptdl's copy."""

WEIGHTS = ("jobs", "gpus")
"""How the histogram is weighted: as it is, or each count times its GPUs, so that gangs are most work."""

GPUS_PER_POD_MAX = 8
HOUR_S = 3600.0
DRAWS_MAX = 2_000_000
STRETCH_MAX = 16.0
"""A trace so short that no such factor meets its load is left as it was drawn."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace.

    Attributes:
        name: unique; jobs that arrive together go in the order of their names.
        arrival_s: since the beginning of the trace.
        gpus: GPUs of all of its pods.
        gpus_per_pod: GPUs of each pod; all pods start together.
        model: what it trains, a name of ``gangline.simulate.speeds``.
        work_s: how long it runs on the best placement.
        limit_s: after how many seconds it is ended at the latest, known to the scheduler; None for unknown.
    """

    name: str
    arrival_s: float
    gpus: int
    gpus_per_pod: int
    model: str
    work_s: float
    limit_s: float | None = None

    @property
    def pods(self) -> int:
        """Number of its pods."""
        return self.gpus // self.gpus_per_pod


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in the order of arrival, and the span in which figures are taken.

    Attributes:
        jobs: sorted by arrival and name.
        from_s: jobs that arrive from then on count, and GPUs are watched from then on.
        until_s: until then.
        stretch: by what all durations were multiplied to meet the load.
    """

    jobs: tuple[TraceJob, ...]
    from_s: float
    until_s: float
    stretch: float = 1.0

    def is_measured(self, job: TraceJob) -> bool:
        """Return whether a job counts in the figures."""
        return self.from_s <= job.arrival_s < self.until_s


@dataclass(frozen=True, slots=True)
class Mix:
    """How a trace is drawn.

    Attributes:
        load: GPUs that jobs would hold on average over the measured span if each started when it arrives, on
            its best placement, as a share of all GPUs; above 0.
        gpus: GPUs of the cluster.
        weight: one of :data:`WEIGHTS`.
        median_s, sigma: of the log-normal durations; their mean is ``median_s * exp(sigma**2 / 2)``.
        models: what is trained, with equal shares.
        warm_up_s: before figures are taken. The trace begins with as many jobs running as there would be
            after a long time, with what is left of their durations.
        day_s: how long figures are taken.
        seed: another one gives another trace.
    """

    load: float
    gpus: int
    weight: str = "jobs"
    median_s: float = HOUR_S
    sigma: float = 1.5
    models: tuple[str, ...] = ("resnet50",)
    warm_up_s: float = 12 * HOUR_S
    day_s: float = 24 * HOUR_S
    seed: int = 0
    histogram: Mapping[int, int] = field(default_factory=lambda: PHILLY_JOBS)

    @property
    def mean_s(self) -> float:
        """Mean duration."""
        return self.median_s * exp(self.sigma**2 / 2)

    def shares(self) -> dict[int, float]:
        """Return the share of jobs with each number of GPUs; counts beyond the cluster are left out."""
        weights = {
            count: jobs * (count if self.weight == "gpus" else 1)
            for count, jobs in self.histogram.items()
            if count <= self.gpus
        }
        total = sum(weights.values())
        return {count: weight / total for count, weight in weights.items()}

    @property
    def jobs_per_s(self) -> float:
        """Rate of arrivals that makes the load."""
        mean_gpus = sum(count * share for count, share in self.shares().items())
        return self.load * self.gpus / (mean_gpus * self.mean_s)


def gpus_per_pod(gpus: int) -> int:
    """Return how a job is cut into pods: one GPU each up to eight, beyond that as many as divide it.

    Example:
        >>> [gpus_per_pod(count) for count in (1, 4, 8, 12, 16)]
        [1, 1, 1, 4, 8]
    """
    if gpus <= GPUS_PER_POD_MAX:
        return 1
    return next(size for size in (GPUS_PER_POD_MAX, 4, 2, 1) if gpus % size == 0)


def generate(mix: Mix) -> Trace:
    """Return the trace of a mix.

    Raises:
        UserError: a parameter is out of its range.

    Cost: 10 µs a job.
    """
    _check(mix)
    draw = np.random.Generator(np.random.PCG64(mix.seed)).random
    shares = mix.shares()
    counts, steps = list(shares), list(accumulate(shares.values()))
    normal = NormalDist()

    def job(number: int, arrival_s: float, *, is_running: bool) -> TraceJob:
        gpus = counts[min(bisect_right(steps, draw()), len(counts) - 1)]
        model = mix.models[int(draw() * len(mix.models))]
        # Of jobs that are met running, long ones are more: the durations are biased by length, and a
        # uniform part of each is left.
        middle = log(mix.median_s) + (mix.sigma**2 if is_running else 0.0)
        work_s = exp(middle + mix.sigma * normal.inv_cdf(max(draw(), 1e-12)))
        work_s *= draw() if is_running else 1.0
        return TraceJob(
            name=f"job-{number:07}",
            arrival_s=round(arrival_s, 3),
            gpus=gpus,
            gpus_per_pod=gpus_per_pod(gpus),
            model=model,
            work_s=max(round(work_s, 3), 1.0),
        )

    running = round(mix.jobs_per_s * mix.mean_s)
    jobs = [job(number, 0.0, is_running=True) for number in range(running)]
    for arrival_s in _arrivals(mix, draw):
        jobs.append(job(len(jobs), arrival_s, is_running=False))
    return _stretched(Trace(tuple(jobs), mix.warm_up_s, mix.warm_up_s + mix.day_s), mix)


def _stretched(trace: Trace, mix: Mix) -> Trace:
    """Return the trace with all durations multiplied so that its load is the one asked for, if any is."""
    arrivals = np.array([job.arrival_s for job in trace.jobs])
    works = np.array([job.work_s for job in trace.jobs])
    gpus = np.array([job.gpus for job in trace.jobs])
    wanted = mix.load * mix.gpus * mix.day_s

    def held(factor: float) -> float:
        ends = np.minimum(arrivals + factor * works, trace.until_s)
        return float((gpus * np.maximum(ends - np.maximum(arrivals, trace.from_s), 0.0)).sum())

    low, high = 1 / STRETCH_MAX, STRETCH_MAX
    if not held(low) < wanted < held(high):
        return trace
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if held(middle) < wanted else (low, middle)
    factor = round(high, 6)
    jobs = tuple(replace(job, work_s=max(round(factor * job.work_s, 3), 1.0)) for job in trace.jobs)
    return replace(trace, jobs=jobs, stretch=factor)


def _arrivals(mix: Mix, draw: object) -> Iterator[float]:
    assert callable(draw)
    moment, end = 0.0, mix.warm_up_s + mix.day_s
    while (moment := moment - log(1.0 - draw()) / mix.jobs_per_s) < end:
        yield moment


def _check(mix: Mix) -> None:
    if not 0 < mix.load <= 2:
        raise UserError(f"the load must be above 0 and at most 200 % (found {100 * mix.load:g} %)")
    if mix.weight not in WEIGHTS:
        raise UserError(f"the weight must be one of {', '.join(WEIGHTS)} (found `{mix.weight}`)")
    if not (mix.median_s > 0 and 0 <= mix.sigma <= 4):
        raise UserError("durations need a median above 0 and a sigma of 0 to 4")
    expected = mix.jobs_per_s * (mix.warm_up_s + mix.day_s + mix.mean_s)
    if expected > DRAWS_MAX:
        raise UserError(
            f"this trace would have {expected:,.0f} jobs, more than {DRAWS_MAX:,}",
            hint="take fewer hours or longer jobs",
        )
