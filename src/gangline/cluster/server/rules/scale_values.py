"""The numbers of replicas of a custom object, at the places that its definition names for ``scale``."""

from __future__ import annotations

from typing import Any

from gangline.cluster.server.rules.field_rules import invalid
from gangline.errors import FieldError

REPLICAS_MAX = 2**31 - 1


def read_path(obj: dict[str, Any], path: str) -> Any:
    """Return the value at a simple path (``.spec.replicas``), or None."""
    value: Any = obj
    for part in path.strip(".").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def write_path(obj: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return the object with another value at a simple path; what leads there is copied."""
    head, _, rest = path.strip(".").partition(".")
    if not rest:
        return {**obj, head: value}
    inner = obj.get(head)
    return {**obj, head: write_path(inner if isinstance(inner, dict) else {}, rest, value)}


def scale_errors(obj: dict[str, Any], paths: dict[str, str] | None) -> list[FieldError]:
    """Return what is wrong with an object's numbers of replicas.

    Source: the rules of apiextensions for objects whose definition has the subresource ``scale``.
    """
    errors = []
    for name in ("specReplicasPath", "statusReplicasPath"):
        path = (paths or {}).get(name, "")
        value = read_path(obj, path) if path else None
        if not isinstance(value, int) or isinstance(value, bool):
            continue  # absent, or of a type that the schema refuses
        if value < 0:
            errors.append(invalid(path, value, "should be a non-negative integer"))
        elif value > REPLICAS_MAX:
            errors.append(invalid(path, value, f"should be less than or equal to {REPLICAS_MAX}"))
    return errors
