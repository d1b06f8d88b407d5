"""When running jobs that set themselves no limit may end: by the progress they report, else by history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.client.explain.training_progress import read_progress
from gangline.clock import parse_time
from gangline.cluster.runs.durations import EndedRun, JobScale, expected_s
from gangline.cluster.runs.record import RunRecord
from gangline.workloads.job_state import sort_pods
from gangline.workloads.requests import gpu_count

if TYPE_CHECKING:
    from gangline.client.jobs.cluster_view import ClusterView
    from gangline.client.target import ClusterTarget
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]

JOBS_ASKED = 16
"""Running jobs whose progress is read to tell when a job may start."""

SHARES = {"mayStartAbout": 0.5, "mayStartByNineOfTen": 0.9}
"""Of jobs like one that runs, how many have ended by then."""

RUNS_READ_MAX = 200
"""Runs of the history that are read, the newest."""


def _unlimited(view: ClusterView) -> dict[str, tuple[str, int]]:
    """Return since when jobs run that set themselves no limit, and the GPUs that they hold."""
    found: dict[str, tuple[str, int]] = {}
    for pod in view.snapshot.pods:
        group = view.groups.get(pod.gang)
        is_limited = pod.limit_s is not None or (group is not None and group.limit_s is not None)
        if pod.job and pod.started and not is_limited:
            since, gpus = found.get(pod.job, (pod.started, 0))
            found[pod.job] = min(since, pod.started), gpus + gpu_count(pod.request)
    return found


async def ends_by_progress(client: ObjectClient, view: ClusterView) -> dict[str, datetime]:
    """Return when running jobs end by the progress that they report.

    At most 16 jobs with GPUs are asked, those that hold most first.
    """
    held = {job: gpus for job, (_, gpus) in _unlimited(view).items() if gpus}
    jobs = sorted(held, key=lambda job: (-held[job], job))[:JOBS_ASKED]
    members: dict[str, list[Obj]] = {job: [] for job in jobs}
    for pod in view.pods:
        found = view.views.get(pod["metadata"]["uid"])
        if found is not None and found.job in members:
            members[found.job].append(pod)
    answers = await asyncio.gather(*(read_progress(client, sort_pods(members[job])) for job in jobs))
    return {job: found.ends for job, found in zip(jobs, answers, strict=True) if found and found.ends}


def kept_runs(target: ClusterTarget) -> Iterator[RunRecord]:
    """Yield the newest runs of the history that is kept of a cluster, without those that cannot be read."""
    from gangline.cluster.runs.history import History
    from gangline.errors import UserError

    history = History(target.kept)
    for file in history.files()[:RUNS_READ_MAX]:
        try:
            yield history.read(file)
        except (UserError, OSError):
            continue


@dataclass(frozen=True, slots=True)
class Guess:
    """The cluster as it would be if running jobs had limits.

    Attributes:
        field: of the report that the guess answers.
        by: ``history`` or ``progress``: what it is known by.
        view: with limits.
    """

    field: str
    by: str
    view: ClusterView


def guesses(
    view: ClusterView,
    jobs: Sequence[RunRecord],
    kept: Iterable[RunRecord],
    progress: Mapping[str, datetime],
    now: datetime,
) -> Iterator[Guess]:
    """Yield when running jobs without limits may end: the median, and the ninth tenth.

    Args:
        view: of the cluster.
        jobs: its jobs with their pods, those that run and those that are over.
        kept: runs of its history.
        progress: ends by the progress that jobs report, which go before.
        now: the time.
    """
    ended = {one.uid: one for record in (*kept, *jobs) if (one := EndedRun.of(record)) is not None}
    for field, share in SHARES.items():
        found = _ends_by_history(view, jobs, list(ended.values()), share, now)
        if ends := found | dict(progress):
            by = "history" if found.keys() - progress.keys() else "progress"
            yield Guess(field, by, with_ends(view, ends))


def _ends_by_history(
    view: ClusterView, jobs: Sequence[RunRecord], ended: Sequence[EndedRun], share: float, now: datetime
) -> dict[str, datetime]:
    running = _unlimited(view)
    ends = {}
    for job in (record.job for record in jobs):
        name = f"{job['metadata'].get('namespace', '')}/{job['metadata']['name']}"
        if name in running:
            since = parse_time(running[name][0])
            most_s = expected_s(ended, JobScale.of(job), (now - since).total_seconds(), share)
            if most_s is not None:
                ends[name] = since + timedelta(seconds=most_s)
    return ends


def with_ends(view: ClusterView, ends: Mapping[str, datetime]) -> ClusterView:
    """Return the view with these ends of jobs as if they were limits."""
    pods = []
    for pod in view.snapshot.pods:
        if (end := ends.get(pod.job)) and pod.started:
            limit = max(1, ceil((end - parse_time(pod.started)).total_seconds()))
            pod = msgspec.structs.replace(pod, limit_s=limit)
        pods.append(pod)
    return replace(view, snapshot=msgspec.structs.replace(view.snapshot, pods=tuple(pods)))
