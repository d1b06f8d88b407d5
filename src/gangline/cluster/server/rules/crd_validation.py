"""Rules of CustomResourceDefinitions: what the server must find to serve a kind.

Source: validation of apiextensions.k8s.io/v1; messages keep its words.
"""

from __future__ import annotations

from typing import Any

from gangline.cluster.server.rules import patterns
from gangline.cluster.server.rules.field_rules import (
    duplicate,
    immutable,
    invalid,
    label_1035,
    not_supported,
    required,
    subdomain,
    type_invalid,
)
from gangline.errors import FieldError

SCOPES = ("Cluster", "Namespaced")


def crd(obj: dict[str, Any]) -> list[FieldError]:
    """Return every rule that a CRD breaks. Cost: O(versions); schemas are only looked at on top."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return [required("spec")]
    names = spec.get("names")
    if not isinstance(names, dict):
        return [required("spec.names")]
    errors = []
    group, plural = spec.get("group") or "", names.get("plural") or ""
    errors += subdomain("spec.group", group) if group else [required("spec.group")]
    if group and "." not in str(group):
        errors.append(invalid("spec.group", group, "should be a domain with at least one dot"))
    errors += label_1035("spec.names.plural", plural) if plural else [required("spec.names.plural")]
    if not names.get("kind"):
        errors.append(required("spec.names.kind"))
    name = (obj.get("metadata") or {}).get("name")
    if name != f"{plural}.{group}":
        words = 'must be spec.names.plural+"."+spec.group'
        errors.append(invalid("metadata.name", name, words))
    if spec.get("scope") not in SCOPES:
        errors.append(not_supported("spec.scope", spec.get("scope") or "", SCOPES))
    versions = spec.get("versions")
    if not isinstance(versions, list) or not versions:
        return [*errors, required("spec.versions", "must have exactly one version marked as storage version")]
    return errors + _versions(versions)


def _versions(versions: list[Any]) -> list[FieldError]:
    errors = []
    seen: set[str] = set()
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        if not isinstance(version, dict):
            errors.append(type_invalid(path, version, "object"))
            continue
        name = version.get("name") or ""
        errors += label_1035(f"{path}.name", name) if name else [required(f"{path}.name")]
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not isinstance(schema, dict):
            errors.append(required(f"{path}.schema.openAPIV3Schema", "schemas are required"))
        elif schema.get("type") != "object":
            place = f"{path}.schema.openAPIV3Schema.type"
            errors.append(invalid(place, schema.get("type") or "", 'must be "object" at the root'))
        else:
            errors += _patterns(schema, f"{path}.schema.openAPIV3Schema")
    storage = [v for v in versions if isinstance(v, dict) and v.get("storage")]
    if len(storage) != 1:
        words = "must have exactly one version marked as storage version"
        errors.append(invalid("spec.versions", [v.get("name") for v in storage], words))
    return errors


def crd_update(obj: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    """Return what an update of a CRD changes and may not: its group, scope and names, on which objects
    depend.
    """
    spec, before = obj.get("spec") or {}, old.get("spec") or {}
    names, names_before = spec.get("names") or {}, before.get("names") or {}
    errors = [
        immutable(f"spec.{key}", spec.get(key))
        for key in ("group", "scope")
        if spec.get(key) != before.get(key)
    ]
    errors += [
        immutable(f"spec.names.{key}", names.get(key))
        for key in ("plural", "kind")
        if names.get(key) != names_before.get(key)
    ]
    return errors


def _patterns(schema: Any, path: str) -> list[FieldError]:
    """Return an error for every ``pattern`` of a schema that RE2 does not read."""
    errors: list[FieldError] = []
    waiting = [(schema, path)]
    while waiting:
        part, place = waiting.pop()
        if isinstance(part, list):
            waiting += [(item, f"{place}[{index}]") for index, item in enumerate(part)]
        if not isinstance(part, dict):
            continue
        for key, value in part.items():
            inner = f"{place}.{key}"
            if key == "properties" and isinstance(value, dict):
                waiting += [(item, f"{inner}[{name}]") for name, item in value.items()]
            elif key == "pattern" and isinstance(value, str):
                try:
                    patterns.compiled(value)
                except patterns.PatternError as error:
                    errors.append(
                        invalid(inner, value, f"must be a valid regular expression, but isn't: {error}")
                    )
            elif key not in ("default", "enum", "example"):
                waiting.append((value, inner))
    return errors
