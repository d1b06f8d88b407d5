"""Gangs: the PodGroup of a job, in the dialect of the scheduler that places it.

Source: ``--gang-scheduling`` of the MPI operator, ``--gang-scheduler-name`` of the training operator. Done
otherwise than by the first: a launcher that waits for its workers is not counted, and where workers outrank
the launcher it is they who are counted first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from gangline.api.core import Condition, ObjectMeta, PodSpec
from gangline.api.mpijob import ReplicaSpec, SchedulingPolicy
from gangline.api.pod_group import (
    INITIALLY_SCHEDULED,
    LIMIT_ANNOTATION,
    QUEUE_ANNOTATION,
    SCHEDULED_V1ALPHA2,
    PodGroup,
)
from gangline.api.resources import (
    KUBERNETES_POD_GROUPS,
    SCHEDULER_PLUGINS_POD_GROUPS,
    VOLCANO_POD_GROUPS,
    Resource,
)
from gangline.jobs.names import child_metadata
from gangline.jobs.plan import Action, Create, Delete, Emit, Patch, merge_patch_between
from gangline.units import format_quantity
from gangline.workloads.requests import pod_requests, read_spec

Object = dict[str, Any]

VOLCANO: Final = "volcano"
KUBERNETES: Final = "kubernetes"

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULED: Final = "Scheduled"
"""Conditions of a PodGroup. Source: Volcano; Gangline's scheduler writes them in both dialects."""

NOT_SERVED: Final = "PodGroupsNotServed"
_GROUP_ANNOTATION: Final = "scheduling.k8s.io/group-name"
_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
_QUANTITY_MAX: Final = Decimal(2**63 - 1)
_BINARY_SUFFIX: Final = "i"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one gang scheduler wants to be told.

    Attributes:
        scheduler: name of the scheduler, or ``kubernetes``.
        resource: its kind of PodGroup.
    """

    scheduler: str
    resource: Resource

    @property
    def is_kubernetes(self) -> bool:
        """Whether it is Kubernetes' own: any scheduler may read it, and pods keep the one they name."""
        return self.resource.group == KUBERNETES_POD_GROUPS.group

    @property
    def is_volcano(self) -> bool:
        """Whether it is Volcano's."""
        return self.resource == VOLCANO_POD_GROUPS


def dialect_of(gang_scheduling: str) -> Dialect | None:
    """Return the dialect of an operator's setting; None without gangs."""
    if not gang_scheduling:
        return None
    kinds = {VOLCANO: VOLCANO_POD_GROUPS, KUBERNETES: KUBERNETES_POD_GROUPS}
    return Dialect(gang_scheduling, kinds.get(gang_scheduling, SCHEDULER_PLUGINS_POD_GROUPS))


@dataclass(frozen=True, slots=True)
class GangedJob:
    """A job of any kind as its gang sees it.

    Attributes:
        owner: the kind of the job.
        metadata: of the job.
        policy: its scheduling policy; an empty one where it has none.
        limit_s: after how many seconds its deadline ends it; None without one.
        roles: each with how many pods it has, in the order in which equals are counted.
        size: how many pods must be placed at the same moment, unless the policy says otherwise.
        labels: of the PodGroup.
        keeps_order: whether roles are counted in their order even where a later one outranks an earlier.
    """

    owner: Resource
    metadata: ObjectMeta
    policy: SchedulingPolicy
    limit_s: int | None
    roles: tuple[tuple[ReplicaSpec, int], ...]
    size: int
    labels: Mapping[str, str]
    keeps_order: bool = False


def build_pod_group(job: GangedJob, dialect: Dialect, priorities: Mapping[str, int]) -> Object:
    """Return the PodGroup of a job.

    Args:
        job: the job.
        dialect: of the scheduler.
        priorities: value of every PriorityClass of the cluster.
    """
    spec = _kubernetes_spec(job) if dialect.is_kubernetes else _spec(job, dialect, priorities)
    metadata = child_metadata(job.metadata, job.metadata.name, dict(job.labels), job.owner)
    if annotations := _annotations(job, dialect):
        metadata["annotations"] = annotations
    return {
        "apiVersion": dialect.resource.api_version,
        "kind": dialect.resource.kind,
        "metadata": metadata,
        "spec": spec,
    }


