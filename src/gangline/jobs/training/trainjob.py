"""TrainJob: what it and its runtime ask for together, as a training job of the family.

The runtime's JobSet template is read, no JobSet is made: pods are named and found as those of a JobSet would
be. What of a JobSet's template is not done here is refused by name. Source: Kubeflow Trainer 2.3.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from gangline.api.core import Condition
from gangline.api.mpijob import ON_WORKER_FAILURE, SchedulingPolicy
from gangline.api.trainer.bundled import bundled_runtimes
from gangline.api.trainer.job import (
    MANAGED_BY_US,
    NODE,
    Runtime,
    RuntimeRef,
    Trainer,
)
from gangline.api.trainer.reading import ReadTrainJob
from gangline.api.training.job import (
    TrainingJob,
    TrainingJobStatus,
    TrainingReplicaSpec,
    TrainingReplicaStatus,
    TrainingRunPolicy,
)
from gangline.api.training.reading import ReadTrainingJob
from gangline.errors import FieldError
from gangline.jobs.conditions import CREATED, FAILED, SUCCEEDED, SUSPENDED
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.plan import Emit, Plan
from gangline.jobs.settings import Settings
from gangline.jobs.training import reconcile as family
from gangline.jobs.training.rules import TRAINJOB_RULES
from gangline.jobs.training.runtime_jobs import is_gpu, not_served, read_mpi, read_order, read_roles
from gangline.jobs.training.runtime_patch import merged

Obj = dict[str, Any]

RUNTIME_NOT_FOUND: Final = "TrainingRuntimeNotFound"
runtime_retry_s: Final = 5.0
schedule_timeout_s: Final = 60
"""Of ``podGroupPolicy.coscheduling`` that says none."""
BACKOFF_LIMIT: Final = 6
"""Of a Job that says none."""
_COMPLETE: Final = "Complete"


def reconcile(
    read: ReadTrainJob,
    observed: ObservedChildren,
    now: datetime,
    *,
    raw_status: Any = None,
    settings: Settings = Settings(),  # noqa: B008 - a frozen value
) -> Plan:
    """Return what is to be done for one TrainJob now."""
    runtime = find_runtime(read.spec.runtime_ref, observed.runtimes)
    if runtime is None and not read.errors and not read.status.completion_time:
        ref = read.spec.runtime_ref
        message = f"spec.runtimeRef: there is no {ref.kind} `{ref.name}`; kubectl get clustertrainingruntimes"
        told = () if read.spec.suspend else (Emit("Warning", RUNTIME_NOT_FOUND, message),)
        return Plan(warnings=told, requeue_after_s=runtime_retry_s)
    translated = training_job_of(read, runtime)
    job = replace(translated.job, status_endpoint=settings.status_endpoint)
    passed_over = [*translated.warnings, *_passed_over(runtime or {}, settings)]
    translated = replace(translated, job=job, warnings=passed_over)
    return family.reconcile(
        TRAINJOB_RULES, translated, observed, now, raw_status=raw_status, settings=settings
    )


def find_runtime(ref: RuntimeRef, runtimes: Mapping[tuple[str, str], Runtime]) -> Obj | None:
    """Return the spec of a runtime: the cluster's, else the one of that name that comes with Gangline."""
    found = runtimes.get((ref.kind, ref.name))
    if found is not None:
        return found.spec
    for runtime in bundled_runtimes():
        if (runtime["kind"], runtime["metadata"]["name"]) == (ref.kind, ref.name):
            spec: Obj = runtime["spec"]
            return spec
    return None


