"""The custom resource definitions that Gangline brings, as `gangline crds` prints them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gangline.api.definitions import stamped
from gangline.api.mpijob import MPIJobSpec, MPIJobStatus
from gangline.api.mpijob_legacy import RESTART_POLICIES_SERVED, V1ALPHA1, LegacyFields
from gangline.api.pod_group import SchedulerPluginsPodGroupSpec, VolcanoPodGroupSpec, VolcanoQueueSpec
from gangline.api.resources import (
    MPIJOB_VERSIONS,
    MPIJOBS,
    RUNTIMES,
    SCHEDULER_PLUGINS_POD_GROUPS,
    TFJOBS,
    TRAINJOBS,
    VOLCANO_POD_GROUPS,
    VOLCANO_QUEUES,
    Resource,
)
from gangline.api.schema import schema_of, schema_of_message
from gangline.api.trainer.job import TrainJobSpec, TrainJobStatus
from gangline.api.training.job import V1BETA2, WORKER, TrainingJobStatus
from gangline.api.training.kinds import TRAINING_KINDS, TrainingKind

_MPIJOB_COLUMNS: tuple[tuple[str, str, str, int], ...] = (
    # The controller keeps the telling condition last, so its type is the state.
    ("State", "string", ".status.conditions[-1:].type", 0),
    ("Running", "integer", ".status.replicaStatuses.Worker.active", 0),
    ("Workers", "integer", ".status.workers", 0),  # the first version says it in GPUs
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Slots", "integer", ".spec.slotsPerWorker", 1),
    ("Restarts", "integer", ".status.restarts", 1),
    ("Reason", "string", ".status.conditions[-1:].reason", 1),
    ("Completed", "date", ".status.completionTime", 1),
)

_TRAINING_COLUMNS: tuple[tuple[str, str, str, int], ...] = (
    ("State", "string", ".status.conditions[-1:].type", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Restarts", "integer", ".status.restarts", 1),
    ("Reason", "string", ".status.conditions[-1:].reason", 1),
    ("Completed", "date", ".status.completionTime", 1),
)

_NO_CONVERSION = {"strategy": "None"}
"""The store keeps one version and renames it: every schema must know every field."""


def crds() -> list[dict[str, Any]]:
    """Return every definition as a fresh object in wire form, ready to be applied."""
    jobs = [mpijob_crd(), *(stamped(_training_job(kind)) for kind in TRAINING_KINDS)]
    return [*jobs, stamped(_train_job()), *(stamped(_runtime(resource)) for resource in RUNTIMES)]


def mpijob_crd() -> dict[str, Any]:
    """Return the definition without which nothing works; those of other jobs may be somebody else's."""
    return stamped(_mpijob())


def gang_crds() -> list[dict[str, Any]]:
    """Return the definitions of PodGroup in both dialects and of Queue, for clusters that have none."""
    group = "Pods that start together or not at all."
    queue = "Gangs that share a quota."
    members = _column("Members", "integer", ".spec.minMember", 0)
    weight = _column("Weight", "integer", ".spec.weight", 0)
    found = [
        _gang_kind(SCHEDULER_PLUGINS_POD_GROUPS, SchedulerPluginsPodGroupSpec, ["pg", "pgs"], group, members),
        _gang_kind(VOLCANO_POD_GROUPS, VolcanoPodGroupSpec, ["pg", "podgroup-v1beta1"], group, members),
        _gang_kind(VOLCANO_QUEUES, VolcanoQueueSpec, ["q", "queue-v1beta1"], queue, weight),
    ]
    return [stamped(crd) for crd in found]


def _gang_kind(
    resource: Resource,
    spec: type[msgspec.Struct],
    short_names: list[str],
    description: str,
    column: dict[str, Any],
) -> dict[str, Any]:
    keep = {"x-kubernetes-preserve-unknown-fields": True}
    properties = {"spec": schema_of(spec) | keep, "status": {"type": "object"} | keep}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [column, _column("Age", "date", ".metadata.creationTimestamp", 0)],
        "schema": _schema(description, properties),
        "subresources": {"status": {}},
    }
    found = _definition(resource, [version], short_names)
    # Groups under k8s.io need it; it says that the definition is nobody's official one.
    unofficial = {"api-approved.kubernetes.io": "unapproved, written for Gangline"}
    return found | {"metadata": found["metadata"] | {"annotations": unofficial}}