def _spec(job: GangedJob, dialect: Dialect, priorities: Mapping[str, int]) -> Object:
    spec: Object = {"minMember": min_member(job)}
    resources = min_resources(job, priorities)
    if resources is not None:
        spec["minResources"] = resources
    if not dialect.is_volcano:
        return spec | {"scheduleTimeoutSeconds": job.policy.schedule_timeout_seconds or 0}
    queue = _queue(job)
    return spec | ({"queue": queue} if queue else {}) | _priority_field(job)


def _kubernetes_spec(job: GangedJob) -> Object:
    """Return the spec of Kubernetes' own PodGroup: it is evicted as a unit, for half a gang is of no use."""
    least = min_member(job)
    policy: Object = {"gang": {"minCount": least}} if least else {"basic": {}}
    return {"schedulingPolicy": policy, "disruptionMode": {"all": {}}} | _priority_field(job)


def _priority_field(job: GangedJob) -> Object:
    priority_class = gang_priority_class(job)
    return {"priorityClassName": priority_class} if priority_class else {}


def _queue(job: GangedJob) -> str:
    return job.policy.queue or job.metadata.annotations.get(QUEUE_ANNOTATION, "")


def _annotations(job: GangedJob, dialect: Dialect) -> dict[str, str]:
    """Return what a gang's scheduler should know and its PodGroup has no field for.

    After how many seconds the job ends: by its deadline, else by its own annotation. Which queue it is in:
    scheduler-plugins has no queues, Gangline's scheduler has them in both dialects.
    """
    seconds = job.limit_s
    limit = str(seconds) if seconds is not None else job.metadata.annotations.get(LIMIT_ANNOTATION, "")
    queue = "" if dialect.is_volcano else _queue(job)
    return {key: value for key, value in ((LIMIT_ANNOTATION, limit), (QUEUE_ANNOTATION, queue)) if value}


def ensure_pod_group(
    job: GangedJob, found: PodGroup | None, dialect: Dialect, priorities: Mapping[str, int]
) -> list[Action]:
    """Return what makes the PodGroup right; fields that the scheduler filled in are left alone."""
    wanted = build_pod_group(job, dialect, priorities)
    if found is None:
        return [Create(dialect.resource, wanted)]
    # Of Kubernetes' own nothing but minCount may change, and a cluster drops what its feature gates close.
    owned = {"schedulingPolicy"} if dialect.is_kubernetes else {*wanted["spec"], "minResources"}
    before, after = ({k: v for k, v in spec.items() if k in owned} for spec in (found.spec, wanted["spec"]))
    patch: Object = {}
    if change := merge_patch_between(before, after):
        patch["spec"] = change
    annotations = _annotations(job, dialect)
    if change := {k: v for k, v in annotations.items() if found.metadata.annotations.get(k) != v}:
        patch["metadata"] = {"annotations": change}
    meta = job.metadata
    return [Patch(dialect.resource, meta.namespace, meta.name, patch)] if patch else []


def delete_pod_group(found: PodGroup | None, dialect: Dialect | None) -> list[Action]:
    """Return what removes the PodGroup of a job that holds no pods any more."""
    if found is None or dialect is None or found.metadata.deletion_timestamp:
        return []
    meta = found.metadata
    return [Delete(dialect.resource, meta.namespace, meta.name, meta.uid)]


def scheduler_verdict(found: PodGroup | None) -> Condition | None:
    """Return what a gang's scheduler said last: Unschedulable or Scheduled; None when it has said neither.

    Volcano keeps both, so that the time decides; a scheduler of others may write anything else there.
    """
    listed = found.status.get("conditions") if found else None
    said = []
    for wire in listed if isinstance(listed, list) else []:
        try:
            condition = msgspec.convert(wire, Condition)
        except msgspec.ValidationError:
            continue
        if condition.type in (INITIALLY_SCHEDULED, SCHEDULED_V1ALPHA2):
            type_ = SCHEDULED if condition.status == "True" else UNSCHEDULABLE
            said.append(replace(condition, type=type_))
        elif condition.status == "True" and condition.type in (UNSCHEDULABLE, SCHEDULED):
            said.append(condition)
    return max(said, key=lambda condition: condition.last_transition_time or "", default=None)


def join_gang(template: Object, group: str, dialect: Dialect | None) -> None:
    """Make a pod (or a template of pods) a member of the gang of that name, in place."""
    if dialect is None:
        return
    if dialect.is_kubernetes:
        template["spec"]["schedulingGroup"] = {"podGroupName": group}
        return
    template["spec"]["schedulerName"] = dialect.scheduler
    metadata = template["metadata"]
    if dialect.is_volcano:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), _GROUP_ANNOTATION: group}
    else:
        metadata["labels"] = {**(metadata.get("labels") or {}), _GROUP_LABEL: group}


