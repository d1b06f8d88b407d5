"""Names and labels of a training job's replicas, and its own pods and Services sorted by them.

Source: training-operator 1.9.4, to the letter, for selectors of others (Kueue, Katib, the SDK) have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from gangline.api.core import Pod, Service, is_true
from gangline.api.resources import MPIJOBS
from gangline.api.training.job import TrainingJob, TrainingReplicaStatus
from gangline.api.training.kinds import TrainingKind
from gangline.jobs.names import (
    JOB_NAME_LABEL,
    OPERATOR_NAME_LABEL,
    REPLICA_INDEX_LABEL,
    REPLICA_TYPE_LABEL,
)
from gangline.jobs.observed import ObservedChildren, is_controlled_by

NO_EXIT_CODE: Final = 0xBEEF
"""Stands for the exit code of a pod whose training container tells none: evicted, or lost with its node."""


def replica_name(job: str, type_: str, index: int) -> str:
    """Return the name of a replica's pod and Service."""
    return f"{job}-{type_.lower()}-{index}".replace("/", "-")


def job_labels(kind: TrainingKind, job: str) -> dict[str, str]:
    """Return the labels of everything that belongs to a job."""
    return {OPERATOR_NAME_LABEL: kind.controller, JOB_NAME_LABEL: job}


def replica_labels(kind: TrainingKind, job: str, type_: str, index: int) -> dict[str, str]:
    """Return the labels of a replica's pod and Service, by which the Service selects the pod."""
    return {
        **job_labels(kind, job),
        REPLICA_TYPE_LABEL: type_.lower(),
        REPLICA_INDEX_LABEL: str(index),
    }


def labels_of_v1beta2(job: TrainingJob, type_: str, index: int, *, is_master: bool) -> dict[str, str]:
    """Return the labels by which guides of v1beta2 find pods; none for a job of v1."""
    if not job.is_v1beta2:
        return {}
    labels = {
        "group-name": MPIJOBS.group,
        "tf-job-name": job.metadata.name,
        "tf-replica-type": type_.lower(),
        "tf-replica-index": str(index),
    }
    return labels | ({"tf-job-role": "master"} if is_master else {})


@dataclass(slots=True)
class ObservedReplicas:
    """A job's own pods and Services.

    Attributes:
        pods: by type and index, those beyond the wanted number included.
        services: by name.
    """

    job: TrainingJob
    pods: dict[str, dict[int, Pod]] = field(default_factory=dict)
    services: dict[str, Service] = field(default_factory=dict)

    def wanted(self, type_: str) -> list[tuple[int, Pod]]:
        """Return the pods of a type whose index is within the wanted number, by index."""
        count = self.job.count(type_)
        return [(index, pod) for index, pod in sorted(self.pods.get(type_, {}).items()) if index < count]

    def all_pods(self) -> Iterator[tuple[str, Pod]]:
        """Yield every pod with its type."""
        for type_, pods in self.pods.items():
            for _, pod in sorted(pods.items()):
                yield type_, pod


def sort_replicas(kind: TrainingKind, job: TrainingJob, observed: ObservedChildren) -> ObservedReplicas:
    """Sort what is observed of a job; objects of others are left out."""
    replicas = ObservedReplicas(job, {type_: {} for type_ in job.roles})
    types = {type_.lower(): type_ for type_ in (*kind.types, *job.roles)}
    for pod in observed.pods.values():
        labels = pod.metadata.labels
        type_, index = types.get(labels.get(REPLICA_TYPE_LABEL, "")), labels.get(REPLICA_INDEX_LABEL, "")
        if type_ is None or not (index.isascii() and index.isdigit()):
            continue
        if is_controlled_by(pod.metadata, job.metadata.uid):
            replicas.pods.setdefault(type_, {})[int(index)] = pod
    for name, service in observed.services.items():
        if is_controlled_by(service.metadata, job.metadata.uid):
            replicas.services[name] = service
    return replicas


def may_start(replicas: ObservedReplicas, type_: str, *, starts_whole: bool) -> bool:
    """Return whether what the pods of a type wait for has come.

    Where pods start as a gang none can be ready before all have room, so that ``Ready`` orders nothing there.
    """
    job = replicas.job
    for name, state in job.order.after.get(type_, {}).items():
        pods = [pod for _, pod in replicas.wanted(name)]
        done = [
            pod.status.phase == "Succeeded" or (state == "Ready" and is_true(pod.status.conditions, "Ready"))
            for pod in pods
        ]
        is_whole = len(done) == job.count(name) and all(done)
        if not is_whole and (
            state == "Complete" or not starts_whole or not may_start(replicas, name, starts_whole=True)
        ):
            return False
    return True


def count_replicas(kind: TrainingKind, replicas: ObservedReplicas) -> dict[str, TrainingReplicaStatus]:
    """Count the pods of each type by phase; one that is being deleted is none of them."""
    counted = {}
    for type_ in replicas.job.roles:
        pods = [pod for _, pod in replicas.wanted(type_) if not pod.metadata.deletion_timestamp]
        phases = [pod.status.phase for pod in pods if not pod.is_refused]
        labels = {**job_labels(kind, replicas.job.metadata.name), REPLICA_TYPE_LABEL: type_.lower()}
        counted[type_] = TrainingReplicaStatus(
            active=phases.count("Running"),
            succeeded=phases.count("Succeeded"),
            failed=phases.count("Failed"),
            selector=",".join(f"{key}={labels[key]}" for key in sorted(labels)),
        )
    return counted


def exit_code_of(kind: TrainingKind, pod: Pod) -> int | None:
    """Return the exit code of the container that trains; None where it has not ended or tells none."""
    for status in pod.status.container_statuses:
        if status.name == kind.container and status.state.terminated is not None:
            return status.state.terminated.exit_code
    return None
