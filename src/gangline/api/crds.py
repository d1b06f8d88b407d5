"""The custom resource definitions that Gangline brings, as `gangline crds` prints them."""

from __future__ import annotations

from typing import Any

from gangline.api.mpijob import MPIJobSpec, MPIJobStatus
from gangline.api.mpijob_legacy import RESTART_POLICIES_SERVED, V1ALPHA1, LegacyFields
from gangline.api.resources import MPIJOB_VERSIONS, MPIJOBS
from gangline.api.schema import schema_of

_MPIJOB_COLUMNS: tuple[tuple[str, str, str, int], ...] = (
    # The controller keeps the telling condition last, so its type is the state.
    ("State", "string", ".status.conditions[-1:].type", 0),
    ("Running", "integer", ".status.replicaStatuses.Worker.active", 0),
    ("Workers", "integer", ".spec.mpiReplicaSpecs.Worker.replicas", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Slots", "integer", ".spec.slotsPerWorker", 1),
    ("Reason", "string", ".status.conditions[-1:].reason", 1),
    ("Completed", "date", ".status.completionTime", 1),
)


def crds() -> list[dict[str, Any]]:
    """Return every definition as a fresh object in wire form, ready to be applied."""
    return [_mpijob()]


def _mpijob() -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{MPIJOBS.plural}.{MPIJOBS.group}"},
        "spec": {
            "group": MPIJOBS.group,
            "names": {
                "kind": MPIJOBS.kind,
                "listKind": f"{MPIJOBS.kind}List",
                "plural": MPIJOBS.plural,
                "singular": "mpijob",
                "shortNames": ["mj", "mpij"],
            },
            "scope": "Namespaced",
            # The store keeps one version and renames it: every schema must know every field.
            "conversion": {"strategy": "None"},
            "versions": [_mpijob_version(resource.version) for resource in MPIJOB_VERSIONS],
        },
    }


def _mpijob_version(version: str) -> dict[str, Any]:
    is_current = version == MPIJOBS.version
    description = "A synchronous distributed run: one launcher with mpirun, and its workers."
    if not is_current:
        description += f" Write new jobs as {MPIJOBS.version}; {version} is served for old files."
    return {
        "name": version,
        "served": True,
        "storage": is_current,
        "additionalPrinterColumns": [_column(*column) for column in _MPIJOB_COLUMNS],
        "schema": {
            "openAPIV3Schema": {
                "description": description,
                "type": "object",
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"type": "object"},
                    "spec": {"description": "What is to run.", **_mpijob_spec(keep_unknown=not is_current)},
                    "status": {"description": "How far it is.", **schema_of(MPIJobStatus)},
                },
                "required": ["spec"],
            }
        },
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
    unknown fields: published files have stray ones, which strict clients would refuse.
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
    return schema


def _manager_of(value: str) -> str:
    policy = f"{value}.runPolicy"
    return f"(has({policy}) && has({policy}.managedBy) ? {policy}.managedBy : '')"


def _column(name: str, type_: str, path: str, priority: int) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": type_, "jsonPath": path}
    return column | {"priority": priority} if priority else column
