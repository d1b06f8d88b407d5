"""TFJob: ``TF_CONFIG``, and when the job runs or is done; in v1 and v1beta2.

Source: training-operator 1.9.4, tf-operator 0.5.3.
"""

from __future__ import annotations

import json
from typing import Any

from gangline.api.training.job import (
    CHIEF,
    EVALUATOR,
    MASTER,
    PS,
    WORKER,
    TFJobSpec,
    TrainingJob,
    TrainingReplicaStatus,
)
from gangline.api.training.kinds import TFJOB
from gangline.jobs.training.progress import ReplicaProgress
from gangline.jobs.training.replicas import ObservedReplicas, exit_code_of, replica_name
from gangline.jobs.training.template import port_of

TF_CONFIG = "TF_CONFIG"


def tensorflow_environment(job: TrainingJob, type_: str, index: int, domain: str) -> dict[str, str]:
    """Return ``TF_CONFIG`` of one replica; a job of one replica has none in v1."""
    if job.total == 1 and not job.is_v1beta2:
        return {}
    return {TF_CONFIG: json.dumps(_config(job, type_, index, domain), separators=(",", ":"))}


def _config(job: TrainingJob, type_: str, index: int, domain: str) -> dict[str, Any]:
    assert isinstance(job.spec, TFJobSpec)
    addresses = {known: _addresses(job, known, domain) for known in sorted(job.roles, key=str.lower)}
    task = {"type": type_.lower(), "index": index}
    if job.spec.enable_dynamic_worker:
        return {"cluster": _sparse(addresses, type_, index), "task": task}
    if job.is_v1beta2:
        addresses.pop(EVALUATOR, None)
    cluster = {known.lower(): found for known, found in addresses.items()}
    return {"cluster": cluster, "task": task, "environment": "cloud"}


def _sparse(addresses: dict[str, list[str]], type_: str, index: int) -> dict[str, Any]:
    """Return a cluster in which a worker knows itself and the parameter servers, and these themselves."""
    servers = addresses.get(PS, [])
    if type_ == WORKER:
        return {"worker": {str(index): addresses[WORKER][index]}, "ps": servers}
    return {"worker": {}, "ps": [servers[index]] if type_ == PS else []}


def _addresses(job: TrainingJob, type_: str, domain: str) -> list[str]:
    suffix = f"{job.metadata.namespace}.svc" + (f".{domain}" if domain else "")
    port = port_of(TFJOB, job.roles[type_])
    names = (replica_name(job.metadata.name, type_, index) for index in range(job.count(type_)))
    return [f"{name}.{suffix}:{port}" for name in names]


def is_tensorflow_master(job: TrainingJob, type_: str, index: int) -> bool:
    """Whether a replica has the role of the master: every Chief or Master, else worker 0."""
    if CHIEF in job.roles or MASTER in job.roles:
        return type_ in (CHIEF, MASTER)
    return type_ == WORKER and index == 0


def tensorflow_progress(
    job: TrainingJob, replicas: ObservedReplicas, counted: dict[str, TrainingReplicaStatus]
) -> ReplicaProgress:
    """Return whether the job runs or has succeeded: the Chief or Master decides, else the workers."""
    assert isinstance(job.spec, TFJobSpec)
    name = _title(job)
    running, done = f"{name} is running.", f"{name} successfully completed."
    type_ = next((known for known in (CHIEF, MASTER, WORKER) if known in job.roles), "")
    if not type_:
        return ReplicaProgress("", "")
    count = counted[type_]
    is_done = count.succeeded >= job.count(type_) > 0
    if type_ == WORKER and job.spec.success_policy != "AllWorkers":
        is_done = is_done or _is_worker_0_done(replicas)
    return (
        ReplicaProgress("Succeeded", done)
        if is_done
        else ReplicaProgress("Running" if count.active else "", running)
    )


def _is_worker_0_done(replicas: ObservedReplicas) -> bool:
    pod = replicas.pods.get(WORKER, {}).get(0)
    return pod is not None and pod.status.phase == "Succeeded" and not exit_code_of(TFJOB, pod)


def tensorflow_failure(job: TrainingJob, type_: str, count: int) -> str:
    """Return why a job fails whose pods are not to be made again."""
    return f"{_title(job)} has failed because {count} {type_} replica(s) failed."


def _title(job: TrainingJob) -> str:
    return f"TFJob {job.metadata.name if job.is_v1beta2 else job.metadata.key}"
