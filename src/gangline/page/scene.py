"""What is so, of one cluster, for all pages that look at it: jobs, nodes, logs, past runs, progress."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gangline.client.run.program_job import RANKS_MAX
from gangline.clock import now
from gangline.cluster.gpu_use import SAMPLE_S, SAMPLES_MAX, Sample
from gangline.errors import ClusterError, GanglineError
from gangline.jobs.job_changes import WORKERS_MAX
from gangline.page.detail import job_detail
from gangline.page.ended_jobs import EndedJobs
from gangline.page.feeds import Feeds
from gangline.page.last_lines import LastLines
from gangline.page.live import LiveCluster
from gangline.page.log_reading import last_progress, read_together
from gangline.page.node_cards import keys_by_name, node_cards, queue_rows, use_columns
from gangline.page.queue_answers import QueueAnswers
from gangline.page.rows import RUNS_MAX, RunRow, progress_of
from gangline.page.series import Columns
from gangline.workloads.gpu_source import SOURCE_LABEL, kind_of
from gangline.workloads.job_state import primary_pods
from gangline.workloads.job_view import view_job
from gangline.workloads.requests import gpu_count, pod_gpus

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]

refresh_s: Final = 0.05
nodes_s: Final = 2.0
detail_s: Final = 2.0
progress_s: Final = 2.0
PROGRESS_JOBS_MAX: Final = 40
PROGRESS_LINES: Final = 40
DETAILS_MAX: Final = 64

Explain = Callable[[str, str], Awaitable[tuple[Obj, str, str]]]
"""From kind/name and namespace to the explanation as values, and to it and the placement as text."""
Runs = Callable[[], Awaitable[list[RunRow]]]
UseRecord = Callable[[], Sequence[Sample]]
"""How many GPUs were held over the last hours, the oldest sample first."""
RunSeries = Callable[[str], Awaitable[Columns]]


class Scene:
    """Everything that pages of a cluster show.

    Args:
        client: asks the cluster, with the user's own rights.
        title: the cluster in words.
        is_local: whether it is the one-machine cluster.
        has_files: whether the page runs where the user's files are: programs start from there.
        options: that lead a command of Gangline to it, with a space in front.
        kube_options: the same for kubectl.
        explain: says why a job waits and where it lies.
        runs: those that this machine keeps, the newest first; None where it is not the user's.
        run_series: the curves of one of them, by its id.
        use_record: what the cluster has noted of its GPUs; None where it notes nothing, and the page does
            while it looks.
    """

    def __init__(
        self,
        client: ObjectClient,
        *,
        title: str,
        is_local: bool,
        has_files: bool,
        options: str,
        kube_options: str,
        explain: Explain,
        runs: Runs | None,
        run_series: RunSeries | None,
        use_record: UseRecord | None = None,
    ) -> None:
        self._client, self._title, self._is_local = client, title, is_local
        self._has_files = has_files
        self._options, self._kube_options = options, kube_options
        self._explain, self._kept_runs, self._kept_series = explain, runs, run_series
        self.live = LiveCluster(client, self._changed)
        self._ended = EndedJobs(client, self.live)
        self.feeds = Feeds(client)
        self.feeds.on_change = self._changed
        self._lines = LastLines(client, self.feeds, self._changed)
        self._seen: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._use_record = use_record
        self._queue = QueueAnswers(self._explain_value)
        self._listeners: set[asyncio.Event] = set()
        self._is_due = asyncio.Event()
        self._nodes: tuple[float, Obj] = (0.0, {})
        self._cluster: tuple[float, Obj] = (0.0, {})
        self._details: dict[str, tuple[float, Obj]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self.in_sight: Counter[str] = Counter()
        """Keys of the jobs that some page shows now: only their progress is read."""

    async def run(self) -> None:
        """Keep it up to date until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.live.run(), name="live cluster")
                group.create_task(self._refresh(), name="refresh")
                group.create_task(self._read_progress(), name="progress")
                if self._use_record is None:
                    group.create_task(self._sample(), name="use of GPUs")
        finally:
            await self._queue.stop()
            await self._lines.stop()
            await self.feeds.stop()

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever something changed."""
        event = asyncio.Event()
        self._listeners.add(event)
        try:
            yield event
        finally:
            self._listeners.discard(event)

    def _changed(self) -> None:
        self._is_due.set()

    async def _refresh(self) -> None:
        """Work out a burst of changes once, at most twenty times a second, and tell all who look."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            self.live.refresh()
            for event in self._listeners:
                event.set()
            await asyncio.sleep(refresh_s)

    def cluster(self) -> Obj:
        """Return what stands above every page; worked out at most twenty times a second whoever many ask."""
        read_s, value = self._cluster
        if time.monotonic() - read_s > refresh_s:
            value = self._read_cluster()
            self._cluster = (time.monotonic(), value)
        return value

    def _read_cluster(self) -> Obj:
        nodes = self.live.nodes.items()
        sources = [(node["metadata"].get("labels") or {}).get(SOURCE_LABEL, "") for node in nodes]
        total, used = self._gpus()
        return {
            "title": self._title,
            "local": self._is_local,
            "files": self._has_files,
            "simulated": "simulated" in {kind_of(source) for source in sources},
            "namespace": self._client.connection.namespace,
            "gpus": {"total": total, "used": used},
            "counts": self.live.jobs.counts(),
            "forbidden": list(self.live.forbidden),
            "unreachable": self.live.unreachable,
            "options": self._options,
            "ranksMax": RANKS_MAX,
            "podsMax": WORKERS_MAX,
        }

    def _gpus(self) -> tuple[int, int]:
        amounts = [(node.get("status") or {}).get("allocatable") or {} for node in self.live.nodes.items()]
        total = sum(gpu_count({name: _whole(text) for name, text in one.items()}) for one in amounts)
        used = sum(pod_gpus(pod["spec"]) for pod in self.live.placed_pods())
        return total, used

    async def nodes(self) -> Obj:
        """Return nodes, queue and use, read at most every two seconds whoever many ask."""
        from gangline.client.jobs.cluster_view import look

        async with self._lock("nodes"):
            read_s, value = self._nodes
            if time.monotonic() - read_s > nodes_s:
                view = await look(self._client)
                keys = keys_by_name(list(self.live.jobs))
                value = {"rows": node_cards(view), "queue": queue_rows(view, keys)}
                self._nodes = (time.monotonic(), value)
            return value | {"queue": self._queue.onto(value["queue"]), "use": self._use()}

    def _use(self) -> Obj:
        samples = tuple(self._seen) if self._use_record is None else self._use_record()
        return use_columns(samples) | {"noted": self._use_record is not None}

    async def _explain_value(self, name: str, namespace: str) -> Obj:
        return (await self._explain(name, namespace))[0]

    async def runs(self) -> list[RunRow]:
        """Return what ran, the newest first: what is kept here, and jobs that are over and still there."""
        kept = [self._with_key(row) for row in await self._kept_runs()] if self._kept_runs else []
        if self._is_local:  # it keeps every run
            return kept
        ended = await self._ended.rows({row.id for row in kept})
        return sorted([*kept, *ended], key=lambda row: row.started, reverse=True)[:RUNS_MAX]

    async def run_series(self, run: str) -> Columns:
        """Return the curves of a run, by its id; empty where its log is gone."""
        kept = await self._kept_series(run) if self._kept_series else {}
        return kept if kept or self._is_local else await self._ended.series(run)

    def _with_key(self, row: RunRow) -> RunRow:
        """Return a run without the key of its job where that is gone, or another one has its name."""
        found = self.live.find(row.key)
        is_there = found is not None and found[1]["metadata"]["uid"] == row.id
        return row if is_there else msgspec.structs.replace(row, key="")

    async def detail(self, key: str) -> Obj:
        """Return everything about one job; read at most every two seconds, or when it changed.

        The last lines of its pods are those that are known: more is told of as it comes.
        """
        async with self._lock(key):
            row, found = self.live.jobs.get(key), self.live.find(key)
            if row is None or found is None:
                self._details.pop(key, None)
                return {"key": key, "gone": True}
            read_s, value = self._details.get(key, (0.0, {}))
            is_old = time.monotonic() - read_s > detail_s
            if value and not is_old and value["row"] is row:
                return value | {"lines": self._lines.of(value["_pods"])}
            resource, job = found
            pods = self.live.pods_of(resource, job)
            events = await self._events(job, pods) if is_old else value.get("_events", [])
            explained = value.get("_explained", ({}, "", ""))
            if is_old:
                with contextlib.suppress(GanglineError):  # it may be gone meanwhile
                    explained = await self._explain(f"{job['kind'].lower()}/{row.name}", row.namespace)
            view = view_job(job, pods, now())
            if len(self._details) >= DETAILS_MAX:
                self._details.clear()
            value = job_detail(row, view, job, events, self._options, self._kube_options)
            value |= {"explain": explained[1], "placement": explained[2]}
            value |= {"_events": events, "_explained": explained, "_pods": pods}
            self._details[key] = (time.monotonic() if is_old else read_s, value)
            return value | {"lines": self._lines.of(pods)}

    def chief_of(self, key: str) -> Obj | None:
        """Return the pod whose log is a job's."""
        found = self.live.find(key)
        if found is None:
            return None
        chiefs = primary_pods(found[1], self.live.pods_of(*found))
        return chiefs[-1] if chiefs else None

    def pod_of(self, key: str, name: str) -> Obj | None:
        """Return a pod of a job by its name."""
        found = self.live.find(key)
        pods = self.live.pods_of(*found) if found else []
        return next((pod for pod in pods if pod["metadata"]["name"] == name), None)

    async def _events(self, job: Obj, pods: list[Obj]) -> list[Obj]:
        from gangline.api.resources import EVENTS

        uids = {one["metadata"]["uid"] for one in (job, *pods)}
        try:
            listed = await self._client.list(EVENTS, job["metadata"].get("namespace"))
        except ClusterError:  # not everybody may read events
            return []
        name, since = job["metadata"]["name"], job["metadata"].get("creationTimestamp") or ""
        helpers = {("Job", f"{name}-launcher"), ("PodGroup", name)}  # children that a page has no uids of
        found = []
        for event in listed.items:
            about = event.get("involvedObject") or {}
            is_child = (about.get("kind"), about.get("name")) in helpers
            if about.get("uid") in uids or (is_child and (event.get("lastTimestamp") or since) >= since):
                found.append(event)
        return found

    async def _read_progress(self) -> None:
        """Read how far running jobs are that somebody sees, by the ends of their logs."""
        while True:
            await asyncio.sleep(progress_s)
            keys = [key for key in self.in_sight if self.in_sight[key] > 0][:PROGRESS_JOBS_MAX]
            chiefs = {key: pod for key in keys if self._wants_progress(key) and (pod := self.chief_of(key))}
            reads = (last_progress(self._client, pod, PROGRESS_LINES) for pod in chiefs.values())
            for key, task in zip(chiefs, await read_together(reads, progress_s), strict=True):
                record = None if task.cancelled() or task.exception() else task.result()
                if record and (progress := progress_of(record)):
                    self.live.note_progress(key, progress)

    def _wants_progress(self, key: str) -> bool:
        row = self.live.jobs.get(key)
        if row is None:
            return False
        return row.state == "RUNNING" or (row.progress is None and row.state in ("SUCCEEDED", "FAILED"))

    async def _sample(self) -> None:
        while True:
            total, used = self._gpus()
            if total:
                self._seen.append(Sample(int(time.time()), used, total))
            await asyncio.sleep(SAMPLE_S)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())


def _whole(text: Any) -> int:
    return int(text) if str(text).isdigit() else 0
