"""The kinds of workloads that Gangline lists, follows, explains and deletes; a new one is one entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gangline.api.mpijob import LAUNCHER, WORKER
from gangline.api.mpijob_reading import current_spec
from gangline.api.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    MPIJOBS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    TRAINJOBS,
    Resource,
)
from gangline.api.trainer.job import NODE
from gangline.api.training.job import CHIEF, MASTER
from gangline.api.training.kinds import PYTORCHJOB, TFJOB, TRAINJOB, TrainingKind

Obj = dict[str, Any]

JOB_NAME_LABEL = "training.kubeflow.org/job-name"
OPERATOR_NAME_LABEL = "training.kubeflow.org/operator-name"
ROLE_LABEL = "training.kubeflow.org/job-role"
REPLICA_INDEX_LABEL = "training.kubeflow.org/replica-index"
REPLICA_TYPE_LABEL = "training.kubeflow.org/replica-type"
MASTER_ROLE = "master"
BATCH_JOB_LABEL = "batch.kubernetes.io/job-name"
COMPLETION_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"


class Replicas(msgspec.Struct, frozen=True):
    """Pods of one role as a spec asks for them.

    Attributes:
        role: as on their label, ``worker``; empty where a kind has no roles.
        count: how many run together.
        template: pod template in wire form.
    """

    role: str
    count: int
    template: Obj


class WorkloadKind(msgspec.Struct, frozen=True, kw_only=True):
    """How objects of one kind are found and read.

    Attributes:
        resource: where they live.
        words: what users call the kind in ``--type`` and before a name, the usual word first.
        is_job: whether it comes to an end, and is listed as a job.
        starts_whole: whether its pods are a gang of their own accord.
        tells_running: whether it has a condition ``Running``.
        tries: how often a failed primary pod is tried again where a job does not say; None without end.
        primary: role of the pods whose log is the workload's; empty where every pod's is.
        maker: who makes its pods.
        spec: its spec as the current version says it.
        replicas: what its spec asks for, by role.
        templates: pod templates with their field paths as written, a dot at the end of each.
        pod_labels: labels that its pods carry; None for a pod, which is its own.
        others: operators whose pods these are not, though a job of the same name has them.
    """

    resource: Resource
    words: tuple[str, ...]
    is_job: bool = True
    starts_whole: bool = False
    tells_running: bool = False
    tries: int | None = 6
    primary: str = ""
    maker: str
    spec: Callable[[Obj], Obj]
    replicas: Callable[[Obj], Sequence[Replicas]]
    templates: Callable[[Obj], list[tuple[str, Obj]]]
    pod_labels: Callable[[Obj], Mapping[str, str]] | None = None
    others: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The kind as manifests spell it."""
        return self.resource.kind

    def is_primary(self, obj: Obj, pod: Obj) -> bool:
        """Return whether a pod's log is the workload's; of a job without its primary role worker 0's is."""
        if not self.primary or role_of(pod) == self.primary:
            return True
        roles = {replicas.role for replicas in self.replicas(obj)}
        index = (pod["metadata"].get("labels") or {}).get(REPLICA_INDEX_LABEL)
        return self.primary not in roles and is_worker(pod) and index == "0"

    def primary_template(self, obj: Obj) -> Obj:
        """Return the pod template of the primary role, else of the workers, else of the first role."""
        templates = {replicas.role: replicas.template for replicas in self.replicas(obj)}
        first = next(iter(templates.values()), {})
        return templates.get(self.primary) or templates.get(WORKER.lower()) or first

    def pod_selector(self, obj: Obj) -> tuple[str, str]:
        """Return label and field selector of the pods that belong to an object."""
        if self.pod_labels is None:
            return "", f"metadata.name={obj['metadata']['name']}"
        found = [f"{key}={value}" for key, value in self.pod_labels(obj).items()]
        if self.others:
            found.append(f"{OPERATOR_NAME_LABEL} notin ({','.join(self.others)})")
        return ",".join(found), ""

    def belongs(self, obj: Obj, pod: Obj) -> bool:
        """Return whether a pod belongs to an object."""
        metadata, others = obj["metadata"], pod["metadata"]
        if others.get("namespace") != metadata.get("namespace"):
            return False
        if self.pod_labels is None:
            return bool(others["name"] == metadata["name"])
        labels, wanted = others.get("labels") or {}, self.pod_labels(obj)
        if labels.get(OPERATOR_NAME_LABEL) in self.others:
            return False
        return bool(wanted) and all(labels.get(key) == value for key, value in wanted.items())


