"""The operator's figures for Prometheus: the MPI operator's by their names, and what it never told.

Everything is computed when it is asked for, from the figures that operator and client keep anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from gangline.kube.http_paths import Answer
from gangline.operator.statistics import OperatorStatistics, bucket_bounds_s

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric


class OperatorMetrics:
    """Answers ``/metrics``. Importing ``prometheus_client`` is left to the first instance: 3 MB.

    Args:
        statistics: of the operator now; None before it has started.
        answers: requests of its client, by method and status.
        is_leader: whether this process leads.
    """

    def __init__(
        self,
        statistics: Callable[[], OperatorStatistics | None],
        answers: Callable[[], Mapping[tuple[str, str], int]],
        is_leader: Callable[[], bool],
    ) -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector

        self._statistics = statistics
        self._answers = answers
        self._is_leader = is_leader
        self._registry: CollectorRegistry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(self)

    def answer(self) -> Answer:
        """Return the exposition in the text format."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return Answer(200, generate_latest(self._registry), CONTENT_TYPE_LATEST)

    def describe(self) -> list[Metric]:
        """Return nothing: the registry then does not ask for values when it is set up."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its value of this moment."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        yield GaugeMetricFamily(
            "mpi_operator_is_leader", "Whether this process leads.", float(self._is_leader())
        )
        requests = CounterMetricFamily(
            "gangline_api_requests", "Requests to the API server.", labels=["method", "code"]
        )
        for (method, code), count in sorted(self._answers().items()):
            requests.add_metric([method, code], count)
        yield requests
        statistics = self._statistics()
        if statistics:
            yield from _jobs(statistics)
            yield from _work(statistics)


def _jobs(statistics: OperatorStatistics) -> Iterator[Metric]:
    """The metrics of the MPI operator, named as there."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, text, count in (
        ("created", "Counts number of MPI jobs created", statistics.jobs_created),
        ("successful", "Counts number of MPI jobs successful", statistics.jobs_successful),
        ("failed", "Counts number of MPI jobs failed", statistics.jobs_failed),
    ):
        yield CounterMetricFamily(f"mpi_operator_jobs_{name}", text, count)
    info = GaugeMetricFamily(
        "mpi_operator_job_info", "Information about MPIJob", labels=["launcher", "namespace"]
    )
    for namespace, launcher in statistics.launchers:
        info.add_metric([launcher, namespace], 1)
    yield info
    yield GaugeMetricFamily("gangline_operator_jobs", "Jobs known, finished ones included.", statistics.jobs)


def _work(statistics: OperatorStatistics) -> Iterator[Metric]:
    """How the operator itself is doing."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    yield GaugeMetricFamily(
        "gangline_operator_queue_depth", "Jobs that wait for a worker.", statistics.queue_ready
    )
    yield CounterMetricFamily("gangline_operator_retries", "Reconciles that failed.", statistics.retries)
    yield CounterMetricFamily(
        "gangline_operator_events_dropped", "Events that could not be sent.", statistics.events_dropped
    )
    for name, text, durations in (
        ("reconcile", "From taking a job to having written everything.", statistics.reconcile),
        ("decide", "The part of a reconcile that works out what to write.", statistics.decide),
    ):
        buckets = [
            (str(bound), float(n)) for bound, n in zip(bucket_bounds_s, durations.buckets, strict=True)
        ]
        buckets.append(("+Inf", durations.count))
        yield HistogramMetricFamily(
            f"gangline_operator_{name}_seconds", text, buckets=buckets, sum_value=durations.total_s
        )
    restarts = CounterMetricFamily(
        "gangline_watch_restarts", "Watches after the first of a kind.", labels=["resource"]
    )
    for plural, count in statistics.watch_restarts:
        restarts.add_metric([plural], count)
    yield restarts
