"""The runtimes that come with Gangline, under the names that Kubeflow Trainer's have.

``mpi-distributed`` runs in Gangline's own image, whose ssh server needs no root; the others name upstream's.
"""

from __future__ import annotations

from typing import Any, Final

from gangline import __version__
from gangline.api.resources import CLUSTER_TRAINING_RUNTIMES
from gangline.api.trainer.job import FRAMEWORK_LABEL, LAUNCHER, NODE, STEP_LABEL, TRAINER_STEP

TORCH_DISTRIBUTED: Final = "torch-distributed"
MPI_DISTRIBUTED: Final = "mpi-distributed"
DEEPSPEED_DISTRIBUTED: Final = "deepspeed-distributed"
TORCH_IMAGE: Final = "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"
DEEPSPEED_IMAGE: Final = "ghcr.io/kubeflow/trainer/deepspeed-runtime:v2.3.0"
MPI_IMAGE: Final = f"gangline/base:{__version__}"
_USER: Final = 1000
_HOME: Final = "/home/mpiuser"
_SSH_PORT: Final = 2222

Obj = dict[str, Any]


def bundled_runtimes() -> list[Obj]:
    """Return every runtime as a fresh object in wire form, ready to be applied."""
    return [
        _runtime(
            TORCH_DISTRIBUTED, "torch", {"torch": {}}, {"replicatedJobs": [_trainer(NODE, TORCH_IMAGE)]}
        ),
        _mpi_runtime(MPI_DISTRIBUTED, "mpi", MPI_IMAGE),
        _mpi_runtime(DEEPSPEED_DISTRIBUTED, "deepspeed", DEEPSPEED_IMAGE),
    ]


def _runtime(name: str, framework: str, policy: Obj, jobset: Obj) -> Obj:
    return {
        "apiVersion": CLUSTER_TRAINING_RUNTIMES.api_version,
        "kind": CLUSTER_TRAINING_RUNTIMES.kind,
        "metadata": {"name": name, "labels": {FRAMEWORK_LABEL: framework}},
        "spec": {"mlPolicy": {"numNodes": 1, **policy}, "template": {"spec": jobset}},
    }


def _trainer(name: str, image: str, **more: Any) -> Obj:
    pods = {"spec": {"containers": [{"name": NODE, "image": image}]}}
    step = {"metadata": {"labels": {STEP_LABEL: TRAINER_STEP}}}
    return {"name": name, "template": {**step, "spec": {"template": pods}}, **more}


def _mpi_runtime(name: str, framework: str, image: str) -> Obj:
    """Return a runtime whose launcher starts ranks over ssh, on itself as well, all as one plain user."""
    policy = {
        "numProcPerNode": 1,
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": f"{_HOME}/.ssh",
        "runLauncherAsNode": True,
    }
    server = {
        "command": ["/usr/sbin/sshd"],
        "args": ["-De", "-f", f"{_HOME}/.sshd_config"],
        "readinessProbe": {"tcpSocket": {"port": _SSH_PORT}, "initialDelaySeconds": 5},
    }
    hosts = {"name": NODE, "template": {"spec": {"template": _as_user(image, server)}}}
    launcher = _trainer(LAUNCHER, image, dependsOn=[{"name": NODE, "status": "Ready"}])
    launcher["template"]["spec"]["template"] = _as_user(image, {})
    jobset = {
        "network": {"publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": [LAUNCHER]},
        "replicatedJobs": [hosts, launcher],
    }
    return _runtime(name, framework, {"mpi": policy}, jobset)


def _as_user(image: str, more: Obj) -> Obj:
    user = {"runAsUser": _USER, "runAsGroup": _USER}
    container = {"name": NODE, "image": image, "securityContext": user, **more}
    return {"spec": {"securityContext": {"fsGroup": _USER}, "containers": [container]}}
