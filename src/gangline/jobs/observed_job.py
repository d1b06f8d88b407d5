"""What there is of one MPIJob: its own objects sorted, and those of others that are in the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gangline.api.core import Job, ObjectMeta, Pod, is_true
from gangline.api.mpijob import MPIJob
from gangline.api.pod_group import PodGroup
from gangline.api.resources import JOBS, MPIJOBS, PODS
from gangline.jobs.failure import is_disrupted
from gangline.jobs.gang import Dialect, dialect_of
from gangline.jobs.names import (
    ATTEMPT_ANNOTATION,
    JOB_ROLE_LABEL,
    LAUNCHER_ATTEMPT_ANNOTATION,
    Names,
    count_in,
)
from gangline.jobs.observed import ObservedChildren, is_controlled_by
from gangline.jobs.plan import Action, Delete, Emit
from gangline.jobs.settings import Settings

RESOURCE_EXISTS = "ErrResourceExists"


@dataclass(slots=True)
class ObservedJob:
    """The job's own objects, sorted.

    Attributes:
        launcher: the launcher Job of this attempt.
        launcher_pods: the pods of that Job.
        workers: worker pods of this attempt by index, ascending.
        outdated: what is left of the attempts before a gang, or the launcher alone, was started again.
        foreign: an event for each wanted name that somebody else has.
        has_leftovers: whether objects of an earlier job of this name are in the way; they will go.
    """

    job: MPIJob
    names: Names
    observed: ObservedChildren
    settings: Settings
    launcher: Job | None = None
    launcher_pods: list[Pod] = field(default_factory=list)
    workers: dict[int, Pod] = field(default_factory=dict)
    outdated: list[Pod | Job] = field(default_factory=list)
    foreign: list[Emit] = field(default_factory=list)
    has_leftovers: bool = False

    @property
    def dialect(self) -> Dialect | None:
        """How the gang scheduler is told; None without one."""
        return dialect_of(self.settings.gang_scheduling)

    @property
    def pod_group(self) -> PodGroup | None:
        """The job's own PodGroup."""
        found = self.observed.pod_groups.get(self.names.job)
        return found if found and is_controlled_by(found.metadata, self.job.metadata.uid) else None

    @property
    def wanted_workers(self) -> list[Pod]:
        """The worker pods whose index is within the wanted number."""
        return [pod for index, pod in self.workers.items() if index < self.job.worker_count]

    @property
    def running(self) -> set[str]:
        """Names of the worker pods that run."""
        return {pod.metadata.name for pod in self.workers.values() if pod.status.phase == "Running"}

    @property
    def launcher_stays(self) -> bool:
        """Whether a launcher pod goes on: else the whole gang is being taken away, and comes back whole."""
        return any(
            pod.status.phase in ("Pending", "Running")
            and not pod.metadata.deletion_timestamp
            and not is_disrupted(pod)
            for pod in self.launcher_pods
        )

    @property
    def is_ready(self) -> bool:
        """Whether every wanted worker is there with the condition Ready."""
        ready = [pod for pod in self.wanted_workers if is_true(pod.status.conditions, "Ready")]
        return len(ready) == self.job.worker_count

    def missing_workers(self, expected: int) -> list[str]:
        """Return the names of workers below ``expected`` that are gone or going, by index."""
        return [
            self.names.worker(index)
            for index in range(min(expected, self.job.worker_count))
            if index not in self.workers or self.workers[index].metadata.deletion_timestamp
        ]


def classify(job: MPIJob, observed: ObservedChildren, settings: Settings) -> ObservedJob:
    """Sort what is observed of a job."""
    observed_job = ObservedJob(job, Names.of(job), observed, settings)
    uid, attempt = job.metadata.uid, job.status.restarts
    is_later = attempt > 0 or job.status.launcher_replacements > 0
    launcher = observed.jobs.get(observed_job.names.launcher)
    if launcher and is_controlled_by(launcher.metadata, uid):
        if _attempts_of(launcher.metadata) == (attempt, job.status.launcher_replacements):
            observed_job.launcher = launcher
        else:
            observed_job.outdated.append(launcher)
    for pod in observed.pods.values():
        if is_controlled_by(pod.metadata, uid):
            index = observed_job.names.worker_index(pod.metadata.name)
            if index is None:
                continue
            if count_in(pod.metadata, ATTEMPT_ANNOTATION) == attempt:
                observed_job.workers[index] = pod
            else:
                observed_job.outdated.append(pod)
        elif observed_job.launcher and is_controlled_by(pod.metadata, observed_job.launcher.metadata.uid):
            observed_job.launcher_pods.append(pod)
        elif is_later and _is_launcher_pod(pod, observed_job.names.launcher):
            observed_job.outdated.append(pod)
    observed_job.workers = dict(sorted(observed_job.workers.items()))
    _find_foreign(observed_job)
    return observed_job


def _attempts_of(launcher: ObjectMeta) -> tuple[int, int]:
    """Return in which attempt of the gang and of the launcher a Job was made."""
    return count_in(launcher, ATTEMPT_ANNOTATION), count_in(launcher, LAUNCHER_ATTEMPT_ANNOTATION)


def _is_launcher_pod(pod: Pod, launcher: str) -> bool:
    owner = pod.metadata.controller
    is_launcher = pod.metadata.labels.get(JOB_ROLE_LABEL) == "launcher"
    return is_launcher and owner is not None and (owner.kind, owner.name) == (JOBS.kind, launcher)


def delete_outdated(observed_job: ObservedJob) -> list[Action]:
    """Return what ends the attempts before; the pods of a launcher Job go with it, by themselves."""
    uid = observed_job.job.metadata.uid
    return [
        Delete(JOBS if isinstance(found, Job) else PODS, meta.namespace, meta.name, meta.uid)
        for found in observed_job.outdated
        if is_controlled_by(meta := found.metadata, uid) and not meta.deletion_timestamp
    ]


class _HasMetadata(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


def _find_foreign(observed_job: ObservedJob) -> None:
    """Objects of a wanted name that are not ours; those of a job of the same name will go by themselves."""
    job, names, observed = observed_job.job, observed_job.names, observed_job.observed
    wanted: list[tuple[str, Mapping[str, _HasMetadata], list[str]]] = [
        ("Service", observed.services, [names.service]),
        ("ConfigMap", observed.config_maps, [names.config_map]),
        ("Secret", observed.secrets, [names.secret]),
        ("PodGroup", observed.pod_groups, [names.job]),
        ("Job", observed.jobs, [names.launcher]),
        ("Pod", observed.pods, [name for name in observed.pods if names.worker_index(name) is not None]),
    ]
    for kind, objects, listed in wanted:
        for name in listed:
            found = objects.get(name)
            if found is None or is_controlled_by(found.metadata, job.metadata.uid):
                continue
            if is_leftover(found.metadata, job.metadata):
                observed_job.has_leftovers = True
            else:
                observed_job.foreign.append(resource_exists(kind, name))


def is_leftover(meta: ObjectMeta, job: ObjectMeta, kind: str = MPIJOBS.kind) -> bool:
    """Whether an object belonged to an earlier job of the same name, and garbage collection will take it."""
    owner = meta.controller
    return owner is not None and (owner.kind, owner.name) == (kind, job.name) and owner.uid != job.uid


def resource_exists(kind: str, name: str, job_kind: str = MPIJOBS.kind) -> Emit:
    """Return the event that says that somebody else has an object of a wanted name."""
    message = f'Resource "{name}" of Kind "{kind}" already exists and is not managed by {job_kind}'
    return Emit("Warning", RESOURCE_EXISTS, message)
