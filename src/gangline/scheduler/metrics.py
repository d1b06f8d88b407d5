"""The scheduler's figures for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gangline.kube.metrics import histogram
from gangline.placement import Snapshot
from gangline.scheduler.tally import SchedulerStatistics
from gangline.workloads.gpu_source import SOURCE_LABEL, kind_of
from gangline.workloads.requests import gpu_count

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


REASONS = (
    *("Incomplete", "NoGroup", "Quota", "NoNode", "NoRoom", "Reserved", "Behind", "Cut"),
    *("Preempting", "Suspending", "BackOff"),
)
"""Why gangs wait. Each is told as 0 where none does, so that its first one is seen as a rise."""
TAKEN_BACK = ("HalfBound", "NodeRefused", "UnhealthyGPU")


def scheduler_metrics(statistics: SchedulerStatistics, snapshot: Snapshot) -> Iterator[Metric]:
    """Yield every metric of a scheduler.

    Args:
        statistics: what it has counted.
        snapshot: nodes, and pods that hold room on them.
    """
    yield from _counted(statistics)
    yield from _gpus(snapshot)


def _counted(statistics: SchedulerStatistics) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    waiting = GaugeMetricFamily(
        "gangline_scheduler_waiting_gangs", "Gangs that wait, pods of no gang included.", labels=["reason"]
    )
    for reason, count in sorted((dict.fromkeys(REASONS, 0) | statistics.waiting).items()):
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
        (
            *("gangs_taken_back", "Bound gangs that start anew.", "reason"),
            dict.fromkeys(TAKEN_BACK, 0) | statistics.gangs_taken_back,
        ),
        (
            *("bind_failures", "Bindings that failed.", "code"),
            {"error": 0} | statistics.bind_failures,  # so that its first one is seen as a rise, too
        ),
    ):
        metric = CounterMetricFamily(f"gangline_scheduler_{name}", text, labels=[label])
        for value, count in sorted(counts.items()):
            metric.add_metric([value], count)
        yield metric


def gpu_totals(snapshot: Snapshot) -> tuple[int, int]:
    """Return how many GPUs pods hold, and how many there are. 1 us a pod."""
    held = sum(gpu_count(pod.request) for pod in snapshot.pods)
    return held, sum(gpu_count(node.allocatable) for node in snapshot.nodes)


def _gpus(snapshot: Snapshot) -> Iterator[Metric]:
    """How many GPUs nodes have, and which gangs hold them; nodes without any are left out."""
    from prometheus_client.core import GaugeMetricFamily

    by_node, by_gang = Counter[str](), Counter[str]()
    for pod in snapshot.pods:
        if count := gpu_count(pod.request):
            by_node[pod.node_name] += count
            by_gang[pod.gang or pod.key] += count
    text = "GPUs of a node by the books of the scheduler, slices counted as one."
    nodes = GaugeMetricFamily("gangline_scheduler_gpus", text, labels=["node", "kind", "state"])
    for node in snapshot.nodes:
        if total := gpu_count(node.allocatable):
            kind, held = kind_of(node.labels.get(SOURCE_LABEL, "")) or "unknown", by_node[node.name]
            nodes.add_metric([node.name, kind, "held"], held)
            nodes.add_metric([node.name, kind, "free"], max(0, total - held))
    yield nodes
    text = "GPUs that a gang holds, or is about to; a pod of none is one of its own."
    gangs = GaugeMetricFamily("gangline_scheduler_gang_gpus", text, labels=["gang"])
    for gang, count in sorted(by_gang.items()):
        gangs.add_metric([gang], count)
    yield gangs
