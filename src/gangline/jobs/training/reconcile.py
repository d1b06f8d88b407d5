"""What a training job wants: ``reconcile(rules, read, observed, now) -> Plan``, for every kind of the family.

Level-based: the whole desired state is worked out every time. Names, labels, reasons and messages are the
training operator's; where it goes wrong and this does not, `docs/compatibility.md` says so.

Reading order: ``reconcile``, ``_advance`` (how the job stands), ``_ensure`` (what must be), ``_after_end``
(what must go).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from gangline.api.core import find_condition, is_true
from gangline.api.pod_group import PodGroup
from gangline.api.resources import PODS, SERVICES, Resource
from gangline.api.training.job import MANAGED_BY_US, TrainingJob
from gangline.api.training.reading import ReadTrainingJob
from gangline.jobs.conditions import CREATED, FAILED, RUNNING, SUCCEEDED, SUSPENDED, cut, has_finished
from gangline.jobs.gang import (
    NOT_SERVED,
    Dialect,
    delete_pod_group,
    dialect_of,
    ensure_pod_group,
    explain_not_served,
    gang_warnings,
    other_schedulers,
    scheduler_verdict,
)
from gangline.jobs.observed import ObservedChildren, is_controlled_by
from gangline.jobs.plan import Action, Create, Delete, Emit, Plan, Telling
from gangline.jobs.settings import Settings
from gangline.jobs.training.autoscaler import build_autoscaler, ensure_autoscaler
from gangline.jobs.training.failures import (
    FailedReplica,
    Fate,
    failed_replicas,
    is_past_backoff_limit,
    restart_pause_s,
    seconds_left,
)
from gangline.jobs.training.objects import build_replica_pod, gang_of_training_job, services_of
from gangline.jobs.training.replicas import (
    count_replicas,
    exit_code_of,
    may_start,
    sort_replicas,
)
from gangline.jobs.training.rules import TrainingRules
from gangline.jobs.waiting import late_end, note_waiting, why_waits
from gangline.workloads.suspension import why_suspended

VALIDATION_ERROR = "ValidationError"
FIELDS_IGNORED = "FieldsIgnored"
blocked_retry_s = 5.0


class _Scene:
    """One job, its rules and its objects; for one reconcile."""

    def __init__(
        self,
        rules: TrainingRules,
        read: ReadTrainingJob,
        observed: ObservedChildren,
        now: datetime,
        settings: Settings,
    ) -> None:
        self.rules, self.read, self.job = rules, read, read.job
        self.observed, self.now, self.settings = observed, now, settings
        self.draft = rules.draft(rules.kind, read.job, now)
        self.replicas = sort_replicas(rules.kind, read.job, observed)
        self.failed = list(failed_replicas(rules, self.replicas))
        self.late, self.late_s = late_end((pod for _, pod in self.replicas.all_pods()), now)
        self.dialect: Dialect | None = dialect_of(settings.gang_scheduling)

    @property
    def pod_group(self) -> PodGroup | None:
        found = self.observed.pod_groups.get(self.job.metadata.name)
        return found if found and is_controlled_by(found.metadata, self.job.metadata.uid) else None


def reconcile(
    rules: TrainingRules,
    read: ReadTrainingJob,
    observed: ObservedChildren,
    now: datetime,
    *,
    raw_status: Any = None,
    settings: Settings = Settings(),  # noqa: B008 - a frozen value
) -> Plan:
    """Return what is to be done for one job now; an empty plan when all is as it should be.

    Args:
        rules: of its kind.
        read: the job after defaulting, and its errors.
        observed: the objects that carry its label.
        now: the time for condition changes, deadline and time to live.
        raw_status: the status as it is stored, to find out whether it changes.
        settings: what holds for every job of the operator.

    Cost: O(replicas).
    """
    job = read.job
    if job.run_policy.managed_by not in (None, MANAGED_BY_US) or job.metadata.deletion_timestamp:
        return Plan()
    scene = _Scene(rules, read, observed, now, settings)
    draft, was_over = scene.draft, has_finished(job.status.conditions)
    was_created = is_true(job.status.conditions, CREATED)
    if read.errors and not was_created:
        if not draft.is_finished:
            draft.failed(_validation_event(scene).message, event="Warning", reason=_invalid(scene))
        return _plan(scene, raw_status, [], None)
    if not was_created and _is_rejected(scene):
        draft.forget_failure()
    draft.created()
    if not draft.is_finished:
        _advance(scene)
        _note_waiting(scene)
    if draft.is_finished:
        # The end is written down before anything goes that tells of it.
        stages = _after_end(scene) if was_over else []
        if job.run_policy.clean_pod_policy != "None":
            draft.removed()
    elif read.errors or not _is_open(scene):
        stages = []
    elif job.is_suspended:
        stages = [[*_delete_all(scene), *_delete_gang(scene), *_scale(scene)]]
    else:
        stages = _ensure(scene)
    return _plan(scene, raw_status, stages, _next_look_s(scene))


# How the job stands.


def _advance(scene: _Scene) -> None:
    """Bring the status of a job that is not over up to date: the first rule that holds decides."""
    job, draft, replicas = scene.job, scene.draft, scene.replicas
    if job.is_suspended:
        draft.restarting_pods = []
        draft.suspended(why_suspended(job.metadata.annotations))
        return
    draft.resumed()
    there = {pod.metadata.uid for _, pod in replicas.all_pods()}
    draft.restarting_pods = [uid for uid in draft.restarting_pods if uid in there]
    counted = count_replicas(scene.rules.kind, replicas)
    draft.count(counted)
    progress = scene.rules.progress(job, replicas, counted)
    if scene.observed.rejected:
        draft.failed("; ".join(scene.observed.rejected), event="Warning")
        return
    if progress.state == "Succeeded":
        draft.succeeded(progress.message)
        return
    if _is_past_deadline(scene):
        message = f"Job {job.metadata.name} has failed because it was active longer than specified deadline"
        draft.past_deadline(message)
        return
    if _fail(scene):
        return
    if progress.state == "Running" and not draft.restarting_pods:
        draft.running(progress.message)


def _note_waiting(scene: _Scene) -> None:
    draft, pods = scene.draft, [pod for _, pod in scene.replicas.all_pods()]
    # While others run, a pod that cannot be made again is what a job waits for.
    ends = (SUCCEEDED, FAILED, SUSPENDED, *(() if scene.late else (RUNNING,)))
    phases = [type_ for type_ in ends if is_true(draft.conditions, type_)]
    why = scene.late or why_waits(scheduler_verdict(scene.pod_group), pods, scene.observed.refused)
    note_waiting(draft, phases[0] if phases else "Waiting", why)


def _fail(scene: _Scene) -> bool:
    """End the job if its failed pods say so; else note which of them are made again."""
    job, draft = scene.job, scene.draft
    for fate in (Fate.PERMANENT, Fate.FATAL):
        failed = [one for one in scene.failed if one.fate is fate]
        if not failed:
            continue
        type_ = failed[0].type
        if fate is Fate.PERMANENT:
            message = f'job "{job.metadata.name}" is failing because "{type_}" replica(s) failed.'
            draft.failed(message, event="Warning")
        else:
            count = sum(one.type == type_ for one in failed)
            draft.failed(scene.rules.failure(job, type_, count))
        return True
    restarted = [one for one in scene.failed if one.fate is Fate.RESTARTED]
    fresh = [one for one in restarted if one.pod.metadata.uid not in draft.restarting_pods]
    count = min(len(fresh), 1) if job.restarts_gang else len(fresh)
    if is_past_backoff_limit(scene.replicas, draft.restarts + count):
        draft.failed(f"Job {job.metadata.name} has failed because it has reached the specified backoff limit")
        return True
    if fresh:
        gone = scene.replicas.all_pods() if job.restarts_gang else ((one.type, one.pod) for one in fresh)
        uids = [pod.metadata.uid for _, pod in gone]
        draft.restarting(_restart_message(job, fresh), count, uids)
    return False


def _restart_message(job: TrainingJob, restarted: list[FailedReplica]) -> str:
    type_ = restarted[0].type
    if job.is_v1beta2:
        count = sum(one.type == type_ for one in restarted)
        return f"TFJob {job.metadata.name} is restarting because {count} {type_} replica(s) failed."
    return f"job {job.metadata.name} is restarting because {type_} replica(s) failed."


def _is_past_deadline(scene: _Scene) -> bool:
    left_s = seconds_left(scene.draft.start_time, scene.job.run_policy.active_deadline_seconds, scene.now)
    return left_s is not None and left_s <= 0


def _next_look_s(scene: _Scene) -> float | None:
    """Return after how many seconds the job changes by the clock alone."""
    draft, policy = scene.draft, scene.job.run_policy
    if draft.is_finished:
        left_s = seconds_left(draft.completion_time, policy.ttl_seconds_after_finished, scene.now)
        return None if left_s is None else max(left_s, 0.0)
    if scene.job.is_suspended:
        return None
    if _lacks_pod_groups(scene):
        return blocked_retry_s
    left_s = seconds_left(draft.start_time, policy.active_deadline_seconds, scene.now)
    waits = [max(left_s, 0.0)] if left_s is not None else []
    waits += [pause_s] if (pause_s := _pause_s(scene)) else []
    waits += [scene.late_s] if scene.late_s is not None else []
    return min(waits, default=None)


def _pause_s(scene: _Scene) -> float:
    """Return the seconds until pods are made again; 0 when they may be."""
    pause_s = restart_pause_s(scene.job, scene.draft.restarts)
    return max(seconds_left(scene.draft.last_restart_time, int(pause_s), scene.now) or 0.0, 0.0)


def _is_open(scene: _Scene) -> bool:
    """Whether the job's objects may be made and deleted now."""
    if _lacks_pod_groups(scene):
        assert scene.dialect
        scene.draft.blocked(NOT_SERVED, explain_not_served(scene.dialect))
        return False
    scene.draft.unblocked()
    # A restart is written down before anything of it is done.
    return scene.draft.restarts == scene.job.status.restarts


