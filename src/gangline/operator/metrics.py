"""The operator's figures for Prometheus: the MPI operator's by their names, and what it never told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gangline.kube.metrics import histogram
from gangline.operator.statistics import OperatorStatistics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def operator_metrics(statistics: OperatorStatistics) -> Iterator[Metric]:
    """Yield every metric of an operator."""
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
    for name in ("created", "deleted", "successful", "failed", "restarted"):
        family = CounterMetricFamily(
            f"training_operator_jobs_{name}",
            f"Counts number of jobs {name}",
            labels=["job_namespace", "framework"],
        )
        for framework, namespace, what, count in statistics.training_jobs:
            if what == name:
                family.add_metric([namespace, framework], count)
        yield family
    info = GaugeMetricFamily(
        "mpi_operator_job_info", "Information about MPIJob", labels=["launcher", "namespace"]
    )
    for namespace, launcher in statistics.launchers:
        info.add_metric([launcher, namespace], 1)
    yield info
    text = "Jobs known, finished ones included, by the condition that they are in."
    jobs = GaugeMetricFamily("gangline_operator_jobs", text, labels=["kind", "namespace", "condition"])
    for kind, namespace, condition, count in statistics.jobs:
        jobs.add_metric([kind, namespace, condition], count)
    yield jobs


def _work(statistics: OperatorStatistics) -> Iterator[Metric]:
    """How the operator itself is doing."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

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
        yield histogram(f"gangline_operator_{name}_seconds", text, durations)
    restarts = CounterMetricFamily(
        "gangline_watch_restarts", "Watches after the first of a kind.", labels=["resource"]
    )
    for plural, count in statistics.watch_restarts:
        restarts.add_metric([plural], count)
    yield restarts
