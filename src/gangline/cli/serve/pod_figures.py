"""What pods of this machine use, and how trainings go, as figures for Prometheus: read from files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gangline.cluster.node.pods.pod_record import PodRecord
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.pod_usage import Container, read_processes, running_containers, usage_of
from gangline.cluster.runs.history import DamagedRunError, History
from gangline.cluster.runs.reading import PastRun
from gangline.train.metrics import exposition
from gangline.train.progress import ProgressReport
from gangline.workloads.job_state import primary_pods
from gangline.workloads.kinds import kind_of

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def container_usage(paths: ClusterPaths, records: Sequence[PodRecord]) -> Iterator[Metric]:
    """Yield what containers use, by the names of a kubelet's ``/metrics/resource``.

    Source: k8s.io/kubernetes/pkg/kubelet/metrics/collectors/resource_metrics.go. Memory is what the processes
    hold resident, pages that they share counted for each.
    """
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    labels = ["namespace", "pod", "container"]
    cpu = CounterMetricFamily("container_cpu_usage_seconds", "Processor time of a container.", labels=labels)
    memory = GaugeMetricFamily("container_memory_working_set_bytes", "Memory of a container.", labels=labels)
    by_uid = {record.uid: record for record in records}
    first: dict[int, Container] = {}
    shims: dict[int, Container] = {}
    for uid in by_uid:
        shim, running = running_containers(paths, uid)
        for name, pid, _ in running:
            first[pid] = (uid, name, pid)
            shims.setdefault(shim, first[pid])
    for (uid, name, _), usage in sorted(usage_of(read_processes(), first, shims).items()):
        values = [by_uid[uid].namespace, by_uid[uid].name, name]
        cpu.add_metric(values, usage.cpu_s)
        memory.add_metric(values, usage.memory_bytes)
    yield cpu
    yield memory


def shim_usage(paths: ClusterPaths, records: Sequence[PodRecord]) -> Iterator[Metric]:
    """Yield what the processes use that watch over pods."""
    from prometheus_client import ProcessCollector
    from prometheus_client.metrics_core import Metric

    for record in records:
        pid, _ = running_containers(paths, record.uid)
        labels = {"namespace": record.namespace, "pod": record.name}
        for family in ProcessCollector(pid=partial(int, pid), registry=None).collect() if pid else ():
            of_pod = Metric(family.name, family.documentation, family.type)
            for sample in family.samples:
                of_pod.add_sample(sample.name, labels, sample.value)
            yield of_pod


def training_metrics(paths: ClusterPaths, over: set[str]) -> Iterator[Metric]:
    """Yield how the trainings go that run, by their last records, as ``gangline.train`` tells it itself.

    Args:
        paths: of the cluster.
        over: files of runs that have ended, which are not read again; grows.
    """
    from prometheus_client.metrics_core import Metric
    from prometheus_client.parser import text_string_to_metric_families

    history = History(paths)
    for file in history.files():
        if file.path.name in over:
            continue
        try:
            record = history.read(file)
        except (DamagedRunError, FileNotFoundError):
            continue
        if record.is_over:
            over.add(file.path.name)
            continue
        primaries = primary_pods(record.job, record.pods)
        report = report_of(PastRun(paths, record).last_metrics(primaries[-1])) if primaries else None
        labels = {"namespace": file.namespace, "job": file.name, "kind": kind_of(record.job).resource.kind}
        for family in text_string_to_metric_families(exposition(report)):
            of_job = Metric(family.name, family.documentation, family.type)
            for sample in family.samples:
                of_job.add_sample(sample.name, labels, sample.value)
            yield of_job


def report_of(record: Mapping[str, object]) -> ProgressReport | None:
    """Return what a record of progress says; None for one without its numbers."""
    step, ranks = record.get("step"), record.get("ranks")
    if not isinstance(step, int) or not isinstance(ranks, int):
        return None
    steps = record.get("steps")
    rate, loss, eta_s = (_number(record.get(name)) for name in ("rate", "loss", "eta_s"))
    unit = str(record.get("unit") or "items")
    return ProgressReport(step, steps if isinstance(steps, int) else None, rate, unit, loss, eta_s, ranks)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
