"""PyTorchJob: the variables by which torch and torchrun find each other, and when the job runs or is done.

Source: training-operator 1.9.4. Its RANK is the pod's, its WORLD_SIZE the processes': with several of them in
a pod, torchrun (PET_*) sets both right for each.
"""

from __future__ import annotations

from gangline.api.training.job import (
    MASTER,
    WORKER,
    ElasticPolicy,
    PyTorchJobSpec,
    TrainingJob,
    TrainingReplicaStatus,
)
from gangline.api.training.kinds import PYTORCHJOB
from gangline.jobs.training.progress import ReplicaProgress
from gangline.jobs.training.replicas import ObservedReplicas, replica_name
from gangline.jobs.training.template import port_of


def pytorch_environment(job: TrainingJob, type_: str, index: int, _domain: str) -> dict[str, str]:
    """Return the variables of one replica, in upstream's order."""
    spec = job.spec
    assert isinstance(spec, PyTorchJobSpec)
    variables = {"PYTHONUNBUFFERED": "1"}
    if MASTER in job.roles:
        rank = str(index if type_ == MASTER else index + 1)
        port = str(port_of(PYTORCHJOB, job.roles[MASTER]))
        address = replica_name(job.metadata.name, MASTER, 0)
        variables |= {
            "MASTER_PORT": port,
            "PET_MASTER_PORT": port,
            "MASTER_ADDR": address,
            "PET_MASTER_ADDR": address,
            "WORLD_SIZE": str(job.total * _processes(spec.nproc_per_node)),
            "RANK": rank,
            "PET_NODE_RANK": rank,
        }
    if spec.nproc_per_node is not None:
        variables["PET_NPROC_PER_NODE"] = spec.nproc_per_node
    if spec.elastic_policy is None:
        variables["PET_NNODES"] = str(job.total)
    else:
        variables |= _elastic(job, spec.elastic_policy)
    return variables


def _processes(nproc_per_node: str | None) -> int:
    """Return how many processes a pod has; ``auto``, ``cpu`` and ``gpu`` count as one."""
    text = nproc_per_node or ""
    return int(text) if text.isascii() and text.isdigit() else 1


def _elastic(job: TrainingJob, elastic: ElasticPolicy) -> dict[str, str]:
    host = elastic.rdzv_host or replica_name(job.metadata.name, WORKER, 0)
    port = elastic.rdzv_port or port_of(PYTORCHJOB, job.roles[WORKER])
    variables = {
        "PET_RDZV_ENDPOINT": f"{host}:{port}",
        "PET_RDZV_BACKEND": elastic.rdzv_backend or "c10d",
        "PET_NNODES": f"{elastic.min_replicas}:{elastic.max_replicas}",
        # With a shared store the agent of rank 0 tells where that is in its own first round alone: one that
        # joins later waits a minute for it, then all start again (torch 2.13, dynamic_rendezvous.py).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    if elastic.max_restarts is not None:
        variables["PET_MAX_RESTARTS"] = str(elastic.max_restarts)
    if elastic.n_proc_per_node is not None:
        variables["PET_NPROC_PER_NODE"] = str(elastic.n_proc_per_node)
    if elastic.rdzv_id is not None:
        variables["PET_RDZV_ID"] = elastic.rdzv_id
    if elastic.rdzv_conf:
        variables["PET_RDZV_CONF"] = ",".join(f"{entry.key}={entry.value}" for entry in elastic.rdzv_conf)
    if elastic.standalone:
        variables["PET_STANDALONE"] = ""
    return variables


def is_pytorch_master(job: TrainingJob, type_: str, index: int) -> bool:
    """Whether a replica has the role of the master: the Master, where there is one."""
    return type_ == MASTER


def pytorch_progress(
    job: TrainingJob, _replicas: ObservedReplicas, counted: dict[str, TrainingReplicaStatus]
) -> ReplicaProgress:
    """Return whether the job runs or has succeeded: the Master decides, else the workers together."""
    assert isinstance(job.spec, PyTorchJobSpec)
    if MASTER in job.roles:
        master, name = counted[MASTER], f"PyTorchJob {job.metadata.name}"
        if master.succeeded >= job.count(MASTER):
            return ReplicaProgress("Succeeded", f"{name} is successfully completed.")
        return ReplicaProgress("Running" if master.active else "", f"{name} is running.")
    workers, name = counted[WORKER], f"PyTorchJob {job.metadata.key}"
    needed = 1 if job.spec.elastic_policy is not None else job.count(WORKER)
    if workers.succeeded >= needed:
        return ReplicaProgress("Succeeded", f"{name} successfully completed.")
    return ReplicaProgress("Running" if workers.active else "", f"{name} is running.")


def pytorch_failure(job: TrainingJob, type_: str, count: int) -> str:
    """Return why a job fails whose pods are not to be made again."""
    return f"PyTorchJob {job.metadata.name} is failed because {count} {type_} replica(s) failed."
