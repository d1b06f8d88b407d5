"""TrainJob: what it and its runtime ask for together, as a training job of the family.

The runtime's JobSet template is read and no JobSet is made: pods are named and found as those of a JobSet
would be. Where it asks for what only JobSet does, a JobSet runs the job; a cluster without JobSet refuses it
by the field's name. Source: Kubeflow Trainer 2.3.0.
"""

from __future__ import annotations

import dataclasses
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
from gangline.jobs.observed import ObservedChildren, is_controlled_by
from gangline.jobs.plan import Emit, Plan
from gangline.jobs.settings import Settings
from gangline.jobs.training import reconcile as family
from gangline.jobs.training.job_set_run import has_own_pods
from gangline.jobs.training.job_set_run import reconcile as by_job_set
from gangline.jobs.training.rules import TRAINJOB_RULES
from gangline.jobs.training.runtime_jobs import (
    is_gpu,
    job_set_fields,
    not_served,
    read_mpi,
    read_order,
    read_roles,
)
from gangline.jobs.training.runtime_patch import merged

Obj = dict[str, Any]

RUNTIME_NOT_FOUND: Final = "TrainingRuntimeNotFound"
runtime_retry_s: Final = 5.0
job_set_retry_s: Final = 10.0
JOB_SET_GUIDE: Final = "https://jobset.sigs.k8s.io/docs/installation"
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
    own = observed.job_sets.get(read.metadata.name)
    is_run_by_job_set = own is not None and is_controlled_by(own.metadata, read.metadata.uid)
    if runtime is None and not (read.errors or read.status.completion_time or is_run_by_job_set):
        ref = read.spec.runtime_ref
        message = f"spec.runtimeRef: there is no {ref.kind} `{ref.name}`; kubectl get clustertrainingruntimes"
        told = () if read.spec.suspend else (Emit("Warning", RUNTIME_NOT_FOUND, message),)
        return Plan(warnings=told, requeue_after_s=runtime_retry_s)
    runtime = _patched(read, runtime)
    translated = training_job_of(read, runtime)
    job = replace(translated.job, status_endpoint=settings.status_endpoint)
    passed_over = [*translated.warnings, *_passed_over(runtime, settings)]
    translated = replace(translated, job=job, warnings=passed_over)
    template = runtime.get("template") or {}
    fields = tuple(job_set_fields(template.get("spec") or {}))
    has_none = not has_own_pods(job, observed) or job.is_suspended
    may = bool(fields) and observed.serves_job_sets and has_none and not translated.errors
    if is_run_by_job_set or may:
        return by_job_set(
            *(translated, template, fields, observed, now), raw_status=raw_status, settings=settings
        )
    needed = [FieldError("NotSupported", field, _needs_job_set(observed)) for field in fields]
    translated = replace(translated, errors=[*translated.errors, *needed])
    plan = family.reconcile(
        TRAINJOB_RULES, translated, observed, now, raw_status=raw_status, settings=settings
    )
    again_s = job_set_retry_s if needed and not observed.serves_job_sets else None
    return plan if again_s is None else dataclasses.replace(plan, requeue_after_s=again_s)


def _needs_job_set(observed: ObservedChildren) -> str:
    if observed.serves_job_sets:
        return "is done by JobSet alone, once the job's own pods are gone: suspend the job and resume it"
    return (
        "is done by JobSet alone, which this cluster does not have: install it "
        f"({JOB_SET_GUIDE}), or take the field out of the runtime"
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


def _patched(read: ReadTrainJob, runtime: Obj | None) -> Obj:
    """Return a runtime's spec with the changes for this job; an empty one where it is not there."""
    if runtime is None:
        return {}
    for patch in read.spec.runtime_patches:
        runtime = merged(runtime, patch.training_runtime_spec)
    return runtime


def training_job_of(read: ReadTrainJob, runtime: Obj) -> ReadTrainingJob:
    """Return a TrainJob and its runtime's spec as one training job, with what is wrong with either.

    Of a runtime that is not there, an empty one, nothing is said: the job is broken, or over.
    """
    spec = read.spec
    policy = {name: value for name, value in (runtime.get("mlPolicy") or {}).items() if value is not None}
    jobset = (runtime.get("template") or {}).get("spec") or {}
    roles, wrong = read_roles(spec, policy, jobset)
    order, disordered = read_order(jobset)
    of_runtime = [*not_served(policy, jobset), *wrong, *disordered] if runtime else []
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
        subdomain=str((jobset.get("network") or {}).get("subdomain") or ""),
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
