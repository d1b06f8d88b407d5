"""Reads a run that is over as an API server would show it: its pods as last seen, and their logs."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from gangline import clock
from gangline.api.resources import NODES, PODS, Resource
from gangline.cluster.log_files import LogQuery, LogReader
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.runs.curves import Curves, curves_of
from gangline.cluster.runs.history import History
from gangline.cluster.runs.record import RunRecord
from gangline.errors import UserError
from gangline.kube.client import ObjectList
from gangline.train.records import parse_record
from gangline.workloads.gpu_source import SOURCE_LABEL
from gangline.workloads.job_state import primary_pods
from gangline.workloads.kinds import kind_called, kind_of

Obj = dict[str, Any]

TAIL_LINES = 200
"""Lines at the end of a log among which the last record of a training is looked for."""

# 5f3a2c1b or 5f3a2c1b-8d1e-4a1c-9a55-0123456789ab
_ID = re.compile(r"[0-9a-f]{8}[0-9a-f-]{0,28}")


class PastRun:
    """One run of the history; the reading half of a client, see :class:`gangline.kube.verbs.ObjectReader`.

    Args:
        paths: of its cluster.
        record: of the run.
    """

    def __init__(self, paths: ClusterPaths, record: RunRecord) -> None:
        self._paths = paths
        self.record = record

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList[Obj]:
        """Return the pods of the run, a node with what was said of its GPUs, and nothing of other kinds."""
        del namespace, label_selector, field_selector  # what is kept belongs to one job
        items: list[Obj] = []
        if resource == PODS:
            items = list(self.record.pods)
        elif resource == NODES and self.record.gpu_source:
            items = [{"metadata": {"labels": {SOURCE_LABEL: self.record.gpu_source}}}]
        return ObjectList(items, "")

    async def logs(
        self,
        pod: str,
        namespace: str | None = None,
        *,
        container: str = "",
        follow: bool = False,
        tail_lines: int | None = None,
        previous: bool = False,
        timestamps: bool = False,
        since_s: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield a container's log; ``follow`` ends at its end, for nothing comes any more.

        Raises:
            UserError: it has no such container, or nothing was kept of its log.
        """
        del namespace, follow
        path = self._log_file(pod, container, previous=previous)
        since = clock.format_time(clock.now() - timedelta(seconds=since_s)) if since_s is not None else ""
        reader = LogReader(path, LogQuery(timestamps=timestamps, since=since, tail_lines=tail_lines))
        try:
            while text := reader.read():
                yield text
        finally:
            reader.close()

    def last_metrics(self, pod: Obj) -> Obj:
        """Return the last record of progress in the log of a pod; empty when there is none."""
        try:
            path = self._log_file(pod["metadata"]["name"], "", previous=False)
            reader = LogReader(path, LogQuery(tail_lines=TAIL_LINES))
            try:
                log = b"".join(iter(reader.read, b""))
            finally:
                reader.close()
        except (UserError, OSError):
            return {}
        for line in reversed(log.decode(errors="replace").splitlines()):
            record = parse_record(line)
            if record is not None and record["kind"] == "progress":
                return record
        return {}

    def curves(self) -> Curves:
        """Return the scalars of the run, by the log of its chief pod; empty where none was kept.

        Cost: reads the whole log.
        """
        primaries = primary_pods(self.record.job, self.record.pods)
        if not primaries:
            return {}
        try:
            path = self._log_file(primaries[-1]["metadata"]["name"], "", previous=False)
            reader = LogReader(path, LogQuery(timestamps=True))
        except (UserError, OSError):
            return {}
        try:
            return curves_of(_lines(reader))
        finally:
            reader.close()

    def _log_file(self, name: str, container: str, *, previous: bool) -> Path:
        pod = next((pod for pod in self.record.pods if pod["metadata"]["name"] == name), None)
        spec = (pod or {}).get("spec") or {}
        names = [found["name"] for key in ("containers", "initContainers") for found in spec.get(key) or []]
        if pod is None or not names or (container and container not in names):
            known = ", ".join(f"`{one}`" for one in names) or "none"
            raise UserError(f"pod `{name}` of the run has no container `{container}`; it has {known}")
        metadata = pod["metadata"]
        chosen = container or names[0]
        folder = self._paths.pod_logs(metadata["namespace"], metadata["name"], metadata["uid"]) / chosen
        # 0.log is that of the first start; rotated ones have a date behind.
        starts = sorted(folder.glob("*.log"), key=lambda path: int(path.stem) if path.stem.isdigit() else -1)
        if len(starts) <= previous:
            what = "no earlier start" if previous and starts else "no log"
            raise UserError(f"{what} of container `{chosen}` in pod `{name}` was kept: it never started")
        return starts[-2 if previous else -1]


def _lines(reader: LogReader) -> Iterator[str]:
    held = b""
    while text := reader.read():
        *lines, held = (held + text).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)
    yield held.decode(errors="replace")


def find_past(paths: ClusterPaths, name: str, namespace: str | None) -> PastRun | None:
    """Return the newest run of that name, else the one whose id begins so; None when there is none.

    Args:
        paths: of the cluster.
        name: ``NAME``, ``KIND/NAME``, or at least the first 8 characters of an id.
        namespace: where; None for any.

    Raises:
        DamagedRunError: its record cannot be read.
    """
    history = History(paths)
    word, _, bare = name.rpartition("/")
    kind = kind_called(word) if word else None
    if word and kind is None:
        return None
    files = history.files()
    found = [file for file in files if file.name == bare and namespace in (None, file.namespace)]
    if not found and _ID.fullmatch(name):
        found = [file for file in files if file.uid.startswith(name)]
    for file in found:
        try:
            record = history.read(file)
        except FileNotFoundError:
            continue
        if kind in (None, kind_of(record.job)):
            return PastRun(paths, record)
    return None
