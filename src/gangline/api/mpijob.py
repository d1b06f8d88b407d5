"""MPIJob of ``kubeflow.org/v2beta1`` as typed values.

Fields that Kubernetes may leave out are ``None`` or empty here, so that defaulting and validation can tell
"absent" from "zero"; ``mpijob_defaults`` fills them in. The pod templates stay plain dictionaries: they are
passed on field for field. The descriptions appear in the CRD and so in ``kubectl explain``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from gangline.api.core import Condition, ObjectMeta, Wire

LAUNCHER: Final = "Launcher"
WORKER: Final = "Worker"
REPLICA_TYPES: Final = (LAUNCHER, WORKER)

IMPLEMENTATIONS: Final = ("OpenMPI", "Intel", "MPICH")
CLEAN_POD_POLICIES: Final = ("None", "Running", "All")
RESTART_POLICIES: Final = ("Never", "OnFailure")
CREATION_POLICIES: Final = ("AtStartup", "WaitForWorkersReady")
MANAGED_BY_US: Final = "kubeflow.org/mpi-operator"
MANAGERS: Final = (MANAGED_BY_US, "kueue.x-k8s.io/multikueue")

ON_WORKER_FAILURE: Final = "gangline.dev/on-worker-failure"
"""Annotation of a job: what to do when a worker fails."""
WORKER_FAILURE_POLICIES: Final = ("fail", "restart-gang")
DEFAULT_BACKOFF_LIMIT: Final = 6
"""What Kubernetes takes when a Job says nothing."""

DEFAULT_SSH_MOUNT_PATH: Final = "/root/.ssh"

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


def _doc(text: str, **schema: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, extra_json_schema=schema or None)


class SchedulingPolicy(Wire, frozen=True, kw_only=True):
    """How the pods of the job are placed together."""

    min_available: Annotated[
        Int32 | None, _doc("Pods that must fit at the same moment; default: all of them.", minimum=0)
    ] = None
    queue: Annotated[str, _doc("Queue whose quota the job uses.")] = ""
    min_resources: Annotated[
        dict[str, str | int | float] | None,
        _doc("Resources that must be free at the same moment; default: the sum over the pods."),
    ] = None
    priority_class: Annotated[str, _doc("PriorityClass of the gang.")] = ""
    schedule_timeout_seconds: Annotated[
        Int32 | None, _doc("How long the gang may wait for its last pod, in seconds.", minimum=0)
    ] = None


class RunPolicy(Wire, frozen=True, kw_only=True):
    """What happens around the run: cleaning, limits, suspension."""

    clean_pod_policy: Annotated[
        str | None,
        _doc("Which worker pods are deleted after the job's end; default None.", enum=[*CLEAN_POD_POLICIES]),
    ] = None
    ttl_seconds_after_finished: Annotated[
        Int32 | None, _doc("The launcher Job is deleted this many seconds after its end.", minimum=0)
    ] = None
    active_deadline_seconds: Annotated[
        Int64 | None, _doc("The launcher is ended after this many seconds.", minimum=0)
    ] = None
    backoff_limit: Annotated[
        Int32 | None, _doc("How often the launcher is tried again; default 6.", minimum=0)
    ] = None
    scheduling_policy: Annotated[SchedulingPolicy | None, _doc("Gang scheduling.")] = None
    suspend: Annotated[
        bool, _doc("True ends the pods and keeps the job until it is false.", default=False)
    ] = False
    managed_by: Annotated[str | None, _doc("The controller that looks after this job; set once.")] = None


class ReplicaSpec(Wire, frozen=True, kw_only=True):
    """One role of the job: how many pods, and what each of them is."""

    replicas: Annotated[Int32 | None, _doc("Number of pods.", minimum=0)] = None
    template: Annotated[dict[str, Any], _doc("The pod, as in a Deployment or a Job.")] = {}
    restart_policy: Annotated[
        str,
        _doc(
            "Never or OnFailure; default OnFailure for the Launcher, Never for the Worker.",
            enum=[*RESTART_POLICIES],
        ),
    ] = ""

    @property
    def containers(self) -> list[dict[str, Any]]:
        """The containers of the template; empty where the template has none."""
        spec = self.template.get("spec")
        containers = spec.get("containers") if isinstance(spec, dict) else None
        return [item for item in containers if isinstance(item, dict)] if isinstance(containers, list) else []


class MPIJobSpec(Wire, frozen=True, kw_only=True):
    """``spec`` of an MPIJob."""

    slots_per_worker: Annotated[
        Int32 | None, _doc("Ranks that each worker pod takes.", default=1, minimum=1)
    ] = None
    run_launcher_as_worker: Annotated[
        bool, _doc("True gives the launcher pod ranks as well, first in the host list.", default=False)
    ] = False
    run_policy: Annotated[RunPolicy, _doc("Cleaning, limits, suspension.")] = RunPolicy()
    mpi_replica_specs: Annotated[
        dict[str, ReplicaSpec] | None, _doc("The roles: Launcher (one pod that runs mpirun) and Worker.")
    ] = None
    ssh_auth_mount_path: Annotated[
        str, _doc("Where the job's ssh key is mounted.", default=DEFAULT_SSH_MOUNT_PATH)
    ] = ""
    launcher_creation_policy: Annotated[
        str,
        _doc("When the launcher starts.", default=CREATION_POLICIES[0], enum=[*CREATION_POLICIES]),
    ] = ""
    mpi_implementation: Annotated[
        str, _doc("The MPI in the image.", default=IMPLEMENTATIONS[0], enum=[*IMPLEMENTATIONS])
    ] = ""

    def replica(self, type_: str) -> ReplicaSpec | None:
        """Return the spec of one role, or None."""
        return (self.mpi_replica_specs or {}).get(type_)


class ReplicaStatus(Wire, frozen=True, kw_only=True):
    """How many pods of one role are active, have succeeded, have failed."""

    active: Annotated[Int32, _doc("Pods that run.")] = 0
    succeeded: Annotated[Int32, _doc("Pods that ended well.")] = 0
    failed: Annotated[Int32, _doc("Pods that failed.")] = 0


class MPIJobStatus(Wire, frozen=True, kw_only=True):
    """``status`` of an MPIJob; times are RFC 3339 text in whole seconds."""

    conditions: Annotated[
        list[Condition],
        _doc("Created, Running, Suspended, Succeeded, Failed; last change last; Waiting first."),
    ] = []
    replica_statuses: Annotated[dict[str, ReplicaStatus], _doc("Pods by role.")] = {}
    start_time: Annotated[str | None, _doc("When the job started or was resumed.")] = None
    completion_time: Annotated[str | None, _doc("When the job ended.")] = None
    last_reconcile_time: Annotated[str | None, _doc("Not set; kept for readers of older versions.")] = None
    restarts: Annotated[Int32, _doc("How often the whole gang was started again.")] = 0
    launcher_replacements: Annotated[
        Int32, _doc("How often the launcher's Job was made anew because nodes refused its pods.")
    ] = 0
    workers: Annotated[Int32, _doc("How many workers the job has, in whichever version it says so.")] = 0


class MPIJob(Wire, frozen=True, kw_only=True):
    """An MPIJob as typed values; read it with ``mpijob_reading``.

    Attributes:
        version: by whose rules it was written; its spec has the shape of v2beta1 in any case.
        needs_exec: whether its workers run no ssh server, as those of old versions.
        has_agent: whether ranks reach them through the rank agent.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: MPIJobSpec = MPIJobSpec()
    status: MPIJobStatus = MPIJobStatus()
    version: str = "v2beta1"
    needs_exec: bool = False
    has_agent: bool = False

    @property
    def worker_count(self) -> int:
        """Wanted number of worker pods; 0 without a Worker role."""
        worker = self.spec.replica(WORKER)
        return (worker.replicas or 0) if worker else 0

    @property
    def restarts_gang(self) -> bool:
        """Whether a failed worker has the whole gang started again, instead of failing the job."""
        return self.metadata.annotations.get(ON_WORKER_FAILURE) == "restart-gang"

    @property
    def forgives_disruption(self) -> bool:
        """Whether the gang starts again after a worker that was evicted, drained or lost with its node."""
        return self.restarts_gang or ON_WORKER_FAILURE not in self.metadata.annotations

    @property
    def launcher_waits(self) -> bool:
        """Whether the launcher is created only when all workers are ready."""
        return self.spec.launcher_creation_policy != CREATION_POLICIES[0]

    @property
    def is_suspended(self) -> bool:
        """Whether the job is asked to hold no pods."""
        return self.spec.run_policy.suspend


class ManagedFields(Wire, frozen=True, kw_only=True):
    """One entry of ``metadata.managedFields``: who wrote, through which version; the fields stay unread."""

    manager: str = ""
    api_version: str = ""
    subresource: str = ""
    time: str | None = None


class JobMeta(ObjectMeta, frozen=True, kw_only=True):
    """``metadata`` of a job, with the record of its writers."""

    managed_fields: list[ManagedFields] = []


class AnyJob(Wire, frozen=True, kw_only=True):
    """A job of any kind as a cache keeps it: spec and status stay raw, so that nothing can fail to decode."""

    api_version: str = ""
    kind: str = ""
    metadata: JobMeta = JobMeta()
    spec: Any = None
    status: Any = None