def _lacks_pod_groups(scene: _Scene) -> bool:
    return scene.dialect is not None and not scene.observed.serves_pod_groups


def _plan(scene: _Scene, raw_status: Any, stages: list[list[Action]], requeue_after_s: float | None) -> Plan:
    draft = scene.draft
    difference = draft.difference(raw_status)
    return Plan(
        stages=tuple(tuple(stage) for stage in stages if stage),
        status=draft.to_wire() if difference else None,
        status_patch=difference,
        events=tuple(draft.events),
        warnings=tuple(_warnings(scene)),
        counts=tuple(draft.counts),
        requeue_after_s=requeue_after_s,
    )


# What is told as long as it holds.


def _warnings(scene: _Scene) -> list[Emit]:
    job, kind = scene.job, scene.rules.kind
    told = [_validation_event(scene)] if scene.read.errors else []
    listed = [str(warning) for warning in scene.read.warnings]
    if job.elastic_policy and job.elastic_policy.n_proc_per_node is not None:
        listed.append("spec.elasticPolicy.nProcPerNode is deprecated: use spec.nprocPerNode")
    if listed:
        told.append(Emit("Warning", FIELDS_IGNORED, cut(f"Passed over: {', '.join(listed)}")))
    verb = "Setted" if job.is_v1beta2 else "Set"
    if any((role.template.get("spec") or {}).get("restartPolicy") for role in job.roles.values()):
        message = "Restart policy in pod template will be overwritten by restart policy in replica spec"
        told.append(Emit("Warning", f"{verb}PodTemplateRestartPolicy", message))
    if scene.dialect and not scene.draft.is_finished and not find_condition(job.status.conditions, "Running"):
        gang = gang_of_training_job(scene.rules, job)
        told += gang_warnings(gang, scene.observed.priorities)
        if other_schedulers(gang, scene.dialect):
            message = (
                "Another scheduler is specified when gang-scheduling is enabled "
                "and it will not be overwritten"
            )
            told.append(Emit("Warning", f"{verb}PodTemplateSchedulerName", message))
    if scene.late and not (scene.draft.is_finished or job.is_suspended):
        told.append(Emit("Warning", scene.late.kind, cut(str(scene.late))))
    if scene.pod_group and (scene.draft.is_finished or job.is_suspended):
        told.append(Emit("Normal", "JobTerminated", "Job has been terminated. Deleting PodGroup"))
    for _, pod in scene.replicas.all_pods():
        code = exit_code_of(kind, pod)
        if code is not None:
            meta = pod.metadata
            told.append(
                Emit("Normal", "ExitedWithCode", f"Pod: {meta.namespace}.{meta.name} exited with code {code}")
            )
    return told


