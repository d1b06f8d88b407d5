"""What an MPIJob wants: ``reconcile(job, observed, now) -> Plan``.

Level-based: the whole desired state is worked out every time, nothing depends on which event came. Names,
labels, reasons and messages are upstream's; the places where upstream goes wrong and this does not are
listed in ``docs/compatibility.md``.

Reading order: ``reconcile``, ``classify`` (what is there), ``phases.TRANSITIONS`` (which phase that is),
``_ensure`` (what must be), ``_after_end`` (what must go).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from gangline.api.core import Job, Pod, find_condition, is_true
from gangline.api.mpijob import LAUNCHER, MANAGED_BY_US, WORKER, MPIJob, ReplicaStatus
from gangline.api.mpijob_reading import ReadJob
from gangline.api.resources import JOBS, PODS
from gangline.clock import parse_time
from gangline.jobs.children import ensure_config_map, ensure_secret, ensure_service
from gangline.jobs.conditions import FAILED, cut, has_finished
from gangline.jobs.failure import WORKER_LOST, FailedCondition
from gangline.jobs.gang import (
    NOT_SERVED,
    delete_pod_group,
    ensure_pod_group,
    explain_not_served,
    scheduler_verdict,
)
from gangline.jobs.launcher_edit import edited_event, is_edited
from gangline.jobs.launcher_replacement import rejection_events, replacement_wait_s
from gangline.jobs.mpijob_gang import gang_of_mpijob, mpijob_gang_warnings
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.observed_job import ObservedJob, classify, delete_outdated
from gangline.jobs.phases import count_launcher, enter_phase, lost_workers
from gangline.jobs.plan import Action, Create, Delete, Emit, Patch, Plan
from gangline.jobs.pods import build_launcher, build_worker, resume_patch
from gangline.jobs.remote_access import with_transport
from gangline.jobs.settings import Settings
from gangline.jobs.status import StatusDraft, was_created
from gangline.jobs.waiting import late_end, note_waiting, why_waits
from gangline.workloads.pending import PendingReason

VALIDATION_ERROR = "ValidationError"
FIELDS_IGNORED = "FieldsIgnored"
blocked_retry_s = 5.0
leftover_retry_s = 1.0
suspended_status_age_s = 1.5
"""A client that makes a suspended job and lets it go at once writes to the version that it made: the first
status must not come between. Creation times are whole seconds, so that this is 0.5 to 1.5 s."""
_END_NOW_S = 1
"""Deadline that ends a launcher whose workers are gone: its Job fails with DeadlineExceeded."""


def reconcile(
    read: ReadJob,
    observed: ObservedChildren,
    now: datetime,
    *,
    raw_status: Any = None,
    settings: Settings = Settings(),  # noqa: B008 - a frozen value
) -> Plan:
    """Return what is to be done for one MPIJob now; an empty plan when all is as it should be.

    Args:
        read: the job after defaulting, and its errors.
        observed: the objects that carry its label.
        now: the time for condition changes.
        raw_status: the status as it is stored, to find out whether it changes.
        settings: what holds for every job of the operator.

    Cost: about 150 microseconds for a job of 4 workers; O(workers).
    """
    job = with_transport(read.job, settings)
    if job.spec.run_policy.managed_by not in (None, MANAGED_BY_US) or job.metadata.deletion_timestamp:
        return Plan()
    draft = StatusDraft(job, now)
    if read.errors and not was_created(job):
        return _reject(read, draft, raw_status)
    if not was_created(job) and _is_rejected(job):
        draft.forget_failure()
    observed_job = classify(job, observed, settings)
    draft.created(has_launcher=observed_job.launcher is not None or _may_launch(observed_job))
    warnings = _warnings(read, observed_job, draft)
    launcher_wait_s = replacement_wait_s(job, observed_job.launcher, observed_job.launcher_pods, now)
    late_s = None
    if not draft.is_finished:
        phase = enter_phase(observed_job, draft, launcher_wait_s)
        late, late_s = late_end(observed.pods.values(), now)
        note_waiting(draft, phase, late or _why_waits(observed_job))
        warnings += [] if draft.is_finished else rejection_events(observed_job.launcher_pods)
        warnings += _lost_warnings(observed_job, draft)
    if draft.is_finished:
        stages = _after_end(observed_job, draft)
        if not has_finished(job.status.conditions):
            stages = []  # the end is written down before anything goes that tells of it
    elif (
        read.errors or observed_job.foreign or observed_job.has_leftovers or not _is_open(observed_job, draft)
    ):
        stages = []
    elif observed_job.outdated:
        stages = [delete_outdated(observed_job)]
    else:
        stages = _ensure(observed_job, draft)
    is_held = observed_job.foreign or _lacks_pod_groups(observed_job)
    if job.is_suspended and launcher_wait_s is not None and launcher_wait_s <= 0:
        launcher_wait_s = None  # it is replaced once the job goes on
    retry_s = (
        blocked_retry_s if is_held else leftover_retry_s if observed_job.has_leftovers else launcher_wait_s
    )
    retry_s = min((wait_s for wait_s in (retry_s, late_s) if wait_s is not None), default=None)
    plan = _plan(draft, raw_status, stages, warnings, None if draft.is_finished else retry_s)
    early_s = _too_early_s(job, now) if plan.is_first and job.is_suspended else 0.0
    if not early_s:
        return plan
    return replace(plan, status=None, status_patch={}, events=(), counts=(), requeue_after_s=early_s)


def _too_early_s(job: MPIJob, now: datetime) -> float:
    """Return for how long the first status of a suspended job is to be held back; 0 where clocks differ."""
    made = job.metadata.creation_timestamp
    age_s = (now - parse_time(made)).total_seconds() if made else suspended_status_age_s
    return max(0.0, suspended_status_age_s - age_s) if age_s >= 0 else 0.0


def _warnings(read: ReadJob, observed_job: ObservedJob, draft: StatusDraft) -> list[Emit]:
    """Return what is told at once, and only once as long as it holds."""
    warnings = list(observed_job.foreign)
    if read.errors:
        warnings.append(_validation_event(read))
    if read.warnings:
        listed = ", ".join(str(warning) for warning in read.warnings)
        warnings.append(Emit("Warning", FIELDS_IGNORED, cut(f"Passed over: {listed}")))
    if observed_job.dialect and not draft.is_finished:
        warnings += mpijob_gang_warnings(observed_job.job, observed_job.dialect, observed_job.observed)
    return warnings


def _why_waits(observed_job: ObservedJob) -> PendingReason | None:
    pods = [*observed_job.launcher_pods, *observed_job.workers.values()]
    return why_waits(scheduler_verdict(observed_job.pod_group), pods, observed_job.observed.refused)


def _lost_warnings(observed_job: ObservedJob, draft: StatusDraft) -> list[Emit]:
    """Return what is told of workers that are made again one by one."""
    job, lost = observed_job.job, lost_workers(observed_job)
    is_restarted = draft.restarts != job.status.restarts
    if lost is None or draft.is_finished or is_restarted or job.restarts_gang or job.is_suspended:
        return []
    return [Emit("Warning", WORKER_LOST, cut(f"{lost.message}; what is missing is created again"))]


def _is_open(observed_job: ObservedJob, draft: StatusDraft) -> bool:
    """Whether the job's objects may be made now."""
    if _lacks_pod_groups(observed_job):
        assert observed_job.dialect
        draft.blocked(NOT_SERVED, explain_not_served(observed_job.dialect))
        return False
    draft.unblocked()
    # A restart is written down before anything of it is done.
    status = observed_job.job.status
    return (draft.restarts, draft.launcher_replacements) == (status.restarts, status.launcher_replacements)


