"""The OpenAPI v2 document, translated from v3's parts: all groups in one, as JSON and as protobuf.

kubectl before 1.29 checks files by it, client-go's discovery reads the protobuf form (gnostic's messages,
``openapiv2/OpenAPIv2.proto``). What v2 has no words for is left out as Kubernetes leaves it out
(``ToStructuralOpenAPIV2`` in k8s.io/apiextensions-apiserver). The part of the built-in kinds is encoded once:
two encoded documents one after the other are one document in protobuf, and nearly so in JSON.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from gangline.cluster.server.resources import BUILT_IN_SERVED, ServedResource
from gangline.cluster.server.wire.openapi import parts

PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""Content type of the protobuf form."""
ASKED = "openapi.spec.v2@v1.0+protobuf"
"""How clients ask for it."""
_HEAD = {"swagger": "2.0", "info": {"title": "Gangline", "version": "v1.35"}}
_KIND = "x-kubernetes-group-version-kind"
_JUNCTORS = ("allOf", "oneOf", "anyOf", "not")
_SHARED = "io.k8s.apimachinery.pkg.apis.meta."
_OLD, _NEW = "#/components/schemas/", "#/definitions/"


def json_document(rows: Iterable[ServedResource]) -> bytes:
    """Return the document as JSON. Cost: some 100 ms the first time, then that of the custom kinds."""
    head = msgspec.json.encode(_HEAD)
    both = [*zip(_built_in_json(), _json_parts(_custom(rows)), strict=True)]
    paths, definitions = (b",".join(part for part in pair if part) for pair in both)
    return head[:-1] + b',"paths":{' + paths + b'},"definitions":{' + definitions + b"}}"


def protobuf_document(rows: Iterable[ServedResource]) -> bytes:
    """Return the document as gnostic's ``Document``; cost as above."""
    return _message("Document", _HEAD) + _built_in_protobuf() + _protobuf_parts(_custom(rows))


def _custom(rows: Iterable[ServedResource]) -> list[ServedResource]:
    return [row for row in rows if row.is_custom]


@cache
def _built_in_json() -> tuple[bytes, bytes]:
    return _json_parts(BUILT_IN_SERVED)


@cache
def _built_in_protobuf() -> bytes:
    return _protobuf_parts(BUILT_IN_SERVED)


def _json_parts(rows: Iterable[ServedResource]) -> tuple[bytes, bytes]:
    """Return paths and definitions as JSON without the outer braces."""
    paths, definitions = _translated(rows)
    return msgspec.json.encode(paths)[1:-1], msgspec.json.encode(definitions)[1:-1]


def _protobuf_parts(rows: Iterable[ServedResource]) -> bytes:
    paths, definitions = _translated(rows)
    return _message("Document", {"paths": paths, "definitions": definitions})


def _translated(rows: Iterable[ServedResource]) -> tuple[dict[str, Any], dict[str, Any]]:
    rows = list(rows)
    if not rows:
        return {}, {}
    paths, schemas = parts(rows)
    if all(row.is_custom for row in rows):  # what else stands there is in the part of the built-in kinds
        schemas = {name: schema for name, schema in schemas.items() if not name.startswith(_SHARED)}
    return (
        {path: _path_item(item) for path, item in paths.items()},
        {name: _definition(schema) for name, schema in schemas.items()},
    )


