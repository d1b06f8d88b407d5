"""The scheduler's figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gangline.kube.metrics import histogram
from gangline.scheduler.statistics import SchedulerStatistics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def scheduler_metrics(statistics: SchedulerStatistics) -> Iterator[Metric]:
    """Yield every metric of a scheduler."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    waiting = GaugeMetricFamily(
        "gangline_scheduler_waiting_gangs", "Gangs that wait, pods of no gang included.", labels=["reason"]
    )
    for reason, count in sorted(statistics.waiting.items()):
        waiting.add_metric([reason], count)
    yield waiting
    text = "Time to decide about all waiting gangs once."
    yield histogram("gangline_scheduler_pass_seconds", text, statistics.passes.statistics())
    for name, text, number in (
        ("gangs_placed", "Gangs that were given nodes.", statistics.gangs_placed),
        ("gangs_preempted", "Gangs that had to give way.", statistics.gangs_preempted),
        ("gangs_suspended", "Gangs that were suspended for others.", statistics.gangs_suspended),
        ("pods_bound", "Bindings that the API server has taken.", statistics.pods_bound),
        ("events_dropped", "Events that could not be sent.", statistics.events_dropped),
    ):
        yield CounterMetricFamily(f"gangline_scheduler_{name}", text, number)
    for name, text, label, counts in (
        ("gangs_taken_back", "Bound gangs that start anew.", "reason", statistics.gangs_taken_back),
        ("bind_failures", "Bindings that failed.", "code", statistics.bind_failures),
    ):
        metric = CounterMetricFamily(f"gangline_scheduler_{name}", text, labels=[label])
        for value, count in sorted(counts.items()):
            metric.add_metric([value], count)
        yield metric
