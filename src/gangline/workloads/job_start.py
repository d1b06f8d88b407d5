"""Which job it is, and how far its start has come: its pods of now, and which of them run or ran. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from gangline.units import plural
from gangline.workloads.job_state import exit_code_of, expected_pods, has_started, primary_pods
from gangline.workloads.kinds import is_worker, kind_of
from gangline.workloads.pending import pending_reason_of

Obj = dict[str, Any]


class JobRef(NamedTuple):
    """Which job it is; as text ``MPIJob default/digits``."""

    kind: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def job_ref(job: Obj) -> JobRef:
    """Return which job an object is; its uid is empty before it is created."""
    metadata = job["metadata"]
    return JobRef(
        job["kind"], metadata.get("namespace", "default"), metadata["name"], metadata.get("uid", "")
    )


def current_pods(job: Obj, pods: list[Obj]) -> list[Obj]:
    """Return the pods without those that were replaced: by one of their name, or because they had failed."""
    newest: dict[str, Obj] = {}
    for pod in sorted(pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or ""):
        newest[pod["metadata"]["name"]] = pod
    kept = [pod for pod in pods if newest[pod["metadata"]["name"]] is pod]
    good = [pod for pod in kept if (pod.get("status") or {}).get("phase") != "Failed"]
    return good if len(good) >= expected_pods(job) else kept


def all_started(job: Obj, pods: list[Obj]) -> bool:
    """Return whether every pod that a job will have runs or ran."""
    return len(pods) >= expected_pods(job) and all(map(is_started, pods))


def is_started(pod: Obj) -> bool:
    """Return whether a pod runs or ran; between two looks at a short job its pods may have ended."""
    phase = (pod.get("status") or {}).get("phase")
    is_over = phase in ("Succeeded", "Failed") and has_started(pod)
    return (phase == "Running" or is_over) and pending_reason_of(pod) is None


def attempt_in_words(job: Obj, pods: Iterable[Obj], started: Obj) -> str:
    """Return which attempt a pod that starts begins, and why; empty for the first, and without a leader.

    Args:
        job: as pods belong to it.
        pods: all that were seen, those that are gone too.
        started: the one that starts.
    """
    if not kind_of(job).primary:
        return ""
    primary = primary_pods(job, pods)
    before = [pod for pod in primary[: primary.index(started)] if exit_code_of(pod)]
    if not before:
        return ""
    how = f"{before[-1]['metadata']['name']} failed with exit code {exit_code_of(before[-1])}"
    return f"{how}; attempt {len(before) + 1} in pod {started['metadata']['name']}"


def pods_in_words(job: Obj, pods: list[Obj]) -> str:
    """Return ``2 workers + launcher`` for an MPIJob, else the number of pods."""
    primary, workers = kind_of(job).primary, sum(map(is_worker, pods))
    if not primary or len(pods) != workers + 1:
        return plural(len(pods), "pod")
    return f"{plural(workers, 'worker')} + {primary}" if workers else primary