def _definition(
    resource: Resource, versions: list[dict[str, Any]], short_names: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    names = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": names | ({"shortNames": [*short_names]} if short_names else {}),
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            **more,
            "versions": versions,
        },
    }


def _schema(description: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the schema of one version: what all objects have, and these properties."""
    common = {name: {"type": "string"} for name in ("apiVersion", "kind")} | {"metadata": {"type": "object"}}
    whole = {"description": description, "type": "object", "properties": common | properties, **more}
    return {"openAPIV3Schema": whole}


_TRAIN_JOB_FIXED = ("runtimeRef", "initializer", "trainer", "activeDeadlineSeconds", "managedBy")
"""Fields of a TrainJob that nobody changes: a job that runs would no longer be the one that is written."""


def _kept(field: str) -> str:
    """Return the rule that an update leaves a field as it is."""
    new, old = f"self.{field}", f"oldSelf.{field}"
    return f"has({new}) == has({old}) && (!has({new}) || {new} == {old})"


def _train_job() -> dict[str, Any]:
    spec = schema_of(TrainJobSpec) | {
        "description": "What is to run.",
        "required": ["runtimeRef"],
        "x-kubernetes-validations": [
            *({"rule": _kept(name), "message": f"{name} is immutable"} for name in _TRAIN_JOB_FIXED),
            {
                "rule": f"(has(oldSelf.suspend) && oldSelf.suspend) || ({_kept('runtimePatches')})",
                "message": "runtimePatches can be changed only while the job is suspended",
            },
        ],
    }
    status = {"description": "How far it is.", **schema_of(TrainJobStatus)}
    columns = [
        _column("State", "string", ".status.conditions[-1:].type", 0),
        _column("Progress %", "integer", ".status.trainerStatus.progressPercentage", 0),
        _column("Age", "date", ".metadata.creationTimestamp", 0),
        _column("Restarts", "integer", ".status.restarts", 1),
    ]
    about = "A training whose pods look as a runtime says."
    return _simple(TRAINJOBS, about, {"spec": spec, "status": status}, columns, subresources={"status": {}})


def _runtime(resource: Resource) -> dict[str, Any]:
    spec = {"description": "How pods look.", "type": "object", "x-kubernetes-preserve-unknown-fields": True}
    age = _column("Age", "date", ".metadata.creationTimestamp", 0)
    about = "How the pods of TrainJobs look that name it: a JobSet's template, and what is told to them."
    return _simple(resource, about, {"spec": spec}, [age])


def _simple(
    resource: Resource,
    description: str,
    properties: dict[str, Any],
    columns: list[dict[str, Any]],
    **more: Any,
) -> dict[str, Any]:
    """Return the definition of a kind with one version."""
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns,
        "schema": _schema(description, properties, required=["spec"]),
        **more,
    }
    return _definition(resource, [version])


def _training_job(kind: TrainingKind) -> dict[str, Any]:
    resource = kind.resource
    versions = [resource.version, V1BETA2] if resource == TFJOBS else [resource.version]
    made = [_training_version(kind, version) for version in versions]
    return _definition(resource, made, conversion=_NO_CONVERSION)


def _training_version(kind: TrainingKind, version: str) -> dict[str, Any]:
    is_current = version == kind.resource.version
    workers = f"{kind.specs_field}.{WORKER}"
    old = _old(kind.resource, version)
    return {
        "name": version,
        "served": True,
        "storage": is_current,
        **({} if is_current else old),
        "additionalPrinterColumns": [_column(*column) for column in _TRAINING_COLUMNS],
        "schema": _schema(
            f"A training of which each pod is a {kind.container} process of one role.",
            {
                "spec": {
                    "description": "What is to run.",
                    **_training_spec(kind, keep_unknown=not is_current),
                },
                "status": {"description": "How far it is.", **schema_of(TrainingJobStatus)},
            },
            required=["spec"],
        ),
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": f".spec.{workers}.replicas",
                "statusReplicasPath": f".status.replicaStatuses.{WORKER}.active",
                "labelSelectorPath": f".status.replicaStatuses.{WORKER}.selector",
            },
        },
    }


def _training_spec(kind: TrainingKind, *, keep_unknown: bool) -> dict[str, Any]:
    assert kind.spec is not None
    schema = schema_of(kind.spec)
    role = schema["properties"][kind.specs_field]["additionalProperties"]
    schema["required"] = [kind.specs_field]
    schema["x-kubernetes-validations"] = [
        {
            "rule": f"{_manager_of('self')} == {_manager_of('oldSelf')}",
            "message": "runPolicy.managedBy is immutable",
        }
    ]
    if keep_unknown:
        for part in (schema, schema["properties"]["runPolicy"], role):
            part["x-kubernetes-preserve-unknown-fields"] = True
    else:
        role["properties"]["template"] |= schema_of_message("core/v1.PodTemplateSpec")
        del role["properties"]["template"]["x-kubernetes-preserve-unknown-fields"]
    return schema


def _mpijob() -> dict[str, Any]:
    versions = [_mpijob_version(resource.version) for resource in MPIJOB_VERSIONS]
    return _definition(MPIJOBS, versions, ("mj", "mpij"), conversion=_NO_CONVERSION)


def _old(resource: Resource, version: str) -> dict[str, Any]:
    """Return what tells clients not to write a version anew; the one-machine cluster does not prefer it."""
    text = f"{resource.group}/{version} {resource.kind} is served for old files"
    return {"deprecated": True, "deprecationWarning": f"{text}; write new ones as {resource.api_version}"}


def _mpijob_version(version: str) -> dict[str, Any]:
    is_current = version == MPIJOBS.version
    description = "A synchronous distributed run: one launcher with mpirun, and its workers."
    if not is_current:
        description += f" Write new jobs as {MPIJOBS.version}; {version} is served for old files."
    return {
        "name": version,
        "served": True,
        "storage": is_current,
        **({} if is_current else _old(MPIJOBS, version)),
        "additionalPrinterColumns": [_column(*column) for column in _MPIJOB_COLUMNS],
        "schema": _schema(
            description,
            {
                "spec": {"description": "What is to run.", **_mpijob_spec(keep_unknown=not is_current)},
                "status": {"description": "How far it is.", **schema_of(MPIJobStatus)},
            },
            required=["spec"],
        ),
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas"
                if version == V1ALPHA1
                else ".spec.mpiReplicaSpecs.Worker.replicas",
                "statusReplicasPath": ".status.replicaStatuses.Worker.active",
            },
        },
    }


def _mpijob_spec(*, keep_unknown: bool) -> dict[str, Any]:
    """The spec of one version.

    It carries the fields of all versions. No defaults for fields that mean something else where they are
    absent in an old version, for an object of an old version is read as the stored one. Old versions keep
    unknown fields: published files have stray ones, which strict clients would refuse. The current one knows
    the fields of a pod template, so that a mistyped one is refused with its path.
    """
    schema = schema_of(MPIJobSpec)
    for name in ("slotsPerWorker", "runLauncherAsWorker", "mpiImplementation"):
        del schema["properties"][name]["default"]
    schema["properties"] |= schema_of(LegacyFields)["properties"]
    role = schema["properties"]["mpiReplicaSpecs"]["additionalProperties"]
    role["properties"]["restartPolicy"]["enum"] = [*RESTART_POLICIES_SERVED]
    schema["anyOf"] = [{"required": ["mpiReplicaSpecs"]}, {"required": ["template"]}]
    schema["x-kubernetes-validations"] = [
        {
            "rule": f"{_manager_of('self')} == {_manager_of('oldSelf')}",
            "message": "runPolicy.managedBy is immutable",
        }
    ]
    if keep_unknown:
        schema["x-kubernetes-preserve-unknown-fields"] = True
        for part in (schema["properties"]["runPolicy"], role):
            part["x-kubernetes-preserve-unknown-fields"] = True
    else:
        role["properties"]["template"] |= schema_of_message("core/v1.PodTemplateSpec")
        del role["properties"]["template"]["x-kubernetes-preserve-unknown-fields"]
    return schema


def _manager_of(value: str) -> str:
    policy = f"{value}.runPolicy"
    return f"(has({policy}) && has({policy}.managedBy) ? {policy}.managedBy : '')"


def _column(name: str, type_: str, path: str, priority: int) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": type_, "jsonPath": path}
    return column | {"priority": priority} if priority else column