def _validation_event(scene: _Scene) -> Emit:
    listed = ", ".join(str(error) for error in scene.read.errors)
    return Emit("Warning", _invalid(scene), cut(f"Found validation errors: {listed}"))


def _invalid(scene: _Scene) -> str:
    return "InvalidTFJobSpec" if scene.job.is_v1beta2 else VALIDATION_ERROR


def _is_rejected(scene: _Scene) -> bool:
    failed = find_condition(scene.job.status.conditions, FAILED)
    return failed is not None and failed.reason == _invalid(scene)


# What must be.


def _ensure(scene: _Scene) -> list[list[Action]]:
    rules, job, replicas = scene.rules, scene.job, scene.replicas
    services: list[Action] = []
    pods: list[Action] = []
    wanted = services_of(rules, job)
    domain, pause_s = scene.settings.cluster_domain, _pause_s(scene)
    for type_ in filter(partial(may_start, replicas, starts_whole=scene.dialect is not None), job.roles):
        for index in range(job.count(type_)):
            if index not in replicas.pods.get(type_, {}) and not pause_s:
                pod = build_replica_pod(rules, job, type_, index, domain, scene.dialect)
                pods.append(_create(PODS, pod))
    missing = [build for name, build in wanted.items() if name not in replicas.services]
    services += [_create(SERVICES, build()) for build in missing]
    gone = _ending(scene)
    pods += _delete_pods(scene, gone)
    services += [
        _delete(SERVICES, service.metadata.name, scene, service.metadata.uid)
        for name, service in replicas.services.items()
        if name not in wanted and not service.metadata.deletion_timestamp
    ]
    services += [*_scale(scene), *rules.objects(job, scene.observed)]
    if scene.dialect is None:
        return [[*services, *pods]]
    counted = scene.draft.replicas.items()
    done = sum(one.succeeded for type_, one in counted if type_ not in job.order.preludes)
    gang = gang_of_training_job(rules, job, done)
    # The scheduler must know the gang before its first pod.
    group = ensure_pod_group(gang, scene.pod_group, scene.dialect, scene.observed.priorities)
    return [[*services, *group], pods]


