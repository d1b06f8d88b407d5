"""OpenAPI v3 structural schemas, generated from the typed kinds and from the table of Kubernetes' own.

One source of truth: the descriptions, defaults, enums and bounds that stand beside the fields in the types
are what the API server checks and ``kubectl explain`` prints.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import msgspec.inspect as types

from gangline.api.core import Condition
from gangline.api.wire_types import WireField, message

Schema = dict[str, Any]

_QUANTITY = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}
_WIRE: dict[str, Schema] = {
    "s": {"type": "string"},
    "i": {"type": "integer", "format": "int64"},
    "b": {"type": "boolean"},
    "y": {"type": "string", "format": "byte"},
    "T": {"type": "string", "format": "date-time"},
    "M": {"type": "string", "format": "date-time"},
    # Kubernetes takes `cpu: 0.5`, which is neither an integer nor a string.
    "Q": _ANYTHING,
    "I": {"x-kubernetes-int-or-string": True},
    "L": {"type": "array", "items": {"type": "string"}},
    "F": {"type": "object", **_ANYTHING},
    "R": {"type": "object", **_ANYTHING},
}
_CONDITION_STATUS = ["True", "False", "Unknown"]


def schema_of(type_: type[msgspec.Struct]) -> Schema:
    """Return the structural schema of a struct type.

    A field of plain ``dict[str, Any]`` becomes an object whose fields are all kept.
    """
    return _of(types.type_info(type_))


def schema_of_message(name: str) -> Schema:
    """Return the structural schema of a type of Kubernetes' own, ``core/v1.PodTemplateSpec``.

    Names and types of fields, and nothing that another release may see otherwise: what must be set is left to
    the rules of the kind, lists are replaced as a whole.
    """
    fields = message(name).by_name
    return {"type": "object", "properties": {key: _of_field(field) for key, field in fields.items()}}


def _of_field(field: WireField) -> Schema:
    inner = schema_of_message(field.type) if field.is_message else deepcopy(_WIRE[field.type])
    if field.shape == "*":
        return {"type": "array", "items": inner}
    return {"type": "object", "additionalProperties": inner} if field.shape == "%" else inner


def _of(info: types.Type) -> Schema:
    match info:
        case types.Metadata():
            return _with_extras(info)
        case types.StructType():
            return _struct(info)
        case types.ListType():
            return _list(info)
        case types.DictType():
            if isinstance(_bare(info.value_type), types.AnyType):
                return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            return {"type": "object", "additionalProperties": _of(info.value_type)}
        case types.UnionType():
            return _union(info)
        case types.IntType():
            wide = info.le is None or info.le > 2**31 - 1
            return {"type": "integer", "format": "int64" if wide else "int32"}
        case types.FloatType():
            return {"type": "number"}
        case types.BoolType():
            return {"type": "boolean"}
        case types.StrType():
            return {"type": "string"}
        case types.AnyType():
            return {"x-kubernetes-preserve-unknown-fields": True}
    raise TypeError(f"no schema for {info!r}")


def _bare(info: types.Type) -> types.Type:
    return _bare(info.type) if isinstance(info, types.Metadata) else info


def _with_extras(info: types.Metadata) -> Schema:
    extra = dict(info.extra_json_schema or {})
    description = extra.pop("description", None)
    schema = {"description": description} if description else {}
    return {**schema, **_of(info.type), **schema, **extra}


def _union(info: types.UnionType) -> Schema:
    choices = [choice for choice in info.types if not isinstance(_bare(choice), types.NoneType)]
    if len(choices) == 1:
        return _of(choices[0])
    return dict(_QUANTITY)


def _list(info: types.ListType) -> Schema:
    item = _bare(info.item_type)
    schema: Schema = {"type": "array", "items": _of(info.item_type)}
    if isinstance(item, types.StructType) and item.cls is Condition:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return schema


def _struct(info: types.StructType) -> Schema:
    schema: Schema = {"type": "object", "properties": {f.encode_name: _of(f.type) for f in info.fields}}
    required = [f.encode_name for f in info.fields if f.required]
    if info.cls is Condition:
        required = ["type", "status"]
        schema["properties"]["status"]["enum"] = _CONDITION_STATUS
    if required:
        schema["required"] = required
    return schema
