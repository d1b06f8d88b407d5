"""The rules of a training job, all broken ones at once.

Source: the training operator's webhook. Where it accepts what can never run (an unknown replica type, whose
pods nobody counts) or refuses what can (a Master without ``replicas``), this does right;
`docs/compatibility.md` lists each case.
"""

from __future__ import annotations

from collections.abc import Iterable

from gangline.api.decode import Unknown, show, similar_name
from gangline.api.dns_names import LABEL_CHARACTERS_MAX, is_dns_1035_label
from gangline.api.mpijob import ON_WORKER_FAILURE, WORKER_FAILURE_POLICIES
from gangline.api.mpijob_validation import check_run_policy, one_of
from gangline.api.pod_template import check_pod_template
from gangline.api.training.job import (
    CHIEF,
    EVALUATOR,
    MANAGERS,
    MASTER,
    RENDEZVOUS_BACKENDS,
    RESTART_POLICIES,
    SUCCESS_POLICIES,
    WORKER,
    PyTorchJobSpec,
    TFJobSpec,
    TrainingJob,
    TrainingReplicaSpec,
)
from gangline.api.training.kinds import TrainingKind
from gangline.errors import FieldError


def validate_training_job(
    kind: TrainingKind, job: TrainingJob, written: Iterable[str], *, unknown: Unknown = "ignore"
) -> list[FieldError]:
    """Return every broken rule; empty for a job that can be run.

    Args:
        kind: of the job.
        job: after defaulting.
        written: the keys of its map of replica specs, as they are written.
        unknown: what to do with unknown fields in the pod templates.
    """
    path = f"spec.{kind.specs_field}"
    errors = _check_name(job)
    policy = job.metadata.annotations.get(ON_WORKER_FAILURE)
    if policy is not None:
        errors += one_of(policy, WORKER_FAILURE_POLICIES, f"metadata.annotations[{ON_WORKER_FAILURE}]")
    errors += check_run_policy(job.run_policy, MANAGERS)
    if not job.roles:
        known = " or ".join(kind.types)
        errors.append(FieldError("Required", path, f"must have at least one of {known}"))
    for key in written:
        if kind.type_of(key) not in kind.types:
            meant = similar_name(key, kind.types)
            advice = f"; did you mean `{meant}`?" if meant else ""
            rule = f"supported replica types are {', '.join(kind.types)}{advice}"
            errors.append(FieldError("NotSupported", f"{path}[{key}]", rule, key))
    for type_, role in job.roles.items():
        errors += _check_role(kind, role, f"{path}[{type_}]", unknown)
    if isinstance(job.spec, TFJobSpec):
        errors += _check_tensorflow(job, job.spec, path)
    if isinstance(job.spec, PyTorchJobSpec):
        errors += _check_pytorch(job, job.spec, path)
    return errors


def _check_name(job: TrainingJob) -> list[FieldError]:
    name = job.metadata.name
    longest = max(
        (f"{name}-{type_.lower()}-{max(job.count(type_), 1) - 1}" for type_ in job.roles),
        key=len,
        default=name,
    )
    if is_dns_1035_label(longest):
        return []
    if len(longest) > LABEL_CHARACTERS_MAX:
        rule = (
            f"is too long: the pod `{longest}` would have {len(longest)} characters, at most 63 are allowed"
        )
    else:
        rule = "must be lower-case letters, digits and inner dashes and begin with a letter: Services have it"
    return [FieldError("Invalid", "metadata.name", rule, show(name))]


def _check_role(
    kind: TrainingKind, role: TrainingReplicaSpec, path: str, unknown: Unknown
) -> list[FieldError]:
    errors = one_of(role.restart_policy, RESTART_POLICIES, f"{path}.restartPolicy")
    if role.replicas is not None and role.replicas < 0:
        errors.append(FieldError("Invalid", f"{path}.replicas", "must not be negative", show(role.replicas)))
    containers = f"{path}.template.spec.containers"
    if not role.containers:
        errors.append(FieldError("Required", containers, "must have at least one container"))
    elif kind.container not in [container.get("name") for container in role.containers]:
        rule = f"must have at least one container with name {kind.container}: it is the one that trains"
        errors.append(FieldError("Required", containers, rule))
    return errors + check_pod_template(role.template, f"{path}.template", unknown=unknown)


def _check_pytorch(job: TrainingJob, spec: PyTorchJobSpec, path: str) -> list[FieldError]:
    errors = []
    if MASTER in job.roles and job.count(MASTER) != 1:
        errors.append(
            FieldError("Invalid", f"{path}[{MASTER}].replicas", "must be 1", show(job.count(MASTER)))
        )
    if WORKER in job.roles and job.count(WORKER) < 1:
        rule = "must be at least 1; without workers leave the whole Worker entry out"
        errors.append(FieldError("Invalid", f"{path}[{WORKER}].replicas", rule, show(job.count(WORKER))))
    elastic = spec.elastic_policy
    if elastic is None:
        return errors
    at = "spec.elasticPolicy"
    if WORKER not in job.roles:
        errors.append(FieldError("Required", f"{path}[{WORKER}]", "an elastic job needs workers"))
    if elastic.n_proc_per_node is not None and spec.nproc_per_node is not None:
        errors.append(
            FieldError("Forbidden", f"{at}.nProcPerNode", "must not be set together with spec.nprocPerNode")
        )
    if elastic.rdzv_backend is not None:
        errors += one_of(elastic.rdzv_backend, RENDEZVOUS_BACKENDS, f"{at}.rdzvBackend")
    if (elastic.min_replicas or 0) > (elastic.max_replicas or 0):
        rule = f"must not be more than maxReplicas, {elastic.max_replicas}"
        errors.append(FieldError("Invalid", f"{at}.minReplicas", rule, show(elastic.min_replicas)))
    return errors


def _check_tensorflow(job: TrainingJob, spec: TFJobSpec, path: str) -> list[FieldError]:
    errors = []
    if CHIEF in job.roles and MASTER in job.roles:
        errors.append(FieldError("Forbidden", path, "must not have more than 1 Chief or Master role"))
    if job.is_v1beta2 and job.count(EVALUATOR) > 1:
        rule = "must be at most 1 in v1beta2"
        errors.append(
            FieldError("Invalid", f"{path}[{EVALUATOR}].replicas", rule, show(job.count(EVALUATOR)))
        )
    if spec.success_policy not in SUCCESS_POLICIES:
        errors += one_of(spec.success_policy, ("AllWorkers",), "spec.successPolicy")
    return errors
