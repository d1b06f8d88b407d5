"""TFJob and PyTorchJob of ``kubeflow.org`` as typed values.

Both are one family: replica specs by type, a run policy, a status. Absent fields are ``None`` or empty, so
that defaults and rules (``training.reading``, ``training.validation``) can tell "absent" from "zero". The
descriptions appear in the definitions and so in ``kubectl explain``. Source: training-operator 1.9.4, and
tf-operator 0.5.3 for v1beta2.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from gangline.api.core import Condition, ObjectMeta, Wire
from gangline.api.mpijob import (
    CLEAN_POD_POLICIES,
    DEFAULT_SSH_MOUNT_PATH,
    ON_WORKER_FAILURE,
    Int32,
    Int64,
    ReplicaSpec,
    ReplicaStatus,
    RunPolicy,
)
from gangline.api.trainer.job import TrainJobSpec

MANAGED_BY_US: Final = "kubeflow.org/training-operator"
MANAGERS: Final = (MANAGED_BY_US, "kueue.x-k8s.io/multikueue")
RESTART_POLICIES: Final = ("Always", "OnFailure", "Never", "ExitCode")
SUCCESS_POLICIES: Final = ("", "AllWorkers")
RENDEZVOUS_BACKENDS: Final = ("c10d", "etcd", "etcd-v2")
V1BETA2: Final = "v1beta2"

CHIEF: Final = "Chief"
EVALUATOR: Final = "Evaluator"
MASTER: Final = "Master"
PS: Final = "PS"
WORKER: Final = "Worker"


def _doc(text: str, **schema: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, extra_json_schema=schema or None)


class TrainingRunPolicy(RunPolicy, frozen=True, kw_only=True):
    """What happens around the run: cleaning, limits, suspension."""

    clean_pod_policy: Annotated[
        str | None,
        _doc(
            "Which pods are deleted after the job's end, with their Services; default None.",
            enum=[*CLEAN_POD_POLICIES],
        ),
    ] = None
    ttl_seconds_after_finished: Annotated[
        Int32 | None, _doc("The job is deleted this many seconds after its end.", minimum=0)
    ] = None
    active_deadline_seconds: Annotated[
        Int64 | None, _doc("The job fails when it has run for so many seconds.", minimum=0)
    ] = None
    backoff_limit: Annotated[
        Int32 | None,
        _doc("How many restarts and recreations of its pods a job has; default: no limit.", minimum=0),
    ] = None


class TrainingReplicaSpec(ReplicaSpec, frozen=True, kw_only=True):
    """One role of the job: how many pods, and what each of them is."""

    restart_policy: Annotated[
        str,
        _doc("Always, OnFailure, Never or ExitCode (again after codes from 128 on, never after lower ones)."),
    ] = ""


_Replicas = dict[str, TrainingReplicaSpec]


class RendezvousConfig(Wire, frozen=True, kw_only=True):
    """One setting of the rendezvous backend."""

    key: str = ""
    value: str = ""


class ElasticPolicy(Wire, frozen=True, kw_only=True):
    """How torchrun finds the workers that there are, and how many there may be."""

    min_replicas: Annotated[Int32 | None, _doc("The fewest workers that training goes on with.")] = None
    max_replicas: Annotated[Int32 | None, _doc("The most workers.")] = None
    rdzv_backend: Annotated[
        str | None, _doc("The rendezvous backend; default c10d.", enum=[*RENDEZVOUS_BACKENDS])
    ] = None
    rdzv_port: Annotated[Int32 | None, _doc("Its port; default: the workers'.")] = None
    rdzv_host: Annotated[str | None, _doc("Its host; default: worker 0.")] = None
    rdzv_id: Annotated[str | None, _doc("Name of the rendezvous.")] = None
    rdzv_conf: Annotated[list[RendezvousConfig], _doc("Settings of the backend.")] = []
    standalone: Annotated[bool | None, _doc("True starts a rendezvous in each pod alone.")] = None
    n_proc_per_node: Annotated[Int32 | None, _doc("Deprecated: use spec.nprocPerNode.")] = None
    max_restarts: Annotated[Int32 | None, _doc("How often torchrun starts its processes again.")] = None
    metrics: Annotated[
        list[dict[str, Any]],
        _doc("Of a HorizontalPodAutoscaler between the bounds, which is made with them."),
    ] = []


class PyTorchJobSpec(Wire, frozen=True, kw_only=True):
    """``spec`` of a PyTorchJob."""

    run_policy: Annotated[TrainingRunPolicy, _doc("Cleaning, limits, suspension.")] = TrainingRunPolicy()
    pytorch_replica_specs: Annotated[
        _Replicas | None, _doc("The roles: Master (one pod, rank 0) and Worker.")
    ] = None
    nproc_per_node: Annotated[
        str | None, _doc("Processes that torchrun starts in each pod: auto, cpu, gpu or a number, as text.")
    ] = None
    elastic_policy: Annotated[
        ElasticPolicy | None, _doc("For torchrun with a changing number of workers.")
    ] = None


class TFJobSpec(Wire, frozen=True, kw_only=True):
    """``spec`` of a TFJob; the last four fields are those of v1beta2."""

    run_policy: Annotated[TrainingRunPolicy, _doc("Cleaning, limits, suspension.")] = TrainingRunPolicy()
    success_policy: Annotated[
        str, _doc("Empty: worker 0 or all workers end the job; AllWorkers: all of them.")
    ] = ""
    tf_replica_specs: Annotated[
        _Replicas | None, _doc("The roles: PS, Worker, Chief, Master, Evaluator.")
    ] = None
    enable_dynamic_worker: Annotated[
        bool, _doc("Workers learn of no other worker, so that their number may change.")
    ] = False
    clean_pod_policy: Annotated[str | None, _doc("Only v1beta2: as runPolicy.cleanPodPolicy.")] = None
    ttl_seconds_after_finished: Annotated[
        Int32 | None, _doc("Only v1beta2: as runPolicy.ttlSecondsAfterFinished.")
    ] = None
    active_deadline_seconds: Annotated[
        Int64 | None, _doc("Only v1beta2: as runPolicy.activeDeadlineSeconds.")
    ] = None
    backoff_limit: Annotated[Int32 | None, _doc("Only v1beta2: as runPolicy.backoffLimit.")] = None


FLAT_FIELDS: Final = (
    "clean_pod_policy",
    "ttl_seconds_after_finished",
    "active_deadline_seconds",
    "backoff_limit",
)
"""What v1beta2 has in ``spec`` and v1 in ``spec.runPolicy``."""


class TrainingReplicaStatus(ReplicaStatus, frozen=True, kw_only=True):
    """How many pods of one type are active, have succeeded, have failed."""

    selector: Annotated[str, _doc("Label selector of these pods, for the scale subresource.")] = ""


class TrainingJobStatus(Wire, frozen=True, kw_only=True):
    """``status`` of every kind of the family; times are RFC 3339 text in whole seconds."""

    conditions: Annotated[
        list[Condition],
        _doc("Created, Running, Restarting, Suspended, Succeeded, Failed; last change last."),
    ] = []
    replica_statuses: Annotated[dict[str, TrainingReplicaStatus], _doc("Pods by type.")] = {}
    start_time: Annotated[str | None, _doc("When the job started or was resumed.")] = None
    completion_time: Annotated[str | None, _doc("When the job ended.")] = None
    last_reconcile_time: Annotated[str | None, _doc("Not set; kept for readers.")] = None
    restarts: Annotated[Int32, _doc("How often pods were made again.")] = 0
    last_restart_time: Annotated[str | None, _doc("When that was last.")] = None
    restarting_pods: Annotated[list[str], _doc("Uids of pods that are made again and not gone yet.")] = []


class MpiLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """How the launcher of a TrainJob reaches its hosts.

    Attributes:
        slots: ranks of each host.
        ssh_mount_path: where ssh finds its keys.
        is_host: whether the launcher has ranks too.
    """

    slots: int = 1
    ssh_mount_path: str = DEFAULT_SSH_MOUNT_PATH
    is_host: bool = False


class StatusEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where the pods of TrainJobs tell how far they are.

    Attributes:
        url: scheme, host and port.
        authority: the certificate, in PEM, by which the server is known.
    """

    url: str
    authority: str