def min_member(job: GangedJob) -> int:
    """Return how many pods must be placed at the same moment: as the policy says, else all of them."""
    return job.size if job.policy.min_available is None else job.policy.min_available


def gang_priority_class(job: GangedJob) -> str:
    """Return the PriorityClass of the gang: the policy's, else that of the first role that has one."""
    choices = [job.policy.priority_class, *(_priority_class(role) for role, _ in job.roles)]
    return next((name for name in choices if name), "")


def min_resources(job: GangedJob, priorities: Mapping[str, int]) -> Object | None:
    """Return the resources of the pods that must be placed at the same moment; None when none must.

    The pods of highest priority count first. Names stay as written: a scheduler of others knows no aliases.
    """
    given = job.policy.min_resources
    if given is not None:
        return given
    least = min_member(job)
    if least == 0:
        return None
    total: dict[str, Decimal] = {}
    binary: set[str] = set()
    for role, count in _counted(job, least, priorities):
        template = read_spec(role.template.get("spec"))
        for name, amount in pod_requests(template, as_written=True).items():
            total[name] = total.get(name, Decimal(0)) + min(amount, _QUANTITY_MAX) * count
        binary |= _binary_names(template)
    return {
        name: format_quantity(min(amount, _QUANTITY_MAX), binary=name in binary)
        for name, amount in total.items()
    }


def _counted(job: GangedJob, least: int, priorities: Mapping[str, int]) -> Iterator[tuple[ReplicaSpec, int]]:
    """Yield how many pods of each role are among the ``least`` first ones."""
    ordered = job.roles
    if not job.keeps_order:
        ordered = tuple(sorted(ordered, key=lambda one: -priorities.get(_priority_class(one[0]), 0)))
    for role, count in ordered:
        first = min(count, least)
        least -= first
        if first:
            yield role, first


def _binary_names(spec: PodSpec) -> set[str]:
    """Return the resources of which a pod writes an amount with a binary suffix."""
    lists = [spec.overhead, spec.resources.requests, spec.resources.limits]
    for container in (*spec.init_containers, *spec.containers):
        lists += [container.resources.requests, container.resources.limits]
    return {name for amounts in lists for name, text in amounts.items() if str(text).endswith(_BINARY_SUFFIX)}


def explain_not_served(dialect: Dialect) -> str:
    """Return why the gangs of a cluster without the kind cannot be written, and the ways on."""
    resource = dialect.resource
    if dialect.is_kubernetes:
        return (
            f"this cluster has no {resource.kind} of {resource.api_version}: {how_to_serve(dialect)}, or "
            "start the operator without --gang-scheduling"
        )
    return (
        f"this cluster has no {resource.kind} of {resource.api_version}, by which {dialect.scheduler} places "
        f"gangs: install that scheduler, or the kind alone (gangline crds --install --gang-scheduling "
        f"{dialect.scheduler}), or start the operator without --gang-scheduling"
    )


def how_to_serve(dialect: Dialect) -> str:
    """Return what makes a cluster serve the kind of PodGroup."""
    if dialect.is_kubernetes:
        return (
            "start its API server and scheduler (Kubernetes 1.37 or newer) with "
            "--feature-gates=GenericWorkload=true, "
            f"and its API server with --runtime-config={dialect.resource.api_version}=true"
        )
    return f"install it with `gangline crds --install --gang-scheduling {dialect.scheduler}`"


def gang_warnings(job: GangedJob, priorities: Mapping[str, int]) -> list[Emit]:
    """Return what a user should know of the names in a gang: priority classes that lead nowhere."""
    names = {job.policy.priority_class, *(_priority_class(role) for role, _ in job.roles)}
    return [
        Emit("Warning", "PriorityClassNotFound", f"PriorityClass {name} does not exist and counts as 0")
        for name in sorted(names)
        if name and name not in priorities
    ]


def other_schedulers(job: GangedJob, dialect: Dialect) -> list[str]:
    """Return the schedulers that templates of the job name and that do not place its gang."""
    if dialect.is_kubernetes:
        return []
    return sorted({_scheduler(role) for role, _ in job.roles} - {"", dialect.scheduler})


def _priority_class(spec: ReplicaSpec) -> str:
    return str((spec.template.get("spec") or {}).get("priorityClassName") or "")


def _scheduler(spec: ReplicaSpec) -> str:
    return str((spec.template.get("spec") or {}).get("schedulerName") or "")
