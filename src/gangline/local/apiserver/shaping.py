"""The rules of one object alone, in the order in which the server applies them.

Unknown fields, defaults, validation: for built-in kinds from tables, for custom kinds from the CRD's schema.
"""

from __future__ import annotations

from typing import Any

from gangline.errors import FieldError
from gangline.local.apiserver.served import ServedResource


def required(path: str, message: str) -> FieldError:
    """Return the error of a field that must be there."""
    return FieldError("Required", path, message)


def known_fields(
    served: ServedResource, obj: dict[str, Any], validation: str
) -> tuple[dict[str, Any], list[str]]:
    """Return the object without fields that the kind does not have, and warnings about them.

    Raises:
        ApiFailure: 400 when ``validation`` is ``Strict`` and there are any.
    """
    return obj, []


def first_state(served: ServedResource, obj: dict[str, Any]) -> dict[str, Any]:
    """Return a new object with defaults, and without the status that only the subresource may set."""
    if "status" in served.subresources and served.is_custom:
        obj.pop("status", None)
    return obj


def later_state(served: ServedResource, obj: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return an updated object with defaults."""
    return obj


def check(
    served: ServedResource, obj: dict[str, Any], old: dict[str, Any] | None, *, subresource: str = ""
) -> None:
    """Refuse an object that breaks rules.

    Raises:
        ApiFailure: 422 with every broken rule.
    """
