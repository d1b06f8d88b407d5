"""A page of figures for Prometheus: what every service has, and what it adds of its own.

Everything is computed when it is asked for, from the figures that the service and its client keep anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from gangline import __version__
from gangline.kube.durations import DurationStatistics, bucket_bounds_s
from gangline.kube.http_paths import PathAnswer

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import HistogramMetricFamily, Metric


class MetricsPage:
    """Answers ``/metrics``. Importing ``prometheus_client`` is left to the first instance: 3 MB.

    Args:
        own: the metrics of the service at this moment.
        answers: requests of its client, by method and status.
    """

    def __init__(
        self, own: Callable[[], Iterable[Metric]], answers: Callable[[], Mapping[tuple[str, str], int]]
    ) -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector

        self._own = own
        self._answers = answers
        self._process = ProcessCollector(registry=None)
        self._registry: CollectorRegistry = CollectorRegistry()
        self._registry.register(self)

    def answer(self) -> PathAnswer:
        """Return the exposition in the text format."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return PathAnswer(200, generate_latest(self._registry), CONTENT_TYPE_LATEST)

    def describe(self) -> list[Metric]:
        """Return nothing: the registry then does not ask for values when it is set up."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its value of this moment."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        yield from self._process.collect()
        build = GaugeMetricFamily("gangline_build_info", "Version that runs.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        requests = CounterMetricFamily(
            "gangline_api_requests", "Requests to the API server.", labels=["method", "code"]
        )
        for (method, code), count in sorted(self._answers().items()):
            requests.add_metric([method, code], count)
        yield requests
        yield from self._own()


def histogram(name: str, text: str, durations: DurationStatistics) -> HistogramMetricFamily:
    """Return durations as a histogram, in seconds."""
    from prometheus_client.core import HistogramMetricFamily

    return HistogramMetricFamily(name, text, buckets=_buckets(durations), sum_value=durations.total_s)


def labelled_histogram(
    name: str, text: str, label: str, durations: Mapping[str, DurationStatistics]
) -> HistogramMetricFamily:
    """Return durations by the value of a label as histograms, in seconds."""
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(name, text, labels=[label])
    for value, found in durations.items():
        family.add_metric([value], _buckets(found), found.total_s)
    return family


def _buckets(durations: DurationStatistics) -> list[tuple[str, float]]:
    bounds = [(str(bound), float(n)) for bound, n in zip(bucket_bounds_s, durations.buckets, strict=True)]
    return [*bounds, ("+Inf", durations.count)]