def _lacks_pod_groups(observed_job: ObservedJob) -> bool:
    return observed_job.dialect is not None and not observed_job.observed.serves_pod_groups


def _plan(
    draft: StatusDraft,
    raw_status: Any,
    stages: list[list[Action]],
    warnings: list[Emit],
    requeue_after_s: float | None,
) -> Plan:
    difference = draft.difference(raw_status)
    return Plan(
        stages=tuple(tuple(stage) for stage in stages if stage),
        status=draft.to_wire() if difference else None,
        status_patch=difference,
        events=tuple(draft.events),
        warnings=tuple(warnings),
        counts=tuple(draft.counts),
        requeue_after_s=requeue_after_s,
    )


# A job that breaks rules.


def _reject(read: ReadJob, draft: StatusDraft, raw_status: Any) -> Plan:
    """An invalid job fails with every error; mending its spec starts it."""
    if not draft.is_finished:
        draft.failed(FailedCondition(VALIDATION_ERROR, _validation_event(read).message))
    return _plan(draft, raw_status, [], [], None)


def _validation_event(read: ReadJob) -> Emit:
    listed = ", ".join(str(error) for error in read.errors)
    return Emit("Warning", VALIDATION_ERROR, cut(f"Found validation errors: {listed}"))


def _is_rejected(job: MPIJob) -> bool:
    failed = find_condition(job.status.conditions, FAILED)
    return failed is not None and failed.reason == VALIDATION_ERROR


