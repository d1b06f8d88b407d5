"""The rules of an MPIJob v2beta1, all broken ones at once and in upstream's order.

Validation comes after defaulting. Where upstream accepts what can never run (0 slots, an unknown launcher
creation policy, an unknown replica type) or refuses what can (a name that begins with a digit), this module
does right; `docs/compatibility.md` lists each case.
"""

from __future__ import annotations

from typing import Any, Final

from gangline.api.decode import Unknown, show, similar_name
from gangline.api.dns_names import LABEL_CHARACTERS_MAX, is_dns_1123_label
from gangline.api.mpijob import (
    CLEAN_POD_POLICIES,
    CREATION_POLICIES,
    IMPLEMENTATIONS,
    LAUNCHER,
    MANAGERS,
    ON_WORKER_FAILURE,
    REPLICA_TYPES,
    RESTART_POLICIES,
    WORKER,
    WORKER_FAILURE_POLICIES,
    MPIJob,
    ReplicaSpec,
    RunPolicy,
    SchedulingPolicy,
)
from gangline.api.pod_template import check_pod_template, check_quantities
from gangline.errors import FieldError

SSH_VOLUME: Final = "ssh-auth"
CONFIG_VOLUME: Final = "mpi-job-config"
CONFIG_MOUNT_PATH: Final = "/etc/mpi"
WORKERS_MAX: Final = 10_000
"""Hosts with names of usual length of which a list takes less than the 1 MiB of a ConfigMap."""


def validate_mpijob(job: MPIJob, *, unknown: Unknown = "ignore") -> list[FieldError]:
    """Return every broken rule; empty for a job that can be run.

    Args:
        job: the job after defaulting.
        unknown: what to do with unknown fields in the pod templates: ``ignore`` them, or report those
            that look mistyped.
    """
    spec = job.spec
    errors = _check_name(job)
    policy = job.metadata.annotations.get(ON_WORKER_FAILURE)
    if policy is not None:
        errors += one_of(policy, WORKER_FAILURE_POLICIES, f"metadata.annotations[{ON_WORKER_FAILURE}]")
    errors += _check_replicas(job, unknown)
    if spec.slots_per_worker is None:
        errors.append(FieldError("Required", "spec.slotsPerWorker", "must be set"))
    elif spec.slots_per_worker < 1:
        rule = "must be at least 1: a worker without slots can take no rank"
        errors.append(FieldError("Invalid", "spec.slotsPerWorker", rule, show(spec.slots_per_worker)))
    errors += check_run_policy(spec.run_policy, MANAGERS)
    if not spec.ssh_auth_mount_path:
        errors.append(FieldError("Required", "spec.sshAuthMountPath", "must be set"))
    errors += one_of(
        spec.launcher_creation_policy, CREATION_POLICIES, "spec.launcherCreationPolicy", empty=True
    )
    return errors + one_of(spec.mpi_implementation, IMPLEMENTATIONS, "spec.mpiImplementation")


def _check_name(job: MPIJob) -> list[FieldError]:
    name = job.metadata.name
    longest = f"{name}-worker-{max(job.worker_count, 1) - 1}"
    if is_dns_1123_label(longest):
        return []
    if len(longest) > LABEL_CHARACTERS_MAX:
        rule = (
            f"is too long: the pod `{longest}` would have {len(longest)} characters, at most 63 are allowed"
        )
    else:
        rule = "must be lower-case letters, digits and inner dashes, for it becomes part of host names"
    return [FieldError("Invalid", "metadata.name", rule, show(name))]


def _check_replicas(job: MPIJob, unknown: Unknown) -> list[FieldError]:
    roles = job.spec.mpi_replica_specs
    path = "spec.mpiReplicaSpecs"
    if roles is None:
        return [FieldError("Required", path, "must have a Launcher")]
    errors = []
    launcher, worker = roles.get(LAUNCHER), roles.get(WORKER)
    if launcher is None:
        errors.append(FieldError("Required", f"{path}[{LAUNCHER}]", "an MPIJob needs a Launcher"))
    else:
        errors += _check_role(job, LAUNCHER, launcher, unknown)
    if worker is not None:
        errors += _check_role(job, WORKER, worker, unknown)
    for role in roles:
        if role not in REPLICA_TYPES:
            meant = similar_name(role, REPLICA_TYPES)
            advice = f"; did you mean `{meant}`?" if meant else ""
            rule = f"supported replica types are Launcher and Worker{advice}"
            errors.append(FieldError("NotSupported", f"{path}[{role}]", rule, role))
    return errors


