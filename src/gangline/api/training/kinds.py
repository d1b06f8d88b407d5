"""What one kind of the family has of its own; another kind is one more entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gangline.api.resources import PYTORCHJOBS, TFJOBS, TRAINJOBS, Resource
from gangline.api.trainer.job import NODE
from gangline.api.training.job import (
    CHIEF,
    EVALUATOR,
    MASTER,
    PS,
    WORKER,
    PyTorchJobSpec,
    TFJobSpec,
    TrainingReplicaSpec,
)


@dataclass(frozen=True, slots=True)
class TrainingKind:
    """One kind of training job.

    Attributes:
        resource: where its objects live, in the version that is stored.
        spec: type of its spec; None where its roles are not written in it.
        specs_field: name of the map of replica specs, as manifests spell it.
        types: its replica types, in the order in which they are looked at.
        container: name of the container that trains.
        port_name: of the port by which replicas reach each other.
        port: its number, where the container names none.
        restart_policy: of a role that says none.
        folds_case: whether ``worker`` means ``Worker``.
    """

    resource: Resource
    spec: type[PyTorchJobSpec] | type[TFJobSpec] | None
    specs_field: str
    types: tuple[str, ...]
    container: str
    port_name: str
    port: int
    restart_policy: str
    folds_case: bool = False

    @property
    def name(self) -> str:
        """The kind as manifests spell it."""
        return self.resource.kind

    @property
    def controller(self) -> str:
        """Value of the label ``operator-name`` and source of the events."""
        return f"{self.resource.kind.lower()}-controller"

    def specs_of(self, spec: Any) -> dict[str, TrainingReplicaSpec]:
        """Return the replica specs of a typed spec, as they are written."""
        found = spec.tf_replica_specs if isinstance(spec, TFJobSpec) else spec.pytorch_replica_specs
        return found or {}

    def type_of(self, key: str) -> str:
        """Return the type that a key of the map means; the key itself where it means none."""
        if not self.folds_case:
            return key
        return next((known for known in self.types if known.lower() == key.lower()), key)


PYTORCHJOB: Final = TrainingKind(
    resource=PYTORCHJOBS,
    spec=PyTorchJobSpec,
    specs_field="pytorchReplicaSpecs",
    types=(MASTER, WORKER),
    container="pytorch",
    port_name="pytorchjob-port",
    port=23456,
    restart_policy="OnFailure",
)
TFJOB: Final = TrainingKind(
    resource=TFJOBS,
    spec=TFJobSpec,
    specs_field="tfReplicaSpecs",
    types=(CHIEF, EVALUATOR, MASTER, PS, WORKER),
    container="tensorflow",
    port_name="tfjob-port",
    port=2222,
    restart_policy="Never",
    folds_case=True,
)
TRAINJOB: Final = TrainingKind(
    resource=TRAINJOBS,
    spec=None,
    specs_field="",
    types=(),
    container=NODE,
    port_name="",
    port=29500,
    restart_policy="OnFailure",
)
"""Its roles are its runtime's; it is read by ``gangline.api.trainer.reading``."""
TRAINING_KINDS: Final = (PYTORCHJOB, TFJOB)


def training_kind(name: str) -> TrainingKind | None:
    """Return the kind of the family that manifests spell so; None for every other."""
    return next((kind for kind in TRAINING_KINDS if kind.name == name), None)