def _spec(obj: Obj) -> Obj:
    return obj.get("spec") or {}


def _count(value: Any) -> int:
    return 1 if value is None else int(value)


def _mpijob_replicas(job: Obj) -> list[Replicas]:
    roles = current_spec(job).get("mpiReplicaSpecs") or {}
    return [
        Replicas(role.lower(), _count(replica.get("replicas")), replica.get("template") or {})
        for role, replica in roles.items()
    ]


def _mpijob_templates(job: Obj) -> list[tuple[str, Obj]]:
    spec = _spec(job)
    roles = spec.get("mpiReplicaSpecs") or {}
    if not roles and spec.get("template"):  # v1alpha1 has one for both roles
        return [("spec.template.", spec["template"])]
    return [
        (f"spec.mpiReplicaSpecs[{role}].template.", replica.get("template") or {})
        for role, replica in roles.items()
    ]


def _one_template(obj: Obj) -> list[tuple[str, Obj]]:
    return [("spec.template.", _spec(obj).get("template") or {})]


def _name_label(label: str) -> Callable[[Obj], Mapping[str, str]]:
    return lambda obj: {label: obj["metadata"]["name"]}


MPIJOB = WorkloadKind(
    resource=MPIJOBS,
    words=("mpijob", "mpi", "mj"),
    starts_whole=True,
    tells_running=True,
    primary=LAUNCHER.lower(),
    maker="its operator",
    spec=current_spec,
    replicas=_mpijob_replicas,
    templates=_mpijob_templates,
    pod_labels=_name_label(JOB_NAME_LABEL),
    others=tuple(kind.controller for kind in (PYTORCHJOB, TFJOB, TRAINJOB)),
)


def _training_job(kind: TrainingKind, *words: str) -> WorkloadKind:
    """Return a kind of the training operator's family, whose master speaks for the job."""

    def roles(job: Obj) -> dict[str, Obj]:
        return {
            kind.type_of(key): role or {} for key, role in (_spec(job).get(kind.specs_field) or {}).items()
        }

    return WorkloadKind(
        resource=kind.resource,
        words=words,
        starts_whole=True,
        tells_running=True,
        tries=None,
        primary=MASTER_ROLE,
        maker="its operator",
        spec=_spec,
        replicas=lambda job: [
            Replicas(_role(type_), _count(role.get("replicas")), role.get("template") or {})
            for type_, role in roles(job).items()
        ],
        templates=lambda job: [
            (f"spec.{kind.specs_field}[{key}].template.", (role or {}).get("template") or {})
            for key, role in (_spec(job).get(kind.specs_field) or {}).items()
        ],
        pod_labels=lambda job: {
            JOB_NAME_LABEL: job["metadata"]["name"],
            OPERATOR_NAME_LABEL: kind.controller,
        },
    )


def _role(type_: str) -> str:
    return MASTER_ROLE if type_ in (CHIEF, MASTER) else type_.lower()


PYTORCH_JOB = _training_job(PYTORCHJOB, "pytorchjob", "pytorch", "pyj")
TF_JOB = _training_job(TFJOB, "tfjob", "tf")


def _trainer(job: Obj) -> list[Replicas]:
    """Return what a TrainJob says of its pods itself; the rest is its runtime's."""
    trainer = _spec(job).get("trainer") or {}
    given = {key: trainer.get(key) for key in ("image", "command", "args")}
    given["resources"] = trainer.get("resourcesPerNode")
    container = {"name": NODE, **{key: value for key, value in given.items() if value}}
    return [Replicas(NODE, _count(trainer.get("numNodes")), {"spec": {"containers": [container]}})]


