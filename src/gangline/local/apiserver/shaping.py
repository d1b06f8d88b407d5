"""The rules of one object alone, in the order in which the server applies them.

Unknown fields, defaults, validation: for built-in kinds from tables, for custom kinds from the CRD's schema.
"""

from __future__ import annotations

from typing import Any

from gangline.local.apiserver import defaults, failures, schema
from gangline.local.apiserver.served import ServedResource
from gangline.local.apiserver.unknown_fields import drop_unknown


def known_fields(
    served: ServedResource, obj: dict[str, Any], field_validation: str
) -> tuple[dict[str, Any], list[str]]:
    """Return the object without fields that the kind does not have, and warnings about them.

    Raises:
        ApiFailure: 400 when ``field_validation`` is ``Strict`` and there are any.
    """
    if served.is_custom:
        kept, unknown = schema.prune(obj, served.schema)
    else:
        kept, unknown = drop_unknown(served.resource, obj)
    if not unknown or field_validation == "Ignore":
        return kept, []
    messages = [f'unknown field "{path}"' for path in unknown]
    if field_validation == "Strict":
        resource = served.resource
        raise failures.bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {', '.join(messages)}"
        )
    return kept, messages


def first_state(served: ServedResource, obj: dict[str, Any]) -> dict[str, Any]:
    """Return a new object with defaults, and without the status that only the subresource may set."""
    if served.is_custom:
        if "status" in served.subresources:
            obj = {key: value for key, value in obj.items() if key != "status"}
        return schema.defaults(obj, served.schema)
    return defaults.apply_defaults(served.resource, obj)


def later_state(served: ServedResource, obj: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return an updated object with defaults."""
    if served.is_custom:
        return schema.defaults(obj, served.schema)
    return defaults.apply_defaults(served.resource, obj, old=old)


def check(
    served: ServedResource, obj: dict[str, Any], old: dict[str, Any] | None, *, subresource: str = ""
) -> None:
    """Refuse an object that breaks rules.

    Raises:
        ApiFailure: 422 with every broken rule.
    """
    try:
        from gangline.local.apiserver import validation
    except ImportError:
        return
    errors = validation.validate(served.resource, obj, old)
    if served.is_custom:
        errors = [*errors, *schema.validate(obj, served.schema)]
    if errors:
        raise failures.invalid(served, obj["metadata"]["name"], errors)
