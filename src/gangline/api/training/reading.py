"""From a manifest or an object of the API to a checked training job, in v1 or v1beta2."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from gangline.api.core import ObjectMeta
from gangline.api.decode import Unknown, decode, is_deeper, read_head, unknown_field
from gangline.api.mpijob import JobMeta
from gangline.api.mpijob_reading import DEPTH_MAX
from gangline.api.mpijob_versions import version_of, written_version
from gangline.api.training.job import (
    FLAT_FIELDS,
    V1BETA2,
    WORKER,
    ElasticPolicy,
    PyTorchJobSpec,
    TFJobSpec,
    TrainingJob,
    TrainingJobStatus,
    TrainingReplicaSpec,
    TrainingRunPolicy,
)
from gangline.api.training.kinds import TrainingKind
from gangline.api.training.validation import validate_training_job
from gangline.errors import FieldError


class ReadTrainingJob(msgspec.Struct, frozen=True):
    """A job with defaults applied, and what is wrong with it.

    Attributes:
        job: the job.
        errors: broken rules; empty for a job that can be run.
        warnings: what was passed over.
    """

    job: TrainingJob
    errors: list[FieldError]
    warnings: list[FieldError] = []


def read_training_job(kind: TrainingKind, document: dict[str, Any]) -> ReadTrainingJob:
    """Return the job of a manifest with every error: types, unknown fields, rules.

    Unknown fields are errors in v1 and warnings in v1beta2, whose published files have some.
    """
    meta, errors = read_head(document)
    is_old = version_of(document.get("apiVersion")) == V1BETA2
    return _read(kind, meta, document.get("spec"), errors, is_old=is_old, is_strict=not is_old)


def read_observed_training(
    kind: TrainingKind, metadata: ObjectMeta, spec: Any, status: Any
) -> ReadTrainingJob:
    """Return the job that a cache holds; a bad status counts as none, unknown fields are passed over."""
    is_old = isinstance(metadata, JobMeta) and written_version(metadata) == V1BETA2
    read = _read(kind, metadata, spec, [], is_old=is_old, is_strict=False)
    return ReadTrainingJob(replace(read.job, status=_read_status(status)), read.errors, read.warnings)


def renew_training(read: ReadTrainingJob, metadata: ObjectMeta, status: Any) -> ReadTrainingJob:
    """Return what was read with the metadata and status of now; its spec must be the same."""
    job = replace(read.job, metadata=metadata, status=_read_status(status))
    return ReadTrainingJob(job, read.errors, read.warnings)


def _read(
    kind: TrainingKind,
    metadata: ObjectMeta,
    raw: Any,
    errors: list[FieldError],
    *,
    is_old: bool,
    is_strict: bool,
) -> ReadTrainingJob:
    if is_deeper(raw, DEPTH_MAX):
        deep = FieldError("Invalid", "spec", f"is nested in more than {DEPTH_MAX} levels")
        return ReadTrainingJob(TrainingJob(metadata=metadata), [*errors, deep])
    looks: Unknown = "error" if is_strict or is_old else "ignore"
    assert kind.spec is not None
    spec, found = decode(raw, kind.spec, path="spec", unknown=looks)
    policy, notes = _run_policy(spec, is_old=is_old)
    roles = _roles(kind, spec)
    job = TrainingJob(
        metadata=metadata,
        spec=_with_defaults(spec, roles),
        run_policy=policy,
        roles={type_: _default_role(kind, roles[type_]) for type_ in roles},
        is_v1beta2=is_old,
    )
    everything = [
        *errors,
        *found,
        *validate_training_job(kind, job, kind.specs_of(spec), unknown="error" if is_strict else "ignore"),
    ]
    wrong = {error.path for error in found}
    broken = [error for error in everything if error in found or error.path not in wrong]
    if is_strict:
        return ReadTrainingJob(job, broken + notes)
    return ReadTrainingJob(
        job,
        [error for error in broken if not error.is_unknown],
        [*notes, *(error for error in broken if error.is_unknown)],
    )


def _run_policy(
    spec: PyTorchJobSpec | TFJobSpec, *, is_old: bool
) -> tuple[TrainingRunPolicy, list[FieldError]]:
    """Return the policy of a job with its defaults, and what stands where its version has no field for it."""
    policy, notes = spec.run_policy, []
    if isinstance(spec, TFJobSpec):
        flat = {name: getattr(spec, name) for name in FLAT_FIELDS if getattr(spec, name) is not None}
        if is_old:
            policy = replace(policy, **{k: v for k, v in flat.items() if getattr(policy, k) is None})
        for name in () if is_old else flat:
            wire = {field.name: field.encode_name for field in msgspec.structs.fields(spec)}[name]
            notes.append(
                unknown_field(f"spec.{wire}", f"it belongs to v1beta2; in v1 it is `runPolicy.{wire}`")
            )
    if policy.clean_pod_policy is None:
        policy = replace(policy, clean_pod_policy="Running" if is_old else "None")
    return policy, notes


def _roles(kind: TrainingKind, spec: PyTorchJobSpec | TFJobSpec) -> dict[str, TrainingReplicaSpec]:
    written = {kind.type_of(key): role for key, role in kind.specs_of(spec).items()}
    return {type_: written[type_] for type_ in kind.types if type_ in written}


def _default_role(kind: TrainingKind, role: TrainingReplicaSpec) -> TrainingReplicaSpec:
    return replace(
        role,
        replicas=1 if role.replicas is None else role.replicas,
        restart_policy=role.restart_policy or kind.restart_policy,
        template=_with_port(kind, role),
    )


def _with_port(kind: TrainingKind, role: TrainingReplicaSpec) -> dict[str, Any]:
    """Return the template whose training container, else the first one, has the port of the kind."""
    containers = role.containers
    if not containers or len(containers) != len(role.template["spec"]["containers"]):
        return role.template
    names = [container.get("name") for container in containers]
    index = names.index(kind.container) if kind.container in names else 0
    ports = containers[index].get("ports") or []
    if not isinstance(ports, list) or any(
        isinstance(port, dict) and port.get("name") == kind.port_name for port in ports
    ):
        return role.template
    added = [*ports, {"name": kind.port_name, "containerPort": kind.port}]
    containers[index] = {**containers[index], "ports": added}
    return {**role.template, "spec": {**role.template["spec"], "containers": containers}}


def _with_defaults(
    spec: PyTorchJobSpec | TFJobSpec, roles: dict[str, TrainingReplicaSpec]
) -> PyTorchJobSpec | TFJobSpec:
    if isinstance(spec, TFJobSpec):
        return spec
    elastic = spec.elastic_policy
    nproc = spec.nproc_per_node
    if nproc is None and (elastic is None or elastic.n_proc_per_node is None):
        nproc = "auto"
    if elastic is not None:
        worker = roles.get(WORKER)
        count = 1 if worker is None or worker.replicas is None else worker.replicas
        elastic = _with_bounds(elastic, count)
    return replace(spec, nproc_per_node=nproc, elastic_policy=elastic)


def _with_bounds(elastic: ElasticPolicy, workers: int) -> ElasticPolicy:
    least, most = elastic.min_replicas, elastic.max_replicas
    if least is None and most is None:
        return replace(elastic, min_replicas=workers, max_replicas=workers)
    return replace(
        elastic,
        min_replicas=most if least is None else least,
        max_replicas=least if most is None else most,
    )


def _read_status(status: Any) -> TrainingJobStatus:
    try:
        return msgspec.convert(status or {}, TrainingJobStatus)
    except msgspec.ValidationError:
        return TrainingJobStatus()
