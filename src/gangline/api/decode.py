"""From plain values to typed ones, with every type error at once.

``msgspec.convert`` stops at the first error and knows no "did you mean"; this walk reports all of them as
field errors and still returns the best value it can, so that the rules of a kind can be checked as well.
It is meant for manifests and specs (tens of microseconds), not for hot decoding, which stays with msgspec.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Literal, TypeVar

import msgspec
import msgspec.inspect as types

from gangline.api.metadata import ObjectMeta, Wire
from gangline.errors import FieldError

T = TypeVar("T", bound=msgspec.Struct)
Unknown = Literal["error", "similar", "ignore"]

_VALUE_CHARACTERS_MAX = 64
_SKIP = object()
_TOP_LEVEL = ("apiVersion", "kind", "metadata", "spec", "status")


def decode(
    value: Any, type_: type[T], *, path: str = "", unknown: Unknown = "error"
) -> tuple[T, list[FieldError]]:
    """Return the typed value and every error of type or field name, in the order of the document.

    A field with an error is left at its default. ``null`` counts as absent, as in the Kubernetes API.

    Args:
        value: what a manifest or the API gave.
        type_: a struct type whose fields all have defaults, or whose missing fields are errors here.
        path: prefix of the error paths, for example ``spec``.
        unknown: ``error`` reports every unknown field; ``similar`` only those that look like a mistyped
            known one; ``ignore`` none.
    """
    walk = _Walk(unknown)
    result = walk.struct(value if value is not None else {}, _fields_of(type_), path)
    if result is _SKIP:
        result = _empty(type_)
    return result, walk.errors


class _Metadata(Wire, frozen=True, kw_only=True):
    """What a user may write into ``metadata``; unknown fields are the API server's concern."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


def read_head(document: dict[str, Any]) -> tuple[ObjectMeta, list[FieldError]]:
    """Return the metadata, and the errors of metadata, of a spec that is not there, of unknown fields."""
    metadata, errors = decode(document.get("metadata"), _Metadata, path="metadata", unknown="ignore")
    if "spec" not in document:
        errors.append(FieldError("Required", "spec", "must be set"))
    for name in document:
        if name not in _TOP_LEVEL:
            meant = similar_name(str(name), _TOP_LEVEL)
            errors.append(
                unknown_field(join_path("", str(name)), f"did you mean `{meant}`?" if meant else "")
            )
    return ObjectMeta(**{name: getattr(metadata, name) for name in _Metadata.__struct_fields__}), errors


def similar_name(name: str, known: Iterable[str]) -> str:
    """Return the known name that was probably meant, or an empty string."""
    from difflib import get_close_matches

    lowered = {candidate.lower(): candidate for candidate in known}
    if name.lower() in lowered:
        return lowered[name.lower()]
    found = get_close_matches(name.lower(), lowered, n=1, cutoff=0.75)
    return lowered[found[0]] if found else ""


def unknown_field(path: str, advice: str = "") -> FieldError:
    """Return the error of a field that the kind does not have."""
    return FieldError("Invalid", path, "unknown field" + (f"; {advice}" if advice else ""), is_unknown=True)


def join_path(path: str, name: str) -> str:
    """Return the path of a named field below ``path``."""
    name = name or '""'
    return f"{path}.{name}" if path else name


