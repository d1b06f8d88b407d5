"""Gangs of JobSets and LeaderWorkerSets: those of their pods that are made at the same time. Pure.

Their pods name them, and do not say how many there are, nor whether some are made only once others run: the
object does. Sources: JobSet v0.11 (``jobset.x-k8s.io/v1alpha2``), LeaderWorkerSet v0.8
(``leaderworkerset.x-k8s.io/v1``), and what their controllers and webhooks do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from gangline.api.core import DEFAULT_SCHEDULER, Pod
from gangline.api.resources import JOB_SETS, LEADER_WORKER_SETS, Resource
from gangline.workloads.gang_names import gang_of

JOB_SET_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB_LABEL: Final = "jobset.sigs.k8s.io/replicatedjob-name"
LEADER_WORKER_SET_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/worker-index"
SIZE_ANNOTATION: Final = "leaderworkerset.sigs.k8s.io/size"

LEADER_FIRST: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"
"""On pods of a LeaderWorkerSet whose workers are made once their leader has a node."""
FOLLOWERS_WAIT: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""On pods of a JobSet of which those after the first of each job are made once that has a node,"""
BY_NODE_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
"""unless this is on them too."""

KIND_LABELS: Final = {
    "jobset": JOB_SET_LABEL,
    "leaderworkerset": LEADER_WORKER_SET_LABEL,
    "lws": LEADER_WORKER_SET_LABEL,
}
"""Labels of pods that name what they are of, by the words for its kind."""

SET_LABELS: Final = {JOB_SETS: JOB_SET_LABEL, LEADER_WORKER_SETS: LEADER_WORKER_SET_LABEL}
"""The same by resource."""


class SetGang(NamedTuple):
    """A gang of pods of a set.

    Attributes:
        key: ``NAMESPACE/KIND/NAME``, and the part of it that is one gang; empty for pods of none.
        size: how many pods it has.
    """

    key: str = ""
    size: int = 0


NO_GANG: Final = SetGang()


def is_of_set(pod: Pod) -> bool:
    """Return whether a pod is of a set, and names no gang itself."""
    labels = pod.metadata.labels
    return any(labels.get(label) for label in SET_LABELS.values()) and not gang_of(pod)


class WorkloadSets:
    """The JobSets and LeaderWorkerSets of a cluster."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Mapping[str, Any]] = {}

    def take(self, resource: Resource, objects: Iterable[Mapping[str, Any]]) -> None:
        """Take objects of a kind as they are now, in wire form."""
        for obj in objects:
            self._found[_key(resource, obj)] = obj.get("spec") or {}

    def drop(self, resource: Resource, obj: Mapping[str, Any]) -> None:
        """Forget an object that is gone."""
        self._found.pop(_key(resource, obj), None)

    def gang_of(self, pod: Pod) -> SetGang:
        """Return the gang of a pod that names none itself; one that is not known makes none."""
        if not is_of_set(pod):
            return NO_GANG
        for label, find in ((JOB_SET_LABEL, _of_job_set), (LEADER_WORKER_SET_LABEL, _of_leader_worker_set)):
            spec = self._found.get((label, f"{pod.metadata.namespace}/{pod.metadata.labels.get(label)}"))
            if spec is not None:
                found = find(pod, spec)
                return found if found.size > 1 else NO_GANG
        return NO_GANG

    def succeeded_gang(self, pod: Pod) -> str:
        """Return the gang in which a pod that has succeeded keeps its place, or nothing."""
        return self.gang_of(pod).key if pod.status.phase == "Succeeded" else ""


def _key(resource: Resource, obj: Mapping[str, Any]) -> tuple[str, str]:
    meta = obj["metadata"]
    return SET_LABELS[resource], f"{meta.get('namespace', '')}/{meta['name']}"


def _of_job_set(pod: Pod, spec: Mapping[str, Any]) -> SetGang:
    """Return the gang: all jobs, or those of the pod's own name where jobs start one after another."""
    meta = pod.metadata
    if FOLLOWERS_WAIT in meta.annotations and BY_NODE_SELECTOR not in meta.annotations:
        return NO_GANG
    jobs = spec.get("replicatedJobs") or []
    key = f"{meta.namespace}/jobset/{meta.labels[JOB_SET_LABEL]}"
    is_ordered = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    if is_ordered or any(job.get("dependsOn") for job in jobs):
        own = meta.labels.get(REPLICATED_JOB_LABEL, "")
        jobs = [job for job in jobs if job.get("name") == own]
        key = f"{key}/{own}"
    return SetGang(key, sum(_pods_of_job(job, pod) for job in jobs))


def _pods_of_job(job: Mapping[str, Any], pod: Pod) -> int:
    """Return how many pods the jobs of one name have at a time that wait for the scheduler of this one."""
    spec = (job.get("template") or {}).get("spec") or {}
    if _scheduler(spec.get("template")) != pod.spec.scheduler_name:
        return 0
    at_once, completions = spec.get("parallelism", 1), spec.get("completions")
    return int(job.get("replicas", 1)) * int(at_once if completions is None else min(at_once, completions))


def _of_leader_worker_set(pod: Pod, spec: Mapping[str, Any]) -> SetGang:
    """Return the gang: one group, or its workers alone where they are made after their leader."""
    meta, template = pod.metadata, spec.get("leaderWorkerTemplate") or {}
    told = meta.annotations.get(SIZE_ANNOTATION, "")
    size = int(told) if told.isdecimal() else int(template.get("size", 1))
    is_leader = meta.labels.get(WORKER_INDEX_LABEL) == "0"
    workers, name = template.get("workerTemplate"), pod.spec.scheduler_name
    counted = size - 1 if _scheduler(workers) == name else 0
    if spec.get("startupPolicy") == "LeaderReady" or LEADER_FIRST in meta.annotations:
        if is_leader:
            return NO_GANG
    elif _scheduler(template.get("leaderTemplate") or workers) == name:
        counted += 1
    set_name, group = meta.labels[LEADER_WORKER_SET_LABEL], meta.labels.get(GROUP_INDEX_LABEL, "")
    return SetGang(f"{meta.namespace}/leaderworkerset/{set_name}/{group}", counted)


def _scheduler(template: Mapping[str, Any] | None) -> str:
    return str(((template or {}).get("spec") or {}).get("schedulerName") or DEFAULT_SCHEDULER)
