"""Structural schemas of custom kinds: drop unknown fields, fill in defaults, validate.

What OpenAPI v3 allows in a CRD is honoured, but that of the formats only dates are checked; rules written in
CEL are in ``schema_rules``.
The top level's ``apiVersion``, ``kind`` and ``metadata`` belong to every object.
Source: apiextensions.k8s.io/v1 JSONSchemaProps; the words of errors are those of kube-openapi.
"""

from __future__ import annotations

from typing import Any

from gangline.clock import parse_time
from gangline.cluster.server.rules import patterns
from gangline.cluster.server.rules.field_rules import (
    duplicate,
    invalid,
    not_supported,
    required,
    shown,
    type_invalid,
)
from gangline.cluster.server.wire.field_types import Findings, known_metadata
from gangline.errors import FieldError

Schema = dict[str, Any]
_OBJECT_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def prune(obj: dict[str, Any], schema: Schema | None) -> tuple[dict[str, Any], list[str]]:
    """Return the object without fields that the schema does not have, and the paths of those fields.

    Without a schema nothing is dropped. Cost: O(size of the object); unchanged parts are shared.
    """
    if schema is None:
        return obj, []
    dropped: list[str] = []
    return _prune(obj, schema, "", dropped, is_object=True), dropped


def _prune(value: Any, schema: Schema, path: str, dropped: list[str], *, is_object: bool = False) -> Any:
    if isinstance(value, list):
        items = schema.get("items")
        if not isinstance(items, dict):
            return value
        return [_prune(item, items, f"{path}[{index}]", dropped) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    keeps = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    is_object = is_object or bool(schema.get("x-kubernetes-embedded-resource"))
    result = {}
    for key, item in value.items():
        place = f"{path}.{key}" if path else key
        if is_object and key == "metadata" and isinstance(item, dict):
            result[key] = known_metadata(item, place, Findings(unknown=dropped))
        elif is_object and key in _OBJECT_FIELDS:
            result[key] = item
        elif key in properties:
            result[key] = _prune(item, properties[key], place, dropped)
        elif isinstance(additional, dict):
            result[key] = _prune(item, additional, place, dropped)
        elif additional is True or keeps:
            result[key] = item
        else:
            dropped.append(place)
    return result


def defaults(obj: dict[str, Any], schema: Schema | None) -> dict[str, Any]:
    """Return the object with the schema's ``default`` values where fields are absent.

    A null counts as absent where the field is not nullable, and goes where it has no default. Cost: O(size of
    the object and of the schema's properties on its paths); unchanged parts are shared.
    """
    if schema is None:
        return obj
    result = _defaults(obj, schema)
    return result if isinstance(result, dict) else obj


def _defaults(value: Any, schema: Schema) -> Any:
    if isinstance(value, list):
        items = schema.get("items")
        if not isinstance(items, dict):
            return value
        filled = [_defaults(item, items) for item in value]
        return filled if any(new is not old for new, old in zip(filled, value, strict=True)) else value
    if not isinstance(value, dict):
        return value
    result = value
    properties: dict[str, Schema] = schema.get("properties") or {}
    for key, child in properties.items():
        is_null = key in value and value[key] is None and not child.get("nullable")
        if "default" in child and (is_null or key not in value):
            new = _defaults(child["default"], child)
        elif is_null:
            result = dict(value) if result is value else result
            del result[key]
            continue
        elif key in value:
            new = _defaults(value[key], child)
            if new is value[key]:
                continue
        else:
            continue
        if result is value:
            result = dict(value)
        result[key] = new
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        for key in value.keys() - properties.keys():
            if value[key] is None and not additional.get("nullable"):
                result = dict(value) if result is value else result
                del result[key]
                continue
            new = _defaults(value[key], additional)
            if new is not value[key]:
                result = dict(value) if result is value else result
                result[key] = new
    return result


def validate(
    obj: dict[str, Any], schema: Schema | None, old: dict[str, Any] | None = None
) -> list[FieldError]:
    """Return every rule of the schema that the object breaks, in the order of the object's fields.

    What an update leaves as it was is not judged again (validation ratcheting, by field of the top
    level): it came in under another version or an earlier definition. Cost: O(size of the object), patterns
    are compiled once.
    """
    errors: list[FieldError] = []
    if schema is not None:
        if old is not None:
            changed = {
                name: part
                for name, part in (schema.get("properties") or {}).items()
                if name not in old or name not in obj or old[name] != obj[name]
            }
            schema = {**schema, "properties": changed}
        _validate(obj, schema, "", errors)
    return errors


def _validate(value: Any, schema: Schema, path: str, errors: list[FieldError]) -> None:
    if value is None:
        if not schema.get("nullable") and schema.get("type"):
            errors.append(type_invalid(path, value, schema["type"]))
        return
    if not _has_type(value, schema):
        wanted = "integer or string" if schema.get("x-kubernetes-int-or-string") else schema["type"]
        errors.append(type_invalid(path, value, wanted))
        return
    if "enum" in schema and value not in schema["enum"]:
        errors.append(not_supported(path, value, [str(item) for item in schema["enum"]]))
    if isinstance(value, str):
        _check_text(value, schema, path, errors)
    elif isinstance(value, bool):
        pass
    elif isinstance(value, int | float):
        _check_number(value, schema, path, errors)
    elif isinstance(value, list):
        _check_list(value, schema, path, errors)
    elif isinstance(value, dict):
        _check_object(value, schema, path, errors)
    _check_combinations(value, schema, path, errors)


def _has_type(value: Any, schema: Schema) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, int | str) and not isinstance(value, bool)
    wanted = schema.get("type")
    if wanted == "integer":
        whole = isinstance(value, float) and value.is_integer()
        return (isinstance(value, int) or whole) and not isinstance(value, bool)
    if wanted == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    types: dict[str, type] = {"string": str, "boolean": bool, "object": dict, "array": list}
    return wanted not in types or isinstance(value, types[wanted])