def show(value: Any) -> str:
    """Return a value as error messages print it, in bounded length."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = value
    else:
        text = msgspec.json.encode(value).decode()
    return text if len(text) <= _VALUE_CHARACTERS_MAX else text[: _VALUE_CHARACTERS_MAX - 3] + "..."


def is_deeper(value: Any, levels: int) -> bool:
    """Whether objects and lists are nested in more than so many levels; takes any depth. Cost: O(parts)."""
    layer = [value]
    for _ in range(levels + 1):
        inner: list[Any] = []
        for part in layer:
            if isinstance(part, dict):
                inner += part.values()
            elif isinstance(part, list):
                inner += part
        layer = [part for part in inner if isinstance(part, dict | list)]
        if not layer:
            return False
    return True


@cache
def _fields_of(type_: type[msgspec.Struct]) -> types.StructType:
    info = types.type_info(type_)
    assert isinstance(info, types.StructType)
    return info


def _empty(type_: type[T]) -> T:
    """An instance whose required fields carry empty values, for a value that was no object at all."""
    blanks = {
        field.name: _blank(field.type)
        for field in _fields_of(type_).fields
        if field.default is msgspec.NODEFAULT
    }
    return type_(**{name: blank for name, blank in blanks.items() if blank is not None})


def _blank(info: types.Type) -> Any:
    info = _bare(info)
    blanks: dict[type, Any] = {types.StrType: "", types.IntType: 0, types.BoolType: False}
    return blanks.get(type(info))


def _bare(info: types.Type) -> types.Type:
    while isinstance(info, types.Metadata):
        info = info.type
    return info


class _Walk:
    """One pass over a value; ``errors`` fills up on the way."""

    def __init__(self, unknown: Unknown) -> None:
        self.unknown = unknown
        self.errors: list[FieldError] = []

    def wrong(self, path: str, message: str, value: Any) -> Any:
        self.errors.append(FieldError("TypeInvalid", path, message, show(value)))
        return _SKIP

    def any(self, value: Any, info: types.Type, path: str) -> Any:
        info = _bare(info)
        match info:
            case types.AnyType():
                return value
            case types.UnionType():
                return self.union(value, info, path)
            case types.StructType():
                return self.struct(value, info, path)
            case types.ListType():
                return self.items(value, info, path)
            case types.DictType():
                return self.mapping(value, info, path)
            case types.IntType():
                return self.integer(value, info, path)
            case types.FloatType():
                if isinstance(value, bool) or not isinstance(value, int | float):
                    return self.wrong(path, "must be a number", value)
                return value
            case types.BoolType():
                if not isinstance(value, bool):
                    return self.wrong(path, "must be true or false, without quotes", value)
                return value
            case types.StrType():
                if not isinstance(value, str):
                    scalar = isinstance(value, int | float)
                    return self.wrong(path, "must be text" + ("; put it in quotes" if scalar else ""), value)
                return value
        raise TypeError(f"no rule for {info!r} at {path}")

    def union(self, value: Any, info: types.UnionType, path: str) -> Any:
        choices = [choice for choice in info.types if not isinstance(_bare(choice), types.NoneType)]
        if len(choices) == 1:
            return self.any(value, choices[0], path)
        for choice in choices:
            attempt = _Walk(self.unknown)
            result = attempt.any(value, choice, path)
            if not attempt.errors:
                return result
        return self.wrong(path, "must be a number or text", value)

    def integer(self, value: Any, info: types.IntType, path: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            quoted = isinstance(value, str) and value.strip().lstrip("+-").isdigit()
            return self.wrong(path, "must be a whole number" + (", without quotes" if quoted else ""), value)
        if (info.ge is not None and value < info.ge) or (info.le is not None and value > info.le):
            return self.wrong(path, f"must lie between {info.ge} and {info.le}", value)
        return value

    def items(self, value: Any, info: types.ListType, path: str) -> Any:
        if not isinstance(value, list):
            return self.wrong(path, "must be a list", value)
        found = (self.any(item, info.item_type, f"{path}[{index}]") for index, item in enumerate(value))
        return [item for item in found if item is not _SKIP]

    def mapping(self, value: Any, info: types.DictType, path: str) -> Any:
        if not isinstance(value, dict):
            return self.wrong(path, "must be an object", value)
        result = {}
        for key, item in value.items():
            if item is None and not isinstance(_bare(info.value_type), types.AnyType | types.StructType):
                continue
            entry = self.any({} if item is None else item, info.value_type, f"{path}[{key}]")
            if entry is not _SKIP:
                result[key] = entry
        return result

    def struct(self, value: Any, info: types.StructType, path: str) -> Any:
        if not isinstance(value, dict):
            return self.wrong(path, "must be an object", value)
        known = {field.encode_name: field for field in info.fields}
        arguments: dict[str, Any] = {}
        for name, item in value.items():
            field = known.get(name)
            if field is None:
                self.report_unknown(name, known, path)
            elif item is not None:
                entry = self.any(item, field.type, join_path(path, name))
                arguments[field.name] = entry
        return self.build(info, arguments, path)

    def build(self, info: types.StructType, arguments: dict[str, Any], path: str) -> Any:
        """Make the struct; a missing required field is an error and gets an empty value."""
        for field in info.fields:
            missing = field.name not in arguments
            if not missing and arguments[field.name] is not _SKIP:
                continue
            if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT:
                if missing:
                    self.errors.append(
                        FieldError("Required", join_path(path, field.encode_name), "must be set")
                    )
                arguments[field.name] = _blank(field.type)
            else:
                arguments.pop(field.name, None)
        return info.cls(**arguments)

    def report_unknown(self, name: str, known: Iterable[str], path: str) -> None:
        if self.unknown == "ignore":
            return
        meant = similar_name(name, known)
        if self.unknown == "similar" and not meant:
            return
        advice = f"did you mean `{meant}`?" if meant else ""
        self.errors.append(unknown_field(join_path(path, str(name)), advice))