def _definition(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a kind or message; of one that takes any field none is named: kubectl would refuse the rest."""
    if schema.get("x-kubernetes-preserve-unknown-fields") and _KIND in schema:
        return {"type": "object", _KIND: schema[_KIND]}
    return _schema(schema)


def _path_item(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: [_parameter(found) for found in value] if key == "parameters" else _operation(value)
        for key, value in item.items()
    }


def _parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in parameter.items() if key != "schema"}, **parameter["schema"]}


def _operation(operation: Mapping[str, Any]) -> dict[str, Any]:
    reference = _schema(operation["responses"]["200"]["content"]["application/json"]["schema"])
    made = {
        **{key: value for key, value in operation.items() if key not in ("requestBody", "parameters")},
        "consumes": ["*/*"],
        "produces": ["application/json"],
        "responses": {"200": {"description": "OK", "schema": reference}},
    }
    parameters = [_parameter(found) for found in operation.get("parameters", ())]
    if "requestBody" in operation:
        parameters.insert(0, {"name": "body", "in": "body", "required": True, "schema": reference})
    return {**made, "parameters": parameters} if parameters else made


def _schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema in the words of v2."""
    whole: list[dict[str, Any]] = schema.get("allOf") or []
    if "$ref" in schema or (len(whole) == 1 and "$ref" in whole[0]):
        reference = schema.get("$ref") or whole[0]["$ref"]
        kept = {key: schema[key] for key in ("description", "default") if key in schema}
        return {"$ref": reference.replace(_OLD, _NEW), **kept}
    made = {key: value for key, value in schema.items() if key not in (*_JUNCTORS, "nullable")}
    if "oneOf" in schema and "x-kubernetes-int-or-string" not in schema and "type" not in schema:
        made["type"] = "string"  # a quantity, a number or a text: as Kubernetes has them in v2
    keeps_unknown = made.get("x-kubernetes-preserve-unknown-fields") is True
    if schema.get("nullable") or keeps_unknown:  # kubectl cannot read these with a type and fields
        dropped = ("items", "properties")
        made = {key: value for key, value in made.items() if key not in dropped}
        if schema.get("nullable") or made.get("type") == "object":
            made.pop("type", None)
    if made.get("type") == "array" and "items" not in made:
        del made["type"]
    if "properties" in made:
        nullable = {name for name, found in made["properties"].items() if found.get("nullable")}
        made["properties"] = {name: _schema(found) for name, found in made["properties"].items()}
        if nullable and "required" in made:
            made["required"] = [name for name in made["required"] if name not in nullable]
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _schema(made[key])
    return made


_TABLE = {
    "Document": "swagger=1s info=2Info paths=8.2%PathItem definitions=9.1%Schema",
    "Info": "title=1s version=2s",
    "PathItem": "get=2Operation put=3Operation post=4Operation delete=5Operation patch=8Operation"
    " parameters=9*Parameter",
    "Operation": "tags=1*s operationId=5s produces=6*s consumes=7*s parameters=8*Parameter"
    " responses=9.1%Response ~=13",
    "body": "name=2s in=3s required=4b schema=5Schema",
    "query": "in=2s name=4s type=6s uniqueItems=20b",
    "path": "required=1b in=2s name=4s type=5s uniqueItems=19b",
    "Response": "description=1.1s schema=1.2.1Schema",
    "Schema": "$ref=1s format=2s title=3s description=4s default=5A multipleOf=6f maximum=7f"
    " exclusiveMaximum=8b minimum=9f exclusiveMinimum=10b maxLength=11i minLength=12i pattern=13s"
    " maxItems=14i minItems=15i uniqueItems=16b maxProperties=17i minProperties=18i required=19*s enum=20*A"
    " additionalProperties=21.1Schema type=22.1s items=23.1Schema properties=25.1%Schema ~=31",
}
"""The messages, from OpenAPIv2.proto in github.com/google/gnostic-models: ``NAME=NUMBERS[SHAPE]TYPE``.

The numbers are those of the messages that lead to the value; ``*`` a list, ``%`` a map; ``s`` text, ``b``
boolean, ``i`` integer, ``f`` number, ``A`` any value, else a message. Extensions (``x-...``): that of ``~``.
"""
_PARAMETERS = {"body": (1, 1), "query": (1, 2, 3), "path": (1, 2, 4)}
"""Numbers that lead from a parameter to each form of it, by where it is."""
# "paths=8.2%PathItem", "~=13"
_FIELD = re.compile(r"(\S+)=([\d.]+)([*%]?)(\w*)")


@cache
def _fields(name: str) -> dict[str, tuple[tuple[int, ...], str, str]]:
    """Return numbers, shape and type of each field of a message."""
    return {
        field: (tuple(int(number) for number in numbers.split(".")), shape, kind)
        for field, numbers, shape, kind in _FIELD.findall(_TABLE[name])
    }


def _message(name: str, value: Mapping[str, Any]) -> bytes:
    """Return a message; what it has no field for is left out."""
    if name == "Parameter":
        return _wrapped(_PARAMETERS[value["in"]], _message(value["in"], value))
    fields, made = _fields(name), bytearray()
    for key, found in value.items():
        if key.startswith("x-") and "~" in fields:
            made += _wrapped(fields["~"][0], _named(key, _value("A", found)))
        elif key in fields and not (key == "additionalProperties" and not isinstance(found, Mapping)):
            numbers, shape, kind = fields[key]
            if shape == "*":
                items = [_value(kind, item) for item in found]
            elif shape == "%":
                items = [_named(item, _value(kind, entry)) for item, entry in found.items()]
            else:
                items = [_value(kind, found)]
            made += b"".join(_wrapped(numbers, item) for item in items)
    return bytes(made)


def _value(kind: str, value: Any) -> bytes | int | float:
    """Return what stands behind a field's tag: bytes, or a number as such."""
    if kind == "s":
        return str(value).encode()
    if kind in ("b", "i"):
        return int(value)
    if kind == "f":
        return float(value)
    if kind == "A":
        return _wrapped((2,), msgspec.json.encode(value))  # JSON is YAML
    return _message(kind, value)


def _named(name: str, value: bytes | int | float) -> bytes:
    return _wrapped((1,), name.encode()) + _wrapped((2,), value)


def _wrapped(numbers: tuple[int, ...], value: bytes | int | float) -> bytes:
    """Return a value as the field of these numbers, the outermost first."""
    for number in reversed(numbers):
        if isinstance(value, bytes):
            value = _varint(number << 3 | 2) + _varint(len(value)) + value
        elif isinstance(value, float):
            value = _varint(number << 3 | 1) + struct.pack("<d", value)
        else:
            value = _varint(number << 3) + _varint(value)
    assert isinstance(value, bytes)
    return value


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # a negative one has ten bytes
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