def _scale(scene: _Scene) -> list[Action]:
    """Return what makes the autoscaler right: there is one while the job holds pods."""
    job = scene.job
    found = scene.observed.autoscalers.get(job.metadata.name)
    if found and not is_controlled_by(found.metadata, job.metadata.uid):
        found = None
    holds_pods = not (scene.draft.is_finished or job.is_suspended)
    return ensure_autoscaler(build_autoscaler(scene.rules.kind, job) if holds_pods else None, found)


def _ending(scene: _Scene) -> set[str]:
    """Return the uids of pods that go: beyond the wanted number, refused, or to be made again."""
    replicas = scene.replicas
    kept = {pod.metadata.uid for type_ in scene.job.roles for _, pod in replicas.wanted(type_)}
    surplus = {pod.metadata.uid for _, pod in replicas.all_pods()} - kept
    refused = {one.pod.metadata.uid for one in scene.failed if one.fate is Fate.REPLACED}
    return surplus | refused | set(scene.draft.restarting_pods)


# What must go.


def _after_end(scene: _Scene) -> list[list[Action]]:
    """Pods and Services go as the policy says, the PodGroup in any case; the job itself after its time."""
    job, policy = scene.job, scene.job.run_policy
    stage: list[Action] = []
    if policy.clean_pod_policy == "All":
        stage += _delete_all(scene)
    elif policy.clean_pod_policy == "Running":
        phases = ("Running",) if job.is_v1beta2 else ("Running", "Pending")
        uids = {pod.metadata.uid for _, pod in scene.replicas.all_pods() if pod.status.phase in phases}
        kept = {pod.metadata.name for _, pod in scene.replicas.all_pods() if pod.metadata.uid not in uids}
        stage += _delete_pods(scene, uids) + _delete_services(scene, kept)
    stage += [*_delete_gang(scene), *_scale(scene)]
    left_s = seconds_left(scene.draft.completion_time, policy.ttl_seconds_after_finished, scene.now)
    if left_s is None or left_s > 0:
        return [stage]
    meta = job.metadata
    telling = Telling(Emit("Normal", "SuccessfulDeleteJob", f"Deleted job: {meta.name}"), "FailedDeleteJob")
    return [stage, [Delete(scene.rules.kind.resource, meta.namespace, meta.name, meta.uid, telling)]]


def _delete_all(scene: _Scene) -> list[Action]:
    uids = {pod.metadata.uid for _, pod in scene.replicas.all_pods()}
    return _delete_pods(scene, uids) + _delete_services(scene, set())


def _delete_pods(scene: _Scene, uids: set[str]) -> list[Action]:
    return [
        _delete(PODS, pod.metadata.name, scene, pod.metadata.uid)
        for _, pod in scene.replicas.all_pods()
        if pod.metadata.uid in uids and not pod.metadata.deletion_timestamp
    ]


def _delete_services(scene: _Scene, kept: set[str]) -> list[Action]:
    return [
        _delete(SERVICES, name, scene, service.metadata.uid)
        for name, service in scene.replicas.services.items()
        if name not in kept and not service.metadata.deletion_timestamp
    ]


def _delete_gang(scene: _Scene) -> list[Action]:
    return [
        replace(
            action,
            telling=Telling(
                Emit("Normal", "SuccessfulDeletePodGroup", f"Deleted PodGroup: {action.name}"),
                "FailedDeletePodGroup",
            ),
        )
        for action in delete_pod_group(scene.pod_group, scene.dialect)
        if isinstance(action, Delete)
    ]


def _create(resource: Resource, wanted: dict[str, Any]) -> Create:
    name, kind = wanted["metadata"]["name"], resource.kind
    done = Emit("Normal", f"SuccessfulCreate{kind}", f"Created {kind.lower()}: {name}")
    return Create(resource, wanted, Telling(done, f"FailedCreate{kind}"))


def _delete(resource: Resource, name: str, scene: _Scene, uid: str) -> Delete:
    kind = resource.kind
    done = Emit("Normal", f"SuccessfulDelete{kind}", f"Deleted {kind.lower()}: {name}")
    return Delete(resource, scene.job.metadata.namespace, name, uid, Telling(done, f"FailedDelete{kind}"))