def _check_role(job: MPIJob, role: str, spec: ReplicaSpec, unknown: Unknown) -> list[FieldError]:
    path = f"spec.mpiReplicaSpecs[{role}]"
    errors = []
    if spec.replicas is None:
        errors.append(FieldError("Required", f"{path}.replicas", "must be set"))
    errors += one_of(spec.restart_policy, RESTART_POLICIES, f"{path}.restartPolicy")
    if not spec.containers:
        errors.append(
            FieldError("Required", f"{path}.template.spec.containers", "must have at least one container")
        )
    if role == LAUNCHER and spec.replicas not in (None, 1):
        errors.append(FieldError("Invalid", f"{path}.replicas", "must be 1", show(spec.replicas)))
    if role == WORKER and spec.replicas is not None and spec.replicas <= 0:
        rule = "must be at least 1; without workers leave the whole Worker entry out"
        errors.append(FieldError("Invalid", f"{path}.replicas", rule, show(spec.replicas)))
    if role == WORKER and spec.replicas is not None and spec.replicas > WORKERS_MAX:
        rule = f"must be at most {WORKERS_MAX}, for the host list must fit in a ConfigMap"
        errors.append(FieldError("Invalid", f"{path}.replicas", rule, show(spec.replicas)))
    errors += check_pod_template(spec.template, f"{path}.template", unknown=unknown)
    return errors + _check_own_mounts(job, role, spec)


def _check_own_mounts(job: MPIJob, role: str, spec: ReplicaSpec) -> list[FieldError]:
    """The volumes that every pod of the job gets must not meet the user's."""
    own = {SSH_VOLUME: job.spec.ssh_auth_mount_path}
    if role == LAUNCHER:
        own[CONFIG_VOLUME] = CONFIG_MOUNT_PATH
    path = f"spec.mpiReplicaSpecs[{role}].template.spec"
    errors = []
    pod = spec.template.get("spec")
    for index, volume in enumerate(_list(pod.get("volumes") if isinstance(pod, dict) else None)):
        if isinstance(volume, dict) and str(volume.get("name")) in own:
            rule = "is the name of a volume that every MPIJob pod gets; choose another"
            errors.append(FieldError("Duplicate", f"{path}.volumes[{index}].name", rule, str(volume["name"])))
    for container in spec.containers[:1]:
        for index, mount in enumerate(_list(container.get("volumeMounts"))):
            if isinstance(mount, dict) and mount.get("mountPath") in own.values():
                rule = "is where the MPIJob's own volume is mounted; choose another place"
                at = f"{path}.containers[0].volumeMounts[{index}].mountPath"
                errors.append(FieldError("Duplicate", at, rule, mount["mountPath"]))
    return errors


def check_run_policy(policy: RunPolicy, managers: tuple[str, ...]) -> list[FieldError]:
    """Return the broken rules of a run policy after defaulting, whose manager is one of these."""
    path = "spec.runPolicy"
    if policy.clean_pod_policy is None:
        errors = [FieldError("Required", f"{path}.cleanPodPolicy", "must be set")]
    else:
        errors = one_of(policy.clean_pod_policy, CLEAN_POD_POLICIES, f"{path}.cleanPodPolicy")
    errors += _not_negative(policy.ttl_seconds_after_finished, f"{path}.ttlSecondsAfterFinished")
    errors += _not_negative(policy.active_deadline_seconds, f"{path}.activeDeadlineSeconds")
    errors += _not_negative(policy.backoff_limit, f"{path}.backoffLimit")
    if policy.managed_by is not None:
        errors += one_of(policy.managed_by, managers, f"{path}.managedBy")
    return errors + _check_scheduling(
        policy.scheduling_policy or SchedulingPolicy(), f"{path}.schedulingPolicy"
    )


def _check_scheduling(policy: SchedulingPolicy, path: str) -> list[FieldError]:
    errors = _not_negative(policy.min_available, f"{path}.minAvailable")
    errors += check_quantities(policy.min_resources, f"{path}.minResources")
    return errors + _not_negative(policy.schedule_timeout_seconds, f"{path}.scheduleTimeoutSeconds")


def _not_negative(value: int | None, path: str) -> list[FieldError]:
    return (
        [FieldError("Invalid", path, "must not be negative", show(value))]
        if value is not None and value < 0
        else []
    )


def one_of(value: str, allowed: tuple[str, ...], path: str, *, empty: bool = False) -> list[FieldError]:
    """Return the error of a value that is none of the allowed ones; an ``empty`` one may be fine."""
    if value in allowed or (empty and not value):
        return []
    rule, meant = "must be " + " or ".join(f"`{item}`" for item in allowed), similar_name(value, allowed)
    return [
        FieldError("NotSupported", path, rule + (f"; did you mean `{meant}`?" if meant else ""), show(value))
    ]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
