"""The pods and Services of a training job."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from gangline.api.mpijob import SchedulingPolicy
from gangline.api.training.job import WORKER, TrainingJob
from gangline.jobs.gang import Dialect, GangedJob, join_gang
from gangline.jobs.names import JOB_ROLE_LABEL, child_metadata
from gangline.jobs.pods import without_nulls
from gangline.jobs.training.replicas import job_labels, labels_of_v1beta2, replica_labels
from gangline.jobs.training.rules import TrainingRules
from gangline.jobs.training.template import ports_of

Object = dict[str, Any]
Labels = dict[str, str]

_TASK_ANNOTATION: Final = "volcano.sh/task-spec"


def build_replica_pod(
    rules: TrainingRules,
    job: TrainingJob,
    type_: str,
    index: int,
    domain: str = "",
    dialect: Dialect | None = None,
) -> Object:
    """Return the pod of a replica.

    Args:
        rules: of the kind.
        job: the job.
        type_: of the replica.
        index: of the replica within its type.
        domain: appended to host names; usually empty.
        dialect: of the scheduler that places the gang; None places pods one by one.
    """
    kind, role = rules.kind, job.roles[type_]
    given = without_nulls(role.template.get("metadata") or {})
    is_master = rules.is_master(job, type_, index)
    labels = {
        **(given.get("labels") or {}),
        **labels_of_v1beta2(job, type_, index, is_master=is_master),
        **replica_labels(kind, job.metadata.name, type_, index),
    }
    if is_master:
        labels[JOB_ROLE_LABEL] = "master"
    metadata = child_metadata(job.metadata, rules.name(job, type_, index), labels, kind.resource)
    for key in ("annotations", "finalizers"):
        if given.get(key):
            metadata[key] = given[key]
    spec: Object = without_nulls(role.template["spec"])
    # A pod that is made again by its exit code is not restarted in place.
    spec["restartPolicy"] = "Never" if role.restart_policy == "ExitCode" else role.restart_policy
    _tell(rules, job, type_, index, spec["containers"], domain)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    if dialect is not None and type_ not in job.order.preludes:
        own = spec.get("schedulerName")
        join_gang(pod, job.metadata.name, dialect)
        if own:
            spec["schedulerName"] = own
        if dialect.is_volcano:
            metadata["annotations"][_TASK_ANNOTATION] = type_.lower()
    return rules.place(pod, job, type_, index)


def _tell(
    rules: TrainingRules, job: TrainingJob, type_: str, index: int, containers: list[Object], domain: str
) -> None:
    variables = [
        {"name": name, "value": value} for name, value in rules.environment(job, type_, index, domain).items()
    ]
    if not rules.tells_all(job):
        containers = [found for found in containers if found.get("name") == rules.kind.container][:1]
    for container in containers if variables else ():
        container["env"] = [*(container.get("env") or []), *variables]


def build_replica_service(rules: TrainingRules, job: TrainingJob, type_: str, index: int) -> Object:
    """Return the headless Service of a replica, by which the others find it.

    Its name leads to the pod before that is ready: replicas wait for each other while they start, and no init
    container has to ask for the name.
    """
    kind = rules.kind
    labels = replica_labels(kind, job.metadata.name, type_, index)
    ports = [
        {"name": port.get("name") or f"port-{port['containerPort']}", "port": port["containerPort"]}
        | ({"protocol": port["protocol"]} if port.get("protocol") else {})
        for port in ports_of(kind, job.roles[type_])
        if port.get("containerPort")
    ]
    return _headless(rules, job, rules.name(job, type_, index), labels, {"ports": ports})


def services_of(rules: TrainingRules, job: TrainingJob) -> dict[str, Callable[[], Object]]:
    """Return what makes each Service that a job has, by name."""
    if rules.has_one_service:
        name = job.metadata.name
        return {name: partial(_headless, rules, job, name, job_labels(rules.kind, name), {})}
    return {
        rules.name(job, type_, index): partial(build_replica_service, rules, job, type_, index)
        for type_ in job.roles
        for index in range(job.count(type_))
    }


def _headless(rules: TrainingRules, job: TrainingJob, name: str, labels: Labels, more: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(job.metadata, name, labels, rules.kind.resource),
        "spec": {"clusterIP": "None", "selector": labels, **more, "publishNotReadyAddresses": True},
    }


def gang_of_training_job(rules: TrainingRules, job: TrainingJob, done: int = 0) -> GangedJob:
    """Return the job as its gang sees it: all replicas start together, but those that are ``done``.

    A pod that is made again would wait for ever for one that has succeeded. Of elastic workers the fewest
    start together, and others join them where there is room. Roles that end before the others begin are no
    members.
    """
    policy = job.run_policy.scheduling_policy or SchedulingPolicy()
    members = [type_ for type_ in job.roles if type_ not in job.order.preludes]
    size = max(sum(map(job.count, members)) - done, 1)
    if policy.min_available is None and (least := _fewest(job)):
        policy = replace(policy, min_available=least)
    if policy.min_available is not None:
        policy = replace(policy, min_available=min(policy.min_available, size))
    return GangedJob(
        owner=rules.kind.resource,
        metadata=job.metadata,
        policy=policy,
        limit_s=job.run_policy.active_deadline_seconds,
        roles=tuple((job.roles[type_], job.count(type_)) for type_ in members),
        size=size,
        labels=job_labels(rules.kind, job.metadata.name),
    )


def _fewest(job: TrainingJob) -> int:
    """Return how many pods of an elastic job must start together; 0 for every other job."""
    elastic = job.elastic_policy
    if elastic is None or elastic.min_replicas is None:
        return 0
    return job.total - job.count(WORKER) + elastic.min_replicas
