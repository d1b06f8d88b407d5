"""The types of a CustomResourceDefinition's own fields, as a schema.

What is checked here is what serving a kind relies on: discovery, pruning, defaults, validation and tables
walk over these fields for every object of the kind, and must not stumble.
"""

from __future__ import annotations

from typing import Any

from gangline.cluster.server.rules import schema
from gangline.errors import FieldError

_TEXT = {"type": "string", "nullable": True}
_SWITCH = {"type": "boolean", "nullable": True}
_WHOLE = {"type": "integer", "nullable": True}
_NUMBER = {"type": "number", "nullable": True}
_TEXTS = {"type": "array", "nullable": True, "items": {"type": "string"}}
_ANYTHING: dict[str, Any] = {}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "nullable": True, "properties": properties}


def _array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "nullable": True, "items": items}


_RULE = {
    "type": "object",
    "required": ["rule"],
    "properties": {
        "rule": {"type": "string"},
        **dict.fromkeys(("message", "messageExpression", "reason", "fieldPath"), _TEXT),
        "optionalOldSelf": _SWITCH,
    },
}


def _json_schema() -> dict[str, Any]:
    """Return the schema of ``JSONSchemaProps``, which contains itself."""
    result: dict[str, Any] = {"type": "object", "properties": {}}
    by_name = {"type": "object", "nullable": True, "additionalProperties": result}
    texts = ("type", "format", "pattern", "title", "description", "x-kubernetes-list-type")
    switches = (
        "nullable",
        "uniqueItems",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    )
    counts = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
    numbers = ("minimum", "maximum", "multipleOf")
    result["properties"] = {
        **dict.fromkeys(texts, _TEXT),
        **dict.fromkeys(switches, _SWITCH),
        **dict.fromkeys(counts, _WHOLE),
        **dict.fromkeys(numbers, _NUMBER),
        "required": _TEXTS,
        "x-kubernetes-list-map-keys": _TEXTS,
        "x-kubernetes-validations": _array(_RULE),
        "enum": _array(_ANYTHING),
        "properties": by_name,
        "additionalProperties": {"nullable": True, "anyOf": [{"type": "boolean"}, result]},
        "items": {**result, "nullable": True},
        "not": {**result, "nullable": True},
        "allOf": _array(result),
        "anyOf": _array(result),
        "oneOf": _array(result),
    }
    result["properties"]["items"]["properties"] = result["properties"]
    result["properties"]["not"]["properties"] = result["properties"]
    return result


_SCALE = _object(specReplicasPath=_TEXT, statusReplicasPath=_TEXT, labelSelectorPath=_TEXT)
_COLUMN = {
    "type": "object",
    "required": ["name", "type", "jsonPath"],
    "properties": {
        "name": {"type": "string"},
        "type": {"type": "string"},
        "jsonPath": {"type": "string"},
        "format": _TEXT,
        "description": _TEXT,
        "priority": _WHOLE,
    },
}
_VERSION = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "served": _SWITCH,
        "storage": _SWITCH,
        "schema": _object(openAPIV3Schema={**_json_schema(), "nullable": True}),
        "subresources": _object(status={"type": "object", "nullable": True}, scale=_SCALE),
        "additionalPrinterColumns": _array(_COLUMN),
        "selectableFields": _array(
            {"type": "object", "required": ["jsonPath"], "properties": {"jsonPath": {"type": "string"}}}
        ),
    },
}
_NAMES = {
    "plural": _TEXT,
    "singular": _TEXT,
    "kind": _TEXT,
    "listKind": _TEXT,
    "shortNames": _TEXTS,
    "categories": _TEXTS,
}
_CRD = {
    "type": "object",
    "properties": {
        "spec": _object(group=_TEXT, scope=_TEXT, names=_object(**_NAMES), versions=_array(_VERSION)),
        "status": _object(
            conditions=_array(_object(type=_TEXT, status=_TEXT)),
            acceptedNames=_object(**_NAMES),
            storedVersions=_TEXTS,
        ),
    },
}


def crd_type_errors(obj: dict[str, Any]) -> list[FieldError]:
    """Return an error for every field of a CRD that holds a value of another type.

    Cost: O(size of the CRD), 2 ms for one with a whole pod template.
    """
    return schema.validate(obj, _CRD)