# What must be.


def _ensure(observed_job: ObservedJob, draft: StatusDraft) -> list[list[Action]]:
    job, names, observed = observed_job.job, observed_job.names, observed_job.observed
    config_map = observed.config_maps.get(names.config_map)
    first: list[Action] = [
        *ensure_service(job, observed.services.get(names.service)),
        *ensure_config_map(job, config_map, observed_job.running, observed_job.settings),
        *ensure_secret(job, observed.secrets.get(names.secret)),
    ]
    if is_edited(observed_job):
        return [[*first, *_delete_edited(observed_job, draft)]]
    if job.is_suspended:
        return [
            [*first, *_suspend_launcher(observed_job, draft)],
            [
                *_delete_workers(observed_job, job.spec.run_policy.clean_pod_policy),
                *delete_pod_group(observed_job.pod_group, observed_job.dialect),
            ],
        ]
    workers = _ensure_workers(observed_job)
    if observed_job.launcher is None:
        last = [[*workers, *_create_launcher(observed_job, draft)]]
    else:
        last = [workers, *_resume_launcher(observed_job)]
    if observed_job.dialect is None:
        return [[*first, *last[0]], *last[1:]]
    gang = gang_of_mpijob(job)
    # The scheduler must know the gang before its first pod.
    return [
        [*first, *ensure_pod_group(gang, observed_job.pod_group, observed_job.dialect, observed.priorities)],
        *last,
    ]


def _ensure_workers(observed_job: ObservedJob) -> list[Action]:
    job, domain = observed_job.job, observed_job.settings.cluster_domain
    actions: list[Action] = [
        Create(PODS, build_worker(job, index, domain, observed_job.dialect))
        for index in range(job.worker_count)
        if index not in observed_job.workers
    ]
    for index, pod in observed_job.workers.items():
        if (index >= job.worker_count or pod.is_refused) and not pod.metadata.deletion_timestamp:
            actions.append(_delete_pod(pod))
    return actions


def _may_launch(observed_job: ObservedJob) -> bool:
    """Whether the launcher may be made, which may have to wait for its workers."""
    job = observed_job.job
    return not job.launcher_waits or (not job.is_suspended and observed_job.is_ready)


def _create_launcher(observed_job: ObservedJob, draft: StatusDraft) -> list[Action]:
    job = observed_job.job
    if not _may_launch(observed_job):
        return []
    launcher = job.spec.replica(LAUNCHER)
    if launcher and (launcher.template.get("spec") or {}).get("restartPolicy"):
        message = "Restart policy in pod template overridden by restart policy in replica spec"
        draft.events.append(Emit("Warning", "SetPodTemplateRestartPolicy", message))
    return [Create(JOBS, build_launcher(job, observed_job.dialect))]