TRAIN_JOB = WorkloadKind(
    resource=TRAINJOBS,
    words=("trainjob",),
    starts_whole=True,
    tries=None,
    primary=MASTER_ROLE,
    maker="its operator",
    spec=_spec,
    replicas=_trainer,
    templates=lambda job: [],
    pod_labels=lambda job: {
        JOB_NAME_LABEL: job["metadata"]["name"],
        OPERATOR_NAME_LABEL: TRAINJOB.controller,
    },
)
JOB = WorkloadKind(
    resource=JOBS,
    words=("job",),
    maker="the Job controller",
    spec=_spec,
    replicas=lambda job: [
        Replicas("", _count(_spec(job).get("parallelism")), _spec(job).get("template") or {})
    ],
    templates=_one_template,
    pod_labels=_name_label(BATCH_JOB_LABEL),
)


def _selected(obj: Obj) -> Mapping[str, str]:
    return (_spec(obj).get("selector") or {}).get("matchLabels") or {}


def _kept_running(resource: Resource, *words: str, count: Callable[[Obj], int] | None = None) -> WorkloadKind:
    """Return a kind whose pods run until it is deleted; ``count`` for one that does not say how many."""

    def replicas(obj: Obj) -> list[Replicas]:
        wanted = count(obj) if count else _count(_spec(obj).get("replicas"))
        return [Replicas("", wanted, _spec(obj).get("template") or {})]

    return WorkloadKind(
        resource=resource,
        words=words,
        is_job=False,
        maker=f"the {resource.kind} controller",
        spec=_spec,
        replicas=replicas,
        templates=_one_template,
        pod_labels=_selected,
    )


def _on_nodes(obj: Obj) -> int:
    return int((obj.get("status") or {}).get("desiredNumberScheduled") or 0)


DEPLOYMENT = _kept_running(DEPLOYMENTS, "deployment", "deploy")
STATEFUL_SET = _kept_running(STATEFUL_SETS, "statefulset", "sts")
DAEMON_SET = _kept_running(DAEMON_SETS, "daemonset", "ds", count=_on_nodes)
REPLICA_SET = _kept_running(REPLICA_SETS, "replicaset", "rs")

POD = WorkloadKind(
    resource=PODS,
    words=("pod", "po"),
    maker="whoever made it",
    spec=_spec,
    replicas=lambda pod: [Replicas("", 1, pod)],
    templates=lambda pod: [("", pod)],
)

KINDS: list[WorkloadKind] = [
    MPIJOB,
    PYTORCH_JOB,
    TF_JOB,
    TRAIN_JOB,
    JOB,
    POD,
    DEPLOYMENT,
    STATEFUL_SET,
    DAEMON_SET,
    REPLICA_SET,
]
"""In the order in which a name without a kind is looked for."""


def find_kind(name: str) -> WorkloadKind | None:
    """Return the kind that manifests spell so, None for one that is no workload."""
    return next((kind for kind in KINDS if kind.name == name), None)


def kind_of(obj: Obj) -> WorkloadKind:
    """Return the kind of a workload.

    Raises:
        KeyError: it is none.
    """
    found = find_kind(str(obj.get("kind")))
    if found is None:
        raise KeyError(obj.get("kind"))
    return found


def kind_called(word: str) -> WorkloadKind | None:
    """Return the kind that users call so: ``mpijob``, ``mpijobs``, ``mpijobs.kubeflow.org``, ``mj``."""
    bare = word.lower().partition(".")[0]
    return next((kind for kind in KINDS if bare in kind.words or bare.removesuffix("s") in kind.words), None)


def role_of(pod: Obj) -> str:
    """Return the role of a pod in its job, ``launcher``, ``master`` or ``worker``; empty without one."""
    labels = pod["metadata"].get("labels") or {}
    role, type_ = labels.get(ROLE_LABEL), labels.get(REPLICA_TYPE_LABEL)
    if role == MASTER_ROLE and labels.get(COMPLETION_INDEX_LABEL, "0") != "0":
        role = type_  # the pods of a JobSet's job have one template, and the first of them is meant
    return str(role or type_ or "")


def is_worker(pod: Obj) -> bool:
    """Return whether a pod is a worker of a training job."""
    return role_of(pod) == WORKER.lower()


def pod_templates(obj: Obj) -> list[tuple[str, Obj]]:
    """Return the pod templates of an object with their field paths, a dot at the end of each."""
    kind = find_kind(str(obj.get("kind")))
    return kind.templates(obj) if kind else []