class RoleOrder(msgspec.Struct, frozen=True, kw_only=True):
    """In which order the roles of a TrainJob start, and which of them end it.

    Attributes:
        after: by type, what must be of which other type before it: ``Ready`` or ``Complete``.
        deciding: types whose success is the job's; empty for all.
        is_any: whether one of them is enough.
    """

    after: dict[str, dict[str, str]] = {}
    deciding: tuple[str, ...] = ()
    is_any: bool = False

    @property
    def preludes(self) -> frozenset[str]:
        """Types that end before others begin, and so are in no gang with them."""
        waited = (name for needs in self.after.values() for name, what in needs.items() if what == "Complete")
        return frozenset(waited)


class TrainingJob(Wire, frozen=True, kw_only=True):
    """A job of the family after defaulting.

    Attributes:
        run_policy: of v1 and v1beta2 alike.
        roles: by type, in the order of the kind.
        is_v1beta2: whether it keeps the rules of v1beta2.
        processes: of a TrainJob: those of each pod, as torchrun reads it; empty without torchrun.
        mpi: of a TrainJob that mpirun starts.
        order: of a TrainJob's roles; all start at once in every other job.
        subdomain: of a TrainJob's host names; empty for the job's name.
        status_endpoint: where the pods of a TrainJob tell how far they are; None where nobody listens.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: PyTorchJobSpec | TFJobSpec | TrainJobSpec = PyTorchJobSpec()
    run_policy: TrainingRunPolicy = TrainingRunPolicy()
    roles: dict[str, TrainingReplicaSpec] = {}
    status: TrainingJobStatus = TrainingJobStatus()
    is_v1beta2: bool = False
    processes: str = ""
    mpi: MpiLaunch | None = None
    order: RoleOrder = RoleOrder()
    subdomain: str = ""
    status_endpoint: StatusEndpoint | None = None

    @property
    def is_suspended(self) -> bool:
        """Whether the job is asked to hold no pods."""
        return self.run_policy.suspend

    @property
    def elastic_policy(self) -> ElasticPolicy | None:
        """How workers come and go; None where their number is fixed."""
        return self.spec.elastic_policy if isinstance(self.spec, PyTorchJobSpec) else None

    @property
    def restarts_gang(self) -> bool:
        """Whether a failed pod has all pods of the job made again."""
        return self.metadata.annotations.get(ON_WORKER_FAILURE) == "restart-gang"

    def count(self, type_: str) -> int:
        """Return how many replicas of a type the job wants; 0 for a type that it does not have."""
        role = self.roles.get(type_)
        return (role.replicas or 0) if role else 0

    @property
    def total(self) -> int:
        """How many replicas the job wants, of all types."""
        return sum(map(self.count, self.roles))
