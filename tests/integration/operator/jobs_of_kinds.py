"""A job of each kind with four pods or fewer, for the tests of what goes wrong with any of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gangline.api.resources import MPIJOBS, PYTORCHJOBS, TFJOBS, TRAINJOBS, Resource

Spec = dict[str, Any]


def _template(container: str) -> Spec:
    main = {"name": container, "image": "image"}
    return {"spec": {"terminationGracePeriodSeconds": 1, "containers": [main]}}


def _roles(container: str, policy: str, counts: dict[str, int]) -> Spec:
    rest: Spec = {"template": _template(container)} | ({"restartPolicy": policy} if policy else {})
    return {role: {"replicas": count, **rest} for role, count in counts.items()}


def _pytorch(policy: str) -> Spec:
    return {"pytorchReplicaSpecs": _roles("pytorch", policy, {"Master": 1, "Worker": 2})}


def _tensorflow(policy: str) -> Spec:
    return {"tfReplicaSpecs": _roles("tensorflow", policy, {"Chief": 1, "PS": 1, "Worker": 2})}


def _mpi(policy: str) -> Spec:
    return {"mpiReplicaSpecs": _roles("main", policy, {"Launcher": 1, "Worker": 2})}


def _train(policy: str) -> Spec:
    spec: Spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 3}}
    pod: Spec = {"terminationGracePeriodSeconds": 1} | ({"restartPolicy": policy} if policy else {})
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    changed = {"template": {"spec": {"replicatedJobs": [job]}}}
    spec["runtimePatches"] = [{"manager": "test", "trainingRuntimeSpec": changed}]
    return spec


@dataclass(frozen=True)
class KindOfJob:
    """How jobs of one kind are written, and what they have.

    Attributes:
        spec: of a job whose pods have that restart policy; empty for the kind's own.
        head: the pod whose end is the job's, after the job's name; empty where the name is not known before.
        others: the other pods.
        done: the condition of a good end.
    """

    resource: Resource
    spec: Callable[[str], Spec]
    head: str
    others: tuple[str, ...]
    done: str = "Succeeded"

    @property
    def name(self) -> str:
        return self.resource.kind

    @property
    def pods(self) -> tuple[str, ...]:
        """Every pod whose name is known before, after the job's name."""
        return (*((self.head,) if self.head else ()), *self.others)

    def manifest(self, namespace: str, name: str = "train", policy: str = "") -> Spec:
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": self.spec(policy),
        }

    def suspension(self, value: bool) -> Spec:
        """Return a patch that suspends a job, or lets it go on."""
        switch = {"suspend": value}
        return {"spec": switch if self is TRAIN else {"runPolicy": switch}}


MPI = KindOfJob(MPIJOBS, _mpi, "", ("worker-0", "worker-1"))
PYTORCH = KindOfJob(PYTORCHJOBS, _pytorch, "master-0", ("worker-0", "worker-1"))
TENSORFLOW = KindOfJob(TFJOBS, _tensorflow, "chief-0", ("ps-0", "worker-0", "worker-1"))
TRAIN = KindOfJob(TRAINJOBS, _train, "node-0-0", ("node-0-1", "node-0-2"), done="Complete")
ALL_KINDS = (MPI, PYTORCH, TENSORFLOW, TRAIN)
TRAINING_KINDS = (PYTORCH, TENSORFLOW, TRAIN)
