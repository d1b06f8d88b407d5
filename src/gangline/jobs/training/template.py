"""What the pod template of a role says of the container that trains."""

from __future__ import annotations

from typing import Any

from gangline.api.training.job import TrainingReplicaSpec
from gangline.api.training.kinds import TrainingKind

Object = dict[str, Any]


def training_container(kind: TrainingKind, role: TrainingReplicaSpec) -> Object:
    """Return the first container of the kind's name; an empty one where there is none."""
    return next((found for found in role.containers if found.get("name") == kind.container), {})


def ports_of(kind: TrainingKind, role: TrainingReplicaSpec) -> list[Object]:
    """Return the ports of the container that trains, in the order in which they are written."""
    return [port for port in training_container(kind, role).get("ports") or [] if isinstance(port, dict)]


def port_of(kind: TrainingKind, role: TrainingReplicaSpec) -> int:
    """Return the port by which a role is reached."""
    named = (port for port in ports_of(kind, role) if port.get("name") == kind.port_name)
    return int(next(named, {}).get("containerPort") or kind.port)
