"""The API server's figures for Prometheus, named as a real one names them.

Source: k8s.io/apiserver/pkg/endpoints/metrics, k8s.io/apiserver/pkg/storage/etcd3/metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gangline.kube.metrics import labelled_histogram

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from gangline.cluster.server.context import ApiContext


def server_metrics(api: ApiContext) -> Iterator[Metric]:
    """Yield every metric of an API server."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    counts = api.counts
    answered = CounterMetricFamily("apiserver_request", "Requests by answer.", labels=["verb", "code"])
    for (verb, code), count in sorted(counts.answered.items()):
        answered.add_metric([verb, str(code)], count)
    yield answered
    durations = {verb: found.statistics() for verb, found in sorted(counts.durations.items())}
    yield labelled_histogram(
        "apiserver_request_duration_seconds", "Requests until their answer.", "verb", durations
    )
    under_way = GaugeMetricFamily(
        "apiserver_longrunning_requests", "Watches, followed logs and streams.", labels=["verb"]
    )
    under_way.add_metric(["WATCH"], counts.under_way["WATCH"])
    yield under_way
    objects = GaugeMetricFamily("apiserver_resource_objects", "Objects stored.", labels=["group", "resource"])
    for collection, count in api.store.counts().items():
        group, _, plural = collection.rpartition("/")
        objects.add_metric([group, plural], count)
    yield objects
