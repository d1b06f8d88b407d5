"""The rules of one object alone, in the order in which the server applies them.

Unknown fields, defaults, validation: for built-in kinds from tables, for custom kinds from the CRD's schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gangline.api.resources import CRDS
from gangline.cluster.server import status_errors
from gangline.cluster.server.resources import ServedResource
from gangline.cluster.server.rules import defaults, schema, validation
from gangline.cluster.server.rules.crd_types import crd_type_errors
from gangline.cluster.server.rules.scale_values import scale_errors
from gangline.cluster.server.rules.schema_rules import broken_rules, unserved_rules
from gangline.cluster.server.wire import field_types


class UnknownFields(status_errors.StatusError):
    """A kind does not have fields that an object has, or the object has some twice.

    Attributes:
        paths: of the unknown fields.
    """

    def __init__(self, served: ServedResource, paths: Sequence[str], said: Sequence[str]) -> None:
        failure = _unreadable(served, [f"strict decoding error: {', '.join(said)}"])
        super().__init__(failure.code, failure.reason, failure.message)
        self.paths = paths


def known_patched_fields(
    served: ServedResource, old: dict[str, Any], new: dict[str, Any], field_validation: str
) -> tuple[dict[str, Any], list[str]]:
    """Do what ``known_fields`` does, for the top-level fields that a patch has touched.

    A patched object shares with the stored one whatever the patch left alone, and that was checked before: a
    patch of the status costs what the status costs.

    Raises:
        StatusError: as ``known_fields``.
    """
    touched = {key: value for key, value in new.items() if value is not old.get(key)}
    kept, warnings = known_fields(served, touched, field_validation)
    return {
        key: value for key, value in {**new, **kept}.items() if key in kept or key not in touched
    }, warnings


def known_fields(
    served: ServedResource, obj: dict[str, Any], field_validation: str, duplicates: Sequence[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """Return the object without fields that the kind does not have, and warnings about them.

    For a definition also about its rules that will not be evaluated. Everything later relies on the types
    that are checked here. ``duplicates`` are paths of fields that the body had twice; the last one counts.

    Raises:
        UnknownFields: 400, ``field_validation`` is ``Strict`` and there are unknown fields or duplicates.
        StatusError: 400, a field holds a value of another type.
    """
    if served.is_custom:
        errors = field_types.metadata_type_errors(obj)
    else:
        kept, found = field_types.known_fields(served.resource, obj)
        unknown, errors = found.unknown, found.errors
    if served.resource == CRDS:
        errors = errors or crd_type_errors(obj)
    if errors:
        raise _unreadable(served, [str(error) for error in errors])
    if served.is_custom:
        kept, unknown = schema.prune(obj, served.schema)
    warnings = unserved_rules(kept) if served.resource == CRDS else []
    messages = [f'unknown field "{path}"' for path in unknown]
    messages += [f'duplicate field "{path}"' for path in duplicates]
    if not messages or field_validation == "Ignore":
        return kept, warnings
    if field_validation == "Strict":
        raise UnknownFields(served, unknown, messages)
    return kept, warnings + messages


def _unreadable(served: ServedResource, causes: list[str]) -> status_errors.StatusError:
    resource = served.resource
    return status_errors.bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
        f"{'; '.join(causes)}"
    )


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
        StatusError: 422 with every broken rule.
    """
    errors = validation.validate(served.resource, obj, old, subresource=subresource, types_checked=True)
    if served.is_custom:
        errors = [*errors, *schema.validate(obj, served.schema, old), *scale_errors(obj, served.scale_paths)]
        errors = errors or broken_rules(obj, old, served.schema)
    if errors:
        raise status_errors.invalid(served, obj["metadata"]["name"], errors)
