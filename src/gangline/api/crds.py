"""The custom resource definitions that Gangline brings, as `gangline crds` prints them."""

from __future__ import annotations

from typing import Any

from gangline.api.mpijob import MPIJobSpec, MPIJobStatus
from gangline.api.resources import MPIJOBS
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
            "versions": [_mpijob_v2beta1()],
        },
    }


def _mpijob_v2beta1() -> dict[str, Any]:
    spec = schema_of(MPIJobSpec) | {"required": ["mpiReplicaSpecs"]}
    return {
        "name": MPIJOBS.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(*column) for column in _MPIJOB_COLUMNS],
        "schema": {
            "openAPIV3Schema": {
                "description": "A synchronous distributed run: one launcher with mpirun, and its workers.",
                "type": "object",
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"type": "object"},
                    "spec": {"description": "What is to run.", **spec},
                    "status": {"description": "How far it is.", **schema_of(MPIJobStatus)},
                },
                "required": ["spec"],
            }
        },
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.mpiReplicaSpecs.Worker.replicas",
                "statusReplicasPath": ".status.replicaStatuses.Worker.active",
            },
        },
    }


def _column(name: str, type_: str, path: str, priority: int) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": type_, "jsonPath": path}
    return column | {"priority": priority} if priority else column
