"""Every process' figures on the one-machine cluster at one address, each with a label for whose they are.

What runs in this process is asked directly, the node agent over its socket, pods that say so by Prometheus'
usual annotations at their addresses; what pods use and how trainings go is read from files. Nothing is
gathered until somebody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from gangline.cli.serve.pod_figures import container_usage, shim_usage, training_metrics
from gangline.cluster.node.pods.pod_record import PodRecord, read_record
from gangline.cluster.paths import ClusterPaths
from gangline.kube.http_paths import PathAnswer

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PAGE_TIMEOUT_S = 2.0
"""Within which another process must have told its figures."""
PAGE_BYTES_MAX = 1 << 20
PODS_ASKED_MAX = 64

Labels = Mapping[str, str]
Connected = Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]


class ProcessFigures(NamedTuple):
    """Figures of one process, and the labels that say which."""

    labels: Labels
    families: Iterable[Metric]


class ClusterFigures:
    """The page of one cluster.

    Args:
        paths: of the cluster.
        own: the figures of what runs in this process, by the component that they are of.
    """

    def __init__(
        self, paths: ClusterPaths, own: Callable[[], Iterable[tuple[str, Iterable[Metric]]]]
    ) -> None:
        self._paths, self._own = paths, own
        self._over: set[str] = set()

    async def answer(self) -> PathAnswer:
        """Return the exposition of all, in the text format."""
        records = await asyncio.to_thread(self._pods)
        agent = asyncio.open_unix_connection(self._paths.agent_socket)
        labels: list[Labels] = [{"component": "node-agent"}]
        asked: list[tuple[Connected, str]] = [(agent, "/metrics")]
        for record in [record for record in records if record.figures][:PODS_ASKED_MAX]:
            port, _, path = record.figures.partition("/")
            labels.append({"component": "pod", "namespace": record.namespace, "pod": record.name})
            asked.append((asyncio.open_connection(record.address, int(port)), f"/{path}"))
        pages = await asyncio.gather(*(fetch(connected, path) for connected, path in asked))
        return await asyncio.to_thread(self._exposition, records, labels, pages)

    def _pods(self) -> list[PodRecord]:
        folder = self._paths.pods
        found = (read_record(one) for one in sorted(folder.iterdir())) if folder.is_dir() else ()
        return [record for record in found if record is not None]

    def _exposition(
        self, records: list[PodRecord], asked: list[Labels], pages: list[str | None]
    ) -> PathAnswer:
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

        parts = [ProcessFigures({"component": name}, families) for name, families in self._own()]
        told = [(labels, _read(page)) for labels, page in zip(asked, pages, strict=True)]
        parts += [ProcessFigures(labels, families) for labels, families in told if families is not None]
        parts += [ProcessFigures({"component": "shim"}, shim_usage(self._paths, records))]
        parts += [ProcessFigures({"component": "pod"}, container_usage(self._paths, records))]
        parts += [ProcessFigures({"component": "training"}, training_metrics(self._paths, self._over))]
        parts += [ProcessFigures({}, [_up([(labels, families is not None) for labels, families in told])])]
        registry = CollectorRegistry()
        registry.register(_Merged(parts))
        return PathAnswer(200, generate_latest(registry), CONTENT_TYPE_LATEST)


class _Merged:
    """What a registry collects: the families of all parts, each name once."""

    def __init__(self, parts: list[ProcessFigures]) -> None:
        self._parts = parts

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        return iter(merged(self._parts))


def merged(parts: Iterable[ProcessFigures]) -> list[Metric]:
    """Return each family once, its samples with the labels of their parts. Pure.

    A label of a sample that has the name of one of ours goes on as ``exported_NAME``, as Prometheus does it;
    a family whose type is another one than that of an earlier part of its name is left out.
    """
    from prometheus_client.metrics_core import Metric

    found: dict[str, Metric] = {}
    for part in parts:
        for family in part.families:
            whole = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            if whole.type != family.type:
                continue
            for sample in family.samples:
                own = {
                    f"exported_{name}" if name in part.labels else name: v
                    for name, v in sample.labels.items()
                }
                whole.add_sample(sample.name, {**own, **part.labels}, sample.value)
    return list(found.values())


async def fetch(connected: Connected, path: str) -> str | None:
    """Return what a path answers; None where nobody answers with success, or with too much."""
    try:
        async with asyncio.timeout(PAGE_TIMEOUT_S):
            reader, writer = await connected
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: metrics\r\nAccept: text/plain\r\n\r\n".encode())
                answer = bytearray()
                while (piece := await reader.read(PAGE_BYTES_MAX)) and len(answer) <= PAGE_BYTES_MAX:
                    answer += piece
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 2 or words[1] != b"200" or len(answer) > PAGE_BYTES_MAX:
        return None
    return body.decode(errors="replace")


def _read(page: str | None) -> list[Metric] | None:
    from prometheus_client.parser import text_string_to_metric_families

    try:
        return None if page is None else list(text_string_to_metric_families(page))
    except ValueError:
        return None


def _up(told: list[tuple[Labels, bool]]) -> Metric:
    from prometheus_client.metrics_core import Metric

    family = Metric("gangline_component_up", "Whether a process told its figures.", "gauge")
    for labels, is_up in told:
        family.add_sample(family.name, dict(labels), float(is_up))
    return family
