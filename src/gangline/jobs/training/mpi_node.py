"""What the pods of a TrainJob get that mpirun starts: keys, a list of hosts, and where Open MPI finds both.

Names and mounts are Kubeflow Trainer's (2.3.0). Done otherwise: Open MPI 5 is told too, whose names are
others (upstream starts all its ranks on one node), and ssh waits for names as in an MPIJob.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from gangline.api.resources import CONFIG_MAPS, SECRETS, TRAINJOBS
from gangline.api.trainer.job import LAUNCHER, NODE
from gangline.api.training.job import TrainingJob
from gangline.api.training.kinds import TRAINJOB
from gangline.jobs.environment import HOSTFILE_PATH, open_mpi_environment
from gangline.jobs.names import HOSTFILE_KEY, PRIVATE_KEY, PUBLIC_KEY, SSH_CONFIG_KEY, child_metadata
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.plan import Action, Create, EnsureKeyPair, Patch
from gangline.jobs.ssh_config import ssh_config
from gangline.jobs.training.replicas import job_labels
from gangline.jobs.training.torch_node import host_name

Object = dict[str, Any]

_KEYS: Final = "mpi-ssh-auth"
_HOSTS: Final = "mpi-hostfile"
_READABLE: Final = 0o644


def render_trainjob_hostfile(job: TrainingJob) -> str:
    """Return one line for each host, the launcher first where it has ranks."""
    assert job.mpi is not None
    types = [LAUNCHER, NODE] if job.mpi.is_host else [NODE]
    hosts = [host_name(job, type_, index) for type_ in types for index in range(job.count(type_))]
    return "".join(f"{host} slots={job.mpi.slots}\n" for host in hosts)


def ensure_mpi_objects(job: TrainingJob, observed: ObservedChildren) -> list[Action]:
    """Return what makes the Secret and the ConfigMap that the pods mount; none without mpirun."""
    if job.mpi is None:
        return []
    name, namespace, actions = job.metadata.name, job.metadata.namespace, list[Action]()
    labels = job_labels(TRAINJOB, name)
    if f"{name}-{_KEYS}" not in observed.secrets:
        secret = {
            "apiVersion": "v1",
            "kind": SECRETS.kind,
            "metadata": child_metadata(job.metadata, f"{name}-{_KEYS}", labels, TRAINJOBS),
            "type": "kubernetes.io/ssh-auth",
            "immutable": True,
            "data": {
                SSH_CONFIG_KEY: base64.b64encode(ssh_config(f"*.{job.subdomain or name}").encode()).decode()
            },
        }
        actions.append(EnsureKeyPair(secret))
    data = {HOSTFILE_KEY: render_trainjob_hostfile(job)}
    found = observed.config_maps.get(f"{name}-{_HOSTS}")
    if found is None:
        metadata = child_metadata(job.metadata, f"{name}-{_HOSTS}", labels, TRAINJOBS)
        wanted = {"apiVersion": "v1", "kind": CONFIG_MAPS.kind, "metadata": metadata, "data": data}
        actions.append(Create(CONFIG_MAPS, wanted))
    elif found.data != data:
        actions.append(Patch(CONFIG_MAPS, namespace, f"{name}-{_HOSTS}", {"data": data}))
    return actions


def mount_mpi(pod: Object, job: TrainingJob, type_: str) -> Object:
    """Return a pod of launcher or hosts with its keys, the launcher's with the list of hosts too."""
    if job.mpi is None or type_ not in (LAUNCHER, NODE):
        return pod
    name = job.metadata.name
    keys = {"key": PUBLIC_KEY, "mode": _READABLE}
    items = [
        {"key": PRIVATE_KEY, "path": "id_rsa", "mode": 0o640},
        {**keys, "path": "id_rsa.pub"},
        {**keys, "path": "authorized_keys"},
        {"key": SSH_CONFIG_KEY, "path": "config", "mode": _READABLE},
    ]
    secret = {"secretName": f"{name}-{_KEYS}", "defaultMode": 0o400, "items": items}
    volumes: list[Object] = [{"name": _KEYS, "secret": secret}]
    mounts = [{"name": _KEYS, "mountPath": job.mpi.ssh_mount_path}]
    if type_ == LAUNCHER:
        items = [{"key": HOSTFILE_KEY, "path": HOSTFILE_KEY, "mode": 0o444}]
        volumes.append({"name": _HOSTS, "configMap": {"name": f"{name}-{_HOSTS}", "items": items}})
        mounts.append({"name": _HOSTS, "mountPath": HOSTFILE_PATH.rpartition("/")[0]})
    spec = pod["spec"]
    containers = [
        {**one, "volumeMounts": [*(one.get("volumeMounts") or []), *mounts]}
        if one.get("name") == NODE
        else one
        for one in spec["containers"]
    ]
    return {
        **pod,
        "spec": {**spec, "containers": containers, "volumes": [*(spec.get("volumes") or []), *volumes]},
    }


def mpi_environment(job: TrainingJob, type_: str) -> dict[str, str]:
    """Return what mpirun reads of the hosts."""
    if job.mpi is None or type_ != LAUNCHER:
        return {}
    given = {
        variable.get("name")
        for container in job.roles[type_].containers
        for variable in container.get("env") or []
    }
    return open_mpi_environment(str(job.mpi.slots), given)