def _bounds(
    count: int,
    schema: Schema,
    least: str,
    most: str,
    noun: str,
    value: Any,
    path: str,
    errors: list[FieldError],
) -> None:
    if least in schema and count < schema[least]:
        errors.append(invalid(path, value, f"{path} in body should have at least {schema[least]} {noun}"))
    if most in schema and count > schema[most]:
        errors.append(invalid(path, value, f"{path} in body should have at most {schema[most]} {noun}"))


def _check_text(value: str, schema: Schema, path: str, errors: list[FieldError]) -> None:
    _bounds(len(value), schema, "minLength", "maxLength", "chars", value, path, errors)
    pattern = schema.get("pattern")
    if pattern and not patterns.is_found(pattern, value):
        errors.append(invalid(path, value, f"{path} in body should match '{pattern}'"))
    if schema.get("format") == "date-time":
        try:
            parse_time(value)
        except ValueError:
            errors.append(invalid(path, value, f"{path} in body must be of type date-time: {shown(value)}"))


def _check_number(value: float, schema: Schema, path: str, errors: list[FieldError]) -> None:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None:
        strict = bool(schema.get("exclusiveMinimum"))
        if value < least or (strict and value == least):
            words = "greater than" if strict else "greater than or equal to"
            errors.append(invalid(path, value, f"{path} in body should be {words} {least}"))
    if most is not None:
        strict = bool(schema.get("exclusiveMaximum"))
        if value > most or (strict and value == most):
            words = "less than" if strict else "less than or equal to"
            errors.append(invalid(path, value, f"{path} in body should be {words} {most}"))
    multiple = schema.get("multipleOf")
    if multiple and value % multiple:
        errors.append(invalid(path, value, f"{path} in body should be a multiple of {multiple}"))
    if schema.get("type") == "integer" and not -(1 << 63) <= value < 1 << 63:  # whatever its format
        errors.append(invalid(path, value, f"{path} in body must be of type integer"))


def _check_list(value: list[Any], schema: Schema, path: str, errors: list[FieldError]) -> None:
    _bounds(len(value), schema, "minItems", "maxItems", "items", value, path, errors)
    items = schema.get("items")
    if isinstance(items, dict):
        for index, item in enumerate(value):
            _validate(item, items, f"{path}[{index}]", errors)
    list_type = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or []
    seen: set[str] = set()
    for index, item in enumerate(value):
        if list_type == "map" and isinstance(item, dict):
            identity: Any = {key: item.get(key) for key in keys}
        elif list_type == "set" or schema.get("uniqueItems"):
            identity = item
        else:
            return
        text = shown(identity)
        if text in seen:
            errors.append(duplicate(f"{path}[{index}]", identity))
        seen.add(text)


def _check_object(value: dict[str, Any], schema: Schema, path: str, errors: list[FieldError]) -> None:
    _bounds(len(value), schema, "minProperties", "maxProperties", "properties", value, path, errors)
    for key in schema.get("required") or []:
        if key not in value:
            errors.append(required(f"{path}.{key}" if path else key))
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for key, item in value.items():
        place = f"{path}.{key}" if path else key
        if not path and key in _OBJECT_FIELDS:
            continue
        if key in properties:
            _validate(item, properties[key], place, errors)
        elif isinstance(additional, dict):
            _validate(item, additional, place, errors)


def _breaks(value: Any, schema: Schema, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    _validate(value, schema, path, errors)
    return errors


def _check_combinations(value: Any, schema: Schema, path: str, errors: list[FieldError]) -> None:
    for part in schema.get("allOf") or []:
        _validate(value, part, path, errors)
    any_of = schema.get("anyOf")
    if any_of and all(_breaks(value, part, path) for part in any_of):
        errors.append(invalid(path, value, f"{path} in body must validate at least one schema (anyOf)"))
    one_of = schema.get("oneOf")
    if one_of and sum(not _breaks(value, part, path) for part in one_of) != 1:
        errors.append(invalid(path, value, f"{path} in body must validate one and only one schema (oneOf)"))
    if "not" in schema and not _breaks(value, schema["not"], path):
        errors.append(invalid(path, value, f"{path} in body must not validate the schema (not)"))
