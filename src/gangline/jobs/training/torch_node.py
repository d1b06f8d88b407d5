"""The pods of a TrainJob: their names, what torchrun is told, and how far the job is."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gangline.api.core import is_true
from gangline.api.trainer.job import NODE, TrainJobStatus
from gangline.api.training.job import TrainingJob, TrainingReplicaStatus
from gangline.jobs.conditions import FAILED, SUCCEEDED, SUSPENDED
from gangline.jobs.training.progress import ReplicaProgress
from gangline.jobs.training.replicas import ObservedReplicas
from gangline.jobs.training.status import EventType, TrainingStatusDraft

Object = dict[str, Any]

PORT: Final = 29500
RANK: Final = "PET_NODE_RANK"
_REASONS: Final = {
    (SUSPENDED, "True"): "Suspended",
    (SUSPENDED, "False"): "Resumed",
    (SUCCEEDED, "True"): "AllJobsCompleted",
    (FAILED, "True"): "FailedJobs",
}
_TYPES: Final = {SUSPENDED: SUSPENDED, SUCCEEDED: "Complete", FAILED: FAILED}
"""Conditions that a TrainJob has. Its SDK reads pods only while there is none, so there are no others."""


def node_name(job: TrainingJob, type_: str, index: int) -> str:
    """Return the name of a pod, and its host name: as JobSet names those of a replicated job's first Job."""
    return f"{job.metadata.name}-{type_}-0-{index}"


def host_name(job: TrainingJob, type_: str, index: int) -> str:
    """Return the name by which the pods of the job find a pod."""
    return f"{node_name(job, type_, index)}.{job.subdomain or job.metadata.name}"


def place_node(pod: Object, job: TrainingJob, type_: str, index: int) -> Object:
    """Return a pod with host name and labels by which it is found as a JobSet's."""
    name = job.metadata.name
    labels = {
        "jobset.sigs.k8s.io/jobset-name": name,
        "jobset.sigs.k8s.io/replicatedjob-name": type_,
        "jobset.sigs.k8s.io/replicatedjob-replicas": "1",
        "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-name": f"{name}-{type_}-0",
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    metadata = {**pod["metadata"], "labels": {**pod["metadata"]["labels"], **labels}}
    spec = {**pod["spec"], "hostname": node_name(job, type_, index), "subdomain": name}
    return {**pod, "metadata": metadata, "spec": spec}


def torch_environment(job: TrainingJob, type_: str, index: int, _domain: str) -> dict[str, str]:
    """Return what torchrun reads of its place."""
    if type_ != NODE or not job.processes:
        return {}
    return {
        "PET_NNODES": str(job.count(NODE)),
        "PET_NPROC_PER_NODE": job.processes,
        RANK: str(index),
        "PET_MASTER_ADDR": host_name(job, NODE, 0),
        "PET_MASTER_PORT": str(PORT),
    }


def trainjob_progress(
    job: TrainingJob, _replicas: ObservedReplicas, counted: dict[str, TrainingReplicaStatus]
) -> ReplicaProgress:
    """Return whether the job runs or has succeeded: every pod has, or those that the runtime names."""
    deciding = [type_ for type_ in job.roles if type_ in (job.order.deciding or job.roles)]
    done = [counted[type_].succeeded >= job.count(type_) for type_ in deciding]
    if any(done) if job.order.is_any else all(done):
        return ReplicaProgress("Succeeded", "jobset completed successfully")
    is_active = any(found.active for found in counted.values())
    return ReplicaProgress("Running" if is_active else "", "")


def trainjob_failure(_job: TrainingJob, type_: str, count: int) -> str:
    """Return why a job fails whose pods are not to be made again."""
    return f"jobset failed due to one or more job failures: {count} pods of {type_} failed"


class TrainJobDraft(TrainingStatusDraft):
    """The status of a TrainJob: few conditions, and its pods as a JobSet counts them.

    Attributes:
        jobs_status: what a JobSet counts that runs the job; None where none does.
        job_set_for: why one does.
    """

    jobs_status: list[Object] | None = None
    job_set_for: tuple[str, ...] = ()

    def past_deadline(self, message: str) -> None:
        """Note that the job ran too long."""
        self.failed(message, reason="DeadlineExceeded")

    def _change(
        self,
        type_: str,
        message: str,
        *,
        status: str = "True",
        suffix: str = "",
        reason: str = "",
        event: EventType = "",
    ) -> None:
        reason = reason or _REASONS.get((type_, status), type_)
        super()._change(type_, message, status=status, reason=reason, event=event)

    def restarting(self, message: str, count: int, uids: list[str]) -> None:
        """Note which pods are to be made again."""
        self._restarted(message, count, uids)

    def to_wire(self) -> Object:
        """Return the whole status as the API has it."""
        conditions = [
            {
                "type": _TYPES[one.type],
                "status": one.status,
                "reason": one.reason,
                "message": one.message,
                "lastTransitionTime": one.last_transition_time,
            }
            for one in self.conditions
            if one.type in _TYPES
        ]
        rest = TrainJobStatus(
            start_time=self.start_time,
            completion_time=self.completion_time,
            restarts=self.restarts,
            last_restart_time=self.last_restart_time,
            restarting_pods=self.restarting_pods,
            jobs_status=[self._job(type_, found) for type_, found in self.replicas.items()]
            if self.jobs_status is None
            else self.jobs_status,
            job_set_for=list(self.job_set_for),
        )
        wire: Object = msgspec.to_builtins(rest)
        return wire | ({"conditions": conditions} if conditions else {})

    def difference(self, old: Any) -> Object:
        """Return the merge patch from the status as it is written now; what pods tell stays."""
        kept = {key: value for key, value in old.items() if key != "trainerStatus"} if old else old
        return super().difference(kept)

    def _job(self, type_: str, found: TrainingReplicaStatus) -> Object:
        wanted = self.wanted.get(type_, 0)
        is_over = is_true(self.conditions, FAILED)
        return {
            "name": type_,
            "ready": int(found.active + found.succeeded >= wanted),
            "succeeded": int(found.succeeded >= wanted),
            "failed": int(is_over),
            "active": int(bool(found.active)),
            "suspended": int(is_true(self.conditions, SUSPENDED)),
        }