def training_job_of(read: ReadTrainJob, found: Obj | None) -> ReadTrainingJob:
    """Return a TrainJob and its runtime's spec as one training job, with what is wrong with either.

    Of a runtime that is not there nothing is said: the job is broken, or over.
    """
    spec, runtime = read.spec, found or {}
    for patch in spec.runtime_patches:
        runtime = merged(runtime, patch.training_runtime_spec)
    policy = {name: value for name, value in (runtime.get("mlPolicy") or {}).items() if value is not None}
    jobset = (runtime.get("template") or {}).get("spec") or {}
    roles, wrong = read_roles(spec, policy, jobset)
    order, disordered = read_order(jobset)
    of_runtime = [*not_served(policy, jobset), *wrong, *disordered] if found is not None else []
    errors = [*read.errors, *of_runtime]
    failures = jobset.get("failurePolicy")
    limits = [
        ((job.get("template") or {}).get("spec") or {}).get("backoffLimit", BACKOFF_LIMIT)
        for job in jobset.get("replicatedJobs") or []
    ]
    limit = max(limits, default=BACKOFF_LIMIT)
    metadata = read.metadata
    if failures is not None:
        limit = int(failures.get("maxRestarts") or 0)
        metadata = replace(metadata, annotations={**metadata.annotations, ON_WORKER_FAILURE: "restart-gang"})
    gang = (runtime.get("podGroupPolicy") or {}).get("coscheduling")
    job = TrainingJob(
        metadata=metadata,
        spec=spec,
        run_policy=TrainingRunPolicy(
            clean_pod_policy="Running",
            active_deadline_seconds=spec.active_deadline_seconds,
            backoff_limit=limit,
            suspend=spec.suspend,
            managed_by=None if spec.managed_by == MANAGED_BY_US else spec.managed_by,
            scheduling_policy=SchedulingPolicy(
                schedule_timeout_seconds=None
                if gang is None
                else gang.get("scheduleTimeoutSeconds", schedule_timeout_s),
                queue=metadata.annotations.get("scheduling.volcano.sh/queue-name", ""),
            ),
        ),
        roles=roles,
        status=_status(read, roles),
        processes=_processes(spec.trainer, roles) if "torch" in policy else "",
        mpi=read_mpi(spec, policy, roles),
        order=order,
    )
    return ReadTrainingJob(job, errors, read.warnings)


def _passed_over(runtime: Obj, settings: Settings) -> list[FieldError]:
    """Return what a runtime asks of a scheduler of gangs and nobody here does; the operator chooses it."""
    at, policy = "runtime.spec.podGroupPolicy", runtime.get("podGroupPolicy") or {}
    if policy and not settings.gang_scheduling:
        return [FieldError("NotSupported", at, "pods are placed one by one without --gang-scheduling")]
    if (policy.get("volcano") or {}).get("networkTopology") is None:
        return []
    return [FieldError("NotSupported", f"{at}.volcano.networkTopology", "is not handed on to the scheduler")]


def _processes(trainer: Trainer, roles: Mapping[str, TrainingReplicaSpec]) -> str:
    """Return how many processes torchrun starts in each pod: ``auto`` only where GPUs can be counted."""
    if trainer.num_proc_per_node:
        return str(trainer.num_proc_per_node)
    containers = roles[NODE].containers if NODE in roles else []
    resources = next((one.get("resources") for one in containers if one.get("name") == NODE), None) or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    if any(map(is_gpu, (*limits, *requests))):
        return "auto"
    text = str(limits.get("cpu") or requests.get("cpu") or "1")
    return str(max(int(text), 1)) if text.isdigit() else "1"


def _status(read: ReadTrainJob, roles: Mapping[str, TrainingReplicaSpec]) -> TrainingJobStatus:
    """Return the status as the family keeps it: it has conditions more, which follow from the pods."""
    status = read.status
    conditions = [
        replace(one, type=SUCCEEDED if one.type == _COMPLETE else one.type)
        for one in status.conditions
        if one.type in (SUSPENDED, _COMPLETE, FAILED)
    ]
    is_rejected = not status.start_time and [one.reason for one in conditions] == [family.VALIDATION_ERROR]
    if status.start_time or (conditions and not is_rejected):
        conditions.insert(0, Condition(type=CREATED, status="True", reason=CREATED))
    counts = {one.get("name"): one for one in status.jobs_status}
    return TrainingJobStatus(
        conditions=conditions,
        replica_statuses={
            type_: TrainingReplicaStatus(
                active=(role.replicas or 0) * bool(counts[type_].get("active")),
                succeeded=(role.replicas or 0) * bool(counts[type_].get("succeeded")),
            )
            for type_, role in roles.items()
            if type_ in counts
        },
        start_time=status.start_time,
        completion_time=status.completion_time,
        restarts=status.restarts,
        last_restart_time=status.last_restart_time,
        restarting_pods=status.restarting_pods,
    )