def _delete_edited(observed_job: ObservedJob, draft: StatusDraft) -> list[Action]:
    """Delete a launcher that never ran: the next one is of the template of now."""
    assert observed_job.launcher is not None
    meta = observed_job.launcher.metadata
    draft.events.append(edited_event(meta.name))
    return [Delete(JOBS, meta.namespace, meta.name, meta.uid)]


def _suspend_launcher(observed_job: ObservedJob, draft: StatusDraft) -> list[Action]:
    """Hold the launcher before its workers go, so that it does not see them die."""
    if observed_job.launcher is None:
        return _create_launcher(observed_job, draft)
    if observed_job.launcher.spec.suspend:
        return []
    return [
        Patch(JOBS, observed_job.names.namespace, observed_job.names.launcher, {"spec": {"suspend": True}})
    ]


def _resume_launcher(observed_job: ObservedJob) -> list[list[Action]]:
    """Release a held launcher; Kubernetes lets its template change only with no start time."""
    launcher, job, names = observed_job.launcher, observed_job.job, observed_job.names
    assert launcher is not None
    if not launcher.spec.suspend:
        return []
    if job.launcher_waits and not observed_job.is_ready:
        return []
    stages: list[list[Action]] = []
    if launcher.status.start_time:
        clear = {"status": {"startTime": None}}
        stages.append([Patch(JOBS, names.namespace, names.launcher, clear, subresource="status")])
    release = resume_patch(job, launcher.spec.template, observed_job.dialect)
    stages.append([Patch(JOBS, names.namespace, names.launcher, release)])
    return stages


# What must go.


def _after_end(observed_job: ObservedJob, draft: StatusDraft) -> list[list[Action]]:
    """Workers go as the policy says; a launcher that still runs is ended."""
    stage = [*delete_outdated(observed_job), *delete_pod_group(observed_job.pod_group, observed_job.dialect)]
    launcher = observed_job.launcher
    count_launcher(observed_job, draft)
    change = _end_launcher(launcher, observed_job.job) if launcher else None
    if change:
        stage.append(Patch(JOBS, observed_job.names.namespace, observed_job.names.launcher, {"spec": change}))
    policy = observed_job.job.spec.run_policy.clean_pod_policy
    if policy in ("All", "Running"):
        stage += _delete_workers(observed_job, policy)
        draft.replicas[WORKER] = ReplicaStatus()
    return [stage]


def _end_launcher(launcher: Job, job: MPIJob) -> dict[str, Any] | None:
    """Return the change that ends a launcher which still runs, or sets the time after which it goes.

    That time is not set before the end is written down: a launcher that was gone by then would be run again.
    """
    if not _is_over(launcher):
        must_end = launcher.spec.active_deadline_seconds != _END_NOW_S and not launcher.spec.suspend
        return {"activeDeadlineSeconds": _END_NOW_S} if must_end else None
    ttl_s = job.spec.run_policy.ttl_seconds_after_finished
    is_set = ttl_s is None or launcher.spec.ttl_seconds_after_finished == ttl_s
    return None if is_set or launcher.metadata.deletion_timestamp else {"ttlSecondsAfterFinished": ttl_s}


def _is_over(launcher: Job) -> bool:
    return any(is_true(launcher.status.conditions, type_) for type_ in ("Complete", "Failed"))


def _delete_workers(observed_job: ObservedJob, policy: str | None) -> list[Action]:
    """Return the deletions; policy ``Running`` keeps finished pods for their logs."""
    keep = ("Succeeded", "Failed", "Unknown") if policy == "Running" else ()
    return [
        _delete_pod(pod)
        for pod in observed_job.workers.values()
        if pod.status.phase not in keep and not pod.metadata.deletion_timestamp
    ]


def _delete_pod(pod: Pod) -> Action:
    return Delete(PODS, pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
