"""The fields of a built-in kind: whether each is known and holds a value of its type; later rules rely on it.

Unknown fields are named and dropped; nulls are dropped without a word: a real server decodes into structs,
where null is the same as absent. For custom kinds ``schema.prune`` does the same with the CRD's schema.

Source: the tables of ``wire_types``. A real server answers 400 for wrong types, in the words of Go's JSON
decoder; ours are field errors, which name every place at once.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gangline.api.resources import Resource
from gangline.api.wire_types import OBJECT_META, Message, WireField, message, message_of_kind
from gangline.clock import parse_time
from gangline.cluster.server.rules.field_rules import invalid, type_invalid
from gangline.errors import FieldError
from gangline.units import parse_quantity

_EVERYWHERE = frozenset({"apiVersion", "kind"})


@dataclass(slots=True)
class Findings:
    """What was found on the way through an object.

    Attributes:
        unknown: paths of fields that the kind does not have.
        errors: of fields that hold a value of another type.
    """

    unknown: list[str] = field(default_factory=list)
    errors: list[FieldError] = field(default_factory=list)


def known_fields(resource: Resource, obj: dict[str, Any]) -> tuple[dict[str, Any], Findings]:
    """Return the object without nulls and unknown fields, and what was found.

    Kinds outside the tables lose their nulls alone; values of a wrong type are left as they are. Cost: O(size
    of the object), about 10 µs for a pod; without unknown fields and nulls the object itself comes back.
    """
    found = Findings()
    schema = message_of_kind(resource.group, resource.version, resource.kind)
    return (without_nulls(obj) if schema is None else _object(obj, schema, "", found)), found


def known_metadata(metadata: dict[str, Any], path: str, found: Findings) -> dict[str, Any]:
    """Return the metadata of an object of any kind as ``known_fields`` does; adds to what was found."""
    return _object(metadata, message(OBJECT_META), path, found)


def type_errors(resource: Resource, obj: dict[str, Any]) -> list[FieldError]:
    """Return an error for every field of a built-in kind that holds a value of another type; null is of any
    type.
    """
    return known_fields(resource, obj)[1].errors


def message_type_errors(name: str, obj: dict[str, Any]) -> list[FieldError]:
    """Return an error for every field of another type in a message, ``core/v1.Binding``."""
    found = Findings()
    _object(obj, message(name), "", found)
    return found.errors


def metadata_type_errors(obj: dict[str, Any]) -> list[FieldError]:
    """Return an error for every field of ``metadata`` that holds a value of another type, for any kind."""
    metadata = obj.get("metadata")
    if metadata is None:
        return []
    if not isinstance(metadata, dict):
        return [type_invalid("metadata", metadata, "object")]
    found = Findings()
    known_metadata(metadata, "metadata", found)
    return found.errors


def _object(value: dict[str, Any], schema: Message, path: str, found: Findings) -> dict[str, Any]:
    result = value
    by_name = schema.by_name
    for key, item in value.items():
        known = by_name.get(key)
        if known is not None and item is not None:
            if _is_plainly_right(item, known):
                continue
            new = _value(item, known, f"{path}.{key}" if path else key, found)
            if new is not item:
                result = dict(value) if result is value else result
                result[key] = new
        elif known is not None or path or key not in _EVERYWHERE:
            if known is None:
                found.unknown.append(f"{path}.{key}" if path else key)
            result = dict(value) if result is value else result
            del result[key]
    return result


def _is_plainly_right(item: Any, field: WireField) -> bool:
    """Whether a value is of a simple type and has it: most fields, so that no path is built for them."""
    wanted = _PLAIN.get(field.type)
    if wanted is None:
        return False
    if not field.shape:
        return type(item) is wanted
    if field.shape == "*":
        return isinstance(item, list) and all(type(member) is wanted for member in item)
    return isinstance(item, dict) and all(type(member) is wanted for member in item.values())


def _value(item: Any, field: WireField, path: str, found: Findings) -> Any:
    if not field.shape:
        return _one(item, field, path, found)
    if field.shape == "*":
        if not isinstance(item, list):
            found.errors.append(type_invalid(path, item, "array"))
            return item
        items = [_one(one, field, f"{path}[{index}]", found) for index, one in enumerate(item)]
        return items if any(new is not old for new, old in zip(items, item, strict=True)) else item
    if not isinstance(item, dict):
        found.errors.append(type_invalid(path, item, "object"))
        return item
    place = "{}.{}" if field.is_message else "{}[{}]"
    members = {name: _one(one, field, place.format(path, name), found) for name, one in item.items()}
    return members if any(members[name] is not item[name] for name in item) else item


def _one(value: Any, field: WireField, path: str, found: Findings) -> Any:
    if field.is_message:
        if isinstance(value, dict):
            return _object(value, message(field.type), path, found)
        found.errors.append(type_invalid(path, value, "object"))
        return value
    check = _CHECKS.get(field.type)
    if check is not None and (error := check(path, value)) is not None:
        found.errors.append(error)
    return value


def without_nulls(value: Any) -> Any:
    """Return a value of a kind outside the tables without the null fields of its objects."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value


def _text(path: str, value: Any) -> FieldError | None:
    return None if isinstance(value, str) else type_invalid(path, value, "string")


def _integer(path: str, value: Any) -> FieldError | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return None
    return type_invalid(path, value, "integer")


def _boolean(path: str, value: Any) -> FieldError | None:
    return None if isinstance(value, bool) else type_invalid(path, value, "boolean")


def _bytes(path: str, value: Any) -> FieldError | None:
    if not isinstance(value, str):
        return type_invalid(path, value, "string")
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return invalid(path, value, "must be base64")
    return None


def _time(path: str, value: Any) -> FieldError | None:
    if not isinstance(value, str):
        return type_invalid(path, value, "string")
    try:
        parse_time(value)
    except ValueError:
        return invalid(path, value, "must be a time in RFC 3339 form, for example 2026-01-31T12:00:00Z")
    return None


def _quantity(path: str, value: Any) -> FieldError | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return type_invalid(path, value, "quantity")
    try:
        parse_quantity(value)
    except ValueError:
        return invalid(
            path,
            value,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        )
    return None


def _int_or_text(path: str, value: Any) -> FieldError | None:
    if isinstance(value, int | str) and not isinstance(value, bool):
        return None
    return type_invalid(path, value, "integer or string")


def _texts(path: str, value: Any) -> FieldError | None:
    is_right = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return None if is_right else type_invalid(path, value, "array of strings")


def _number(path: str, value: Any) -> FieldError | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return None
    return type_invalid(path, value, "number")


_PLAIN: dict[str, type] = {"s": str, "i": int, "b": bool}
_CHECKS: dict[str, Callable[[str, Any], FieldError | None]] = {
    "s": _text,
    "i": _integer,
    "b": _boolean,
    "y": _bytes,
    "T": _time,
    "M": _time,
    "Q": _quantity,
    "I": _int_or_text,
    "f": _number,
    "L": _texts,
}
