"""A TrainJob that a JobSet runs: what is to be made, and how far it is by the JobSet's word. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from gangline.api.core import is_true
from gangline.api.resources import JOB_SETS, PODS, SERVICES
from gangline.api.trainer.job_set import COMPLETED, JobSet
from gangline.api.training.job import TrainingJob
from gangline.api.training.kinds import TRAINJOB
from gangline.api.training.reading import ReadTrainingJob
from gangline.errors import FieldError
from gangline.jobs.conditions import CREATED, cut
from gangline.jobs.gang import GangedJob, delete_pod_group, dialect_of, ensure_pod_group
from gangline.jobs.names import REPLICA_TYPE_LABEL
from gangline.jobs.observed import ObservedChildren, is_controlled_by
from gangline.jobs.plan import Action, Create, Delete, Emit, Patch, Plan, Telling
from gangline.jobs.settings import Settings
from gangline.jobs.training.failures import seconds_left
from gangline.jobs.training.job_set import DIGEST_ANNOTATION, build_job_set, starts_whole
from gangline.jobs.training.objects import gang_of_training_job
from gangline.jobs.training.rules import TRAINJOB_RULES
from gangline.jobs.training.torch_node import TrainJobDraft
from gangline.workloads.suspension import why_suspended

Obj = dict[str, Any]

JOB_SET_USED: Final = "JobSetUsed"
"""Reason of the event that says for which fields."""
FIELDS_IGNORED: Final = "FieldsIgnored"


def own_job_set(job: TrainingJob, observed: ObservedChildren) -> JobSet | None:
    """Return the JobSet that runs a job; None where none does."""
    found = observed.job_sets.get(job.metadata.name)
    return found if found and is_controlled_by(found.metadata, job.metadata.uid) else None


def has_own_pods(job: TrainingJob, observed: ObservedChildren) -> bool:
    """Whether pods run the job that the operator has made itself."""
    return any(is_controlled_by(pod.metadata, job.metadata.uid) for pod in observed.pods.values())


def reconcile(
    read: ReadTrainingJob,
    template: Obj,
    fields: tuple[str, ...],
    observed: ObservedChildren,
    now: datetime,
    *,
    raw_status: Any,
    settings: Settings,
) -> Plan:
    """Return what is to be done for a job that a JobSet runs.

    Args:
        read: the job and its runtime; a job that was never started has no errors here.
        template: of the JobSet, empty where the runtime is gone.
        fields: of the runtime that only JobSet does.
        observed: the objects that carry the job's label.
        now: the time for conditions, deadline and time to live.
        raw_status: the status as it is stored.
        settings: what holds for every job of the operator.
    """
    job, found = read.job, own_job_set(read.job, observed)
    draft = TrainJobDraft(TRAINJOB, job, now)
    known = (raw_status or {}).get("jobSetFor")
    draft.job_set_for = tuple(known) if known and (draft.is_finished or not template) else fields
    was_over = draft.is_finished
    if not is_true(job.status.conditions, CREATED):
        draft.forget_failure()
    draft.created()
    _follow(draft, job, found, raw_status)
    if not draft.is_finished:
        _advance(draft, job, found, observed, now)
    kept_s = (template.get("spec") or {}).get("ttlSecondsAfterFinished")
    left_s = seconds_left(draft.completion_time, kept_s, now)
    if draft.is_finished:
        # The end is written down before anything goes that tells of it.
        is_kept = found is not None and found.end is not None and (left_s is None or left_s > 0)
        stages = [_remove(None if is_kept else found), _remove_gang(job, observed, settings)]
        stages = stages if was_over else []
    elif job.is_suspended:
        left_s = None
        stages = [[*_hold(job, found), *_remove_own(job, observed)]]
        stages.append(_remove_gang(job, observed, settings))
    else:
        left_s = seconds_left(draft.start_time, job.run_policy.active_deadline_seconds, now)
        stages = _ensure(job, found, template, observed, fields, settings) if template else []
    difference = draft.difference(raw_status)
    return Plan(
        stages=tuple(tuple(stage) for stage in stages if stage),
        status=draft.to_wire() if difference else None,
        status_patch=difference,
        events=tuple(draft.events),
        warnings=tuple(_warnings(read, job, template, settings)),
        counts=tuple(draft.counts),
        requeue_after_s=None if left_s is None else max(left_s, 0.0),
    )


def _follow(draft: TrainJobDraft, job: TrainingJob, found: JobSet | None, raw_status: Any) -> None:
    """Take over what the JobSet counts; what it has counted last once it is gone."""
    if found is None:
        known = (raw_status or {}).get("jobsStatus")
        draft.jobs_status = known if isinstance(known, list) else []
        return
    order = {type_: index for index, type_ in enumerate(job.roles)}
    counted = found.status.replicated_jobs_status
    draft.jobs_status = sorted(counted, key=lambda one: order.get(str(one.get("name")), len(order)))
    draft.restarts = found.status.restarts


def _advance(
    draft: TrainJobDraft, job: TrainingJob, found: JobSet | None, observed: ObservedChildren, now: datetime
) -> None:
    """Bring the status of a job that is not over up to date: the first rule that holds decides."""
    end = found.end if found and not found.metadata.deletion_timestamp else None
    if job.is_suspended:
        draft.suspended(why_suspended(job.metadata.annotations))
        return
    draft.resumed()
    left_s = seconds_left(draft.start_time, job.run_policy.active_deadline_seconds, now)
    if end is not None and end.type == COMPLETED:
        draft.succeeded(end.message)
    elif end is not None:
        draft.failed(end.message, reason=end.reason)
    elif observed.rejected:
        draft.failed("; ".join(observed.rejected), event="Warning")
    elif left_s is not None and left_s <= 0:
        name = job.metadata.name
        draft.past_deadline(f"Job {name} has failed because it was active longer than specified deadline")


def _ensure(
    job: TrainingJob,
    found: JobSet | None,
    template: Obj,
    observed: ObservedChildren,
    fields: tuple[str, ...],
    settings: Settings,
) -> list[list[Action]]:
    """Return what makes the JobSet run, and what its pods mount before it."""
    before: list[Action] = [*TRAINJOB_RULES.objects(job, observed), *_remove_own(job, observed)]
    dialect = dialect_of(settings.gang_scheduling)
    if dialect is not None and starts_whole(job, template, dialect):
        group = _gang(job, observed)
        before += ensure_pod_group(
            group, observed.pod_groups.get(group.metadata.name), dialect, observed.priorities
        )
    wanted = build_job_set(job, template, settings.cluster_domain, dialect)
    meta = job.metadata
    if found is None:
        message = f"JobSet {meta.name} runs this job, for only JobSet does {', '.join(fields)}"
        told = Telling(Emit("Normal", JOB_SET_USED, cut(message)), f"FailedCreate{JOB_SETS.kind}")
        return [before, [Create(JOB_SETS, wanted, told)]]
    if found.metadata.deletion_timestamp or not found.spec.suspend:
        return [before]
    if _is_edited(found, wanted):
        return [before, _remove(found)]  # made anew of what the job is now
    return [before, [Patch(JOB_SETS, meta.namespace, meta.name, {"spec": {"suspend": False}})]]


def _hold(job: TrainingJob, found: JobSet | None) -> list[Action]:
    """Return what makes the JobSet of a suspended job hold no pods."""
    if found is None or found.metadata.deletion_timestamp or found.spec.suspend:
        return []
    meta = job.metadata
    return [Patch(JOB_SETS, meta.namespace, meta.name, {"spec": {"suspend": True}})]


def _is_edited(found: JobSet, wanted: Obj) -> bool:
    digest: str = wanted["metadata"]["annotations"][DIGEST_ANNOTATION]
    return found.metadata.annotations.get(DIGEST_ANNOTATION) != digest


def _gang(job: TrainingJob, observed: ObservedChildren) -> GangedJob:
    """Return the gang of a job; pods that have succeeded are waited for no more."""
    members = {type_.lower() for type_ in job.roles if type_ not in job.order.preludes}
    done = [
        pod
        for pod in observed.pods.values()
        if pod.status.phase == "Succeeded" and pod.metadata.labels.get(REPLICA_TYPE_LABEL) in members
    ]
    return gang_of_training_job(TRAINJOB_RULES, job, len(done))


def _remove(found: JobSet | None) -> list[Action]:
    if found is None or found.metadata.deletion_timestamp:
        return []
    meta = found.metadata
    return [Delete(JOB_SETS, meta.namespace, meta.name, meta.uid)]


def _remove_gang(job: TrainingJob, observed: ObservedChildren, settings: Settings) -> list[Action]:
    found = observed.pod_groups.get(job.metadata.name)
    if found is None or not is_controlled_by(found.metadata, job.metadata.uid):
        return []
    return delete_pod_group(found, dialect_of(settings.gang_scheduling))


def _remove_own(job: TrainingJob, observed: ObservedChildren) -> list[Action]:
    """Return what removes pods and Service that the operator made before the job needed a JobSet."""
    kinds = ((PODS, observed.pods), (SERVICES, observed.services))
    return [
        Delete(resource, one.metadata.namespace, one.metadata.name, one.metadata.uid)
        for resource, objects in kinds
        for one in objects.values()
        if is_controlled_by(one.metadata, job.metadata.uid) and not one.metadata.deletion_timestamp
    ]


def _warnings(read: ReadTrainingJob, job: TrainingJob, template: Obj, settings: Settings) -> list[Emit]:
    listed = [str(one) for one in (*read.errors, *read.warnings)]
    dialect = dialect_of(settings.gang_scheduling)
    if dialect is not None and template and not starts_whole(job, template, dialect):
        rule = (
            "pods of a JobSet cannot name a group of Kubernetes' own"
            if dialect.is_kubernetes
            else "jobs that start one after another are no gang of all"
        )
        listed.append(str(FieldError("NotSupported", "runtime.spec.podGroupPolicy", rule)))
    return [Emit("Warning", FIELDS_IGNORED, cut(f"Passed over: {', '.join(listed)}"))] if listed else []
