"""Rules of definitions written in CEL (``x-kubernetes-validations``): those that are served, and the others.

They run once the rest of the schema is kept. A rule that names ``oldSelf`` runs on updates, where the value
was there before; any other is not held against a value that an update leaves alone. Items of lists have no
value before, for they are compared as a whole. Where a rule does not hold it is tried once more with lists of
the types set and map in one order, and times in one zone, for so are they compared. Not served:
``messageExpression`` (``message`` or the rule itself is told instead), ``optionalOldSelf``, and what ``cel``
does not serve.
Source: apiextensions.k8s.io/v1 ValidationRule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from gangline.cluster.server.rules.field_rules import invalid
from gangline.errors import FieldError
from gangline.workloads.cel import Expression, NotServed, NoValue, compile_rule, is_transition

Schema = dict[str, Any]
_RULES = "x-kubernetes-validations"
_ABSENT: Any = object()
_WARNINGS_MAX = 8
_WARNING_CHARACTERS_MAX = 300


def broken_rules(obj: Any, old: Any, schema: Schema | None) -> list[FieldError]:
    """Return every served rule that an object breaks.

    Args:
        obj: the object, valid by the rest of the schema.
        old: the state before, None for a new object.
        schema: of the kind.

    Cost: O(size of what has changed), and 5 microseconds for each rule.
    """
    errors: list[FieldError] = []
    if schema is not None:
        _check(obj, _ABSENT if old is None else old, schema, "", errors)
    return errors


def unserved_rules(crd: dict[str, Any]) -> list[str]:
    """Return warnings about the rules of a definition that are not evaluated, each once for all versions."""
    found: dict[str, None] = {}
    for version in (crd.get("spec") or {}).get("versions") or []:
        schema = (version.get("schema") or {}).get("openAPIV3Schema") if isinstance(version, dict) else None
        for path, rule in _rules_of(schema, ""):
            if why := _why_not_served(rule):
                said = " ".join(str(rule.get("rule")).split())
                found[f"{path or 'the object'}: the rule `{said}` is not evaluated here: {why}"] = None
    listed = [text[:_WARNING_CHARACTERS_MAX] for text in found]
    more = len(listed) - _WARNINGS_MAX
    return listed if more <= 0 else [*listed[:_WARNINGS_MAX], f"{more} more rules are not evaluated here"]


def _why_not_served(rule: dict[str, Any]) -> str:
    if rule.get("optionalOldSelf"):
        return "optionalOldSelf is not served"
    try:
        compile_rule(str(rule.get("rule")))
    except NotServed as error:
        return f"{error} is beyond the served part of CEL"
    return ""


def _rules_of(schema: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every rule below a schema with the path of the value that it is about."""
    if not isinstance(schema, dict):
        return
    for rule in schema.get(_RULES) or []:
        yield path, rule
    for name, child in (schema.get("properties") or {}).items():
        yield from _rules_of(child, f"{path}.{name}" if path else name)
    yield from _rules_of(schema.get("additionalProperties"), f"{path}[*]")
    yield from _rules_of(schema.get("items"), f"{path}[*]")


def _check(value: Any, old: Any, schema: Schema, path: str, errors: list[FieldError]) -> None:
    if value is old:  # a patch of the status shares the rest with the stored object
        return
    for rule in schema.get(_RULES) or []:
        _check_rule(rule, value, old, schema, path, errors)
    if isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        for index, item in enumerate(value):
            _check(item, _ABSENT, items, f"{path}[{index}]", errors)
    if not isinstance(value, dict):
        return
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    before = old if isinstance(old, dict) else {}
    for name, item in value.items():
        child = properties.get(name, additional)
        if isinstance(child, dict) and item is not None:
            _check(item, before.get(name, _ABSENT), child, f"{path}.{name}" if path else name, errors)


def _check_rule(
    rule: dict[str, Any], value: Any, old: Any, schema: Schema, path: str, errors: list[FieldError]
) -> None:
    text = str(rule["rule"])
    expression = None if rule.get("optionalOldSelf") else _compiled(text)
    if expression is None:
        return
    if (old is _ABSENT or old is None) if is_transition(text) else old == value:
        return
    said = str(rule.get("message") or f"failed rule: {text}").strip()
    try:
        if expression({"self": value, "oldSelf": old}) is True:
            return
        if expression({"self": _plain(value, schema), "oldSelf": _plain(old, schema)}) is True:
            return
    except NoValue as error:
        said = f"{said}: {error}"
    where = f"{path}{rule.get('fieldPath') or ''}".removeprefix(".")
    is_plain = schema.get("type") not in ("object", "array")
    errors.append(invalid(where, value, said) if is_plain else FieldError("Invalid", where, said))


def _plain(value: Any, schema: Schema) -> Any:
    """Return a value in which equals look equal: sets and maps that are written as lists, and times."""
    if isinstance(value, dict):
        properties, other = schema.get("properties") or {}, schema.get("additionalProperties")
        schemas = {name: properties.get(name, other) for name in value}
        return {
            name: _plain(item, child) if isinstance(child := schemas[name], dict) else item
            for name, item in value.items()
        }
    if isinstance(value, list):
        items = schema.get("items")
        plain = [_plain(item, items) for item in value] if isinstance(items, dict) else value
        has_order = schema.get("x-kubernetes-list-type") not in ("set", "map")
        return plain if has_order else sorted(plain, key=lambda item: json.dumps(item, sort_keys=True))
    if isinstance(value, str) and schema.get("format") == "date-time":
        with suppress(ValueError, OverflowError):
            return datetime.fromisoformat(value).astimezone(UTC).isoformat()
    return value


@lru_cache(maxsize=512)
def _compiled(text: str) -> Expression | None:
    """Return the function of a rule, None for one that is not served: neither is parsed for every object."""
    try:
        return compile_rule(text)
    except NotServed:
        return None
