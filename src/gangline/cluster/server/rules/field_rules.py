"""The vocabulary of validation: field errors in Kubernetes wording, and the rules of names, labels and keys.

Source: k8s.io/apimachinery util/validation and util/validation/field.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from gangline.errors import FieldError

SUBDOMAIN_MAX = 253
LABEL_MAX = 63
ANNOTATIONS_MAX_BYTES = 256 * 1024

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_CONFIG_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
    "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def shown(value: Any) -> str:
    """Return a value as messages show it: JSON, at most 200 characters."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}..."


def required(path: str, message: str = "must be set") -> FieldError:
    """Return the error of a missing field."""
    return FieldError("Required", path, message)


def invalid(path: str, value: Any, message: str) -> FieldError:
    """Return the error of a value that breaks a rule."""
    return FieldError("Invalid", path, message, shown(value))


def not_supported(path: str, value: Any, allowed: Iterable[str]) -> FieldError:
    """Return the error of a value outside a fixed set."""
    listed = ", ".join(f'"{item}"' for item in allowed)
    return FieldError("NotSupported", path, f"supported values: {listed}", shown(value))


def forbidden(path: str, message: str) -> FieldError:
    """Return the error of a field that may not be set or changed."""
    return FieldError("Forbidden", path, message)


def duplicate(path: str, value: Any) -> FieldError:
    """Return the error of a value that occurs twice where it may occur once."""
    return FieldError("Duplicate", path, "must be unique", shown(value))


def immutable(path: str, value: Any) -> FieldError:
    """Return the error of a field that may not change after creation."""
    return invalid(path, value, "field is immutable")


def type_invalid(path: str, value: Any, wanted: str) -> FieldError:
    """Return the error of a value of the wrong JSON type."""
    place = path or "the object"
    return FieldError("TypeInvalid", path, f"{place} must be of type {wanted}", shown(value))


def subdomain(path: str, value: Any) -> list[FieldError]:
    """Return what is wrong with a DNS-1123 subdomain: the names of most objects, at most 253 characters."""
    return _name(path, value, _SUBDOMAIN, SUBDOMAIN_MAX, _SUBDOMAIN_RULE)


def label(path: str, value: Any) -> list[FieldError]:
    """Return what is wrong with a DNS-1123 label: namespaces, containers, volumes; at most 63 characters."""
    return _name(path, value, _LABEL, LABEL_MAX, _LABEL_RULE)


def label_1035(path: str, value: Any) -> list[FieldError]:
    """Return what is wrong with a DNS-1035 label: services; at most 63 characters, a letter first."""
    return _name(path, value, _LABEL_1035, LABEL_MAX, _LABEL_1035_RULE)


def ip_address(path: str, value: Any) -> list[FieldError]:
    """Return what is wrong with an IP address that is a name, in the one form that it has."""
    with suppress(ValueError):
        if str(ipaddress.ip_address(value)) == value:
            return []
    return [invalid(path, value, "must be a valid IP address in canonical form")]


def config_key(path: str, value: Any) -> list[FieldError]:
    """Return what is wrong with a key of a ConfigMap or Secret, which becomes a file name."""
    errors = _name(path, value, _CONFIG_KEY, SUBDOMAIN_MAX, _CONFIG_KEY_RULE)
    if value in (".", "..") or str(value).startswith(".."):
        errors.append(invalid(path, value, "must not be '.', '..' or start with '..'"))
    return errors


def _name(path: str, value: Any, pattern: re.Pattern[str], longest: int, rule: str) -> list[FieldError]:
    if not isinstance(value, str):
        return [type_invalid(path, value, "string")]
    errors = []
    if len(value) > longest:
        errors.append(invalid(path, value, f"must be no more than {longest} characters"))
    if not pattern.fullmatch(value):
        errors.append(invalid(path, value, rule))
    return errors


def qualified_name(path: str, value: str) -> list[FieldError]:
    """Return what is wrong with a label or annotation key: an optional DNS prefix and a name of 63
    characters.
    """
    prefix, slash, name = value.rpartition("/")
    errors = []
    if slash:
        if not prefix:
            errors.append(invalid(path, value, "prefix part must be non-empty"))
        elif "/" in prefix:
            return [invalid(path, value, f"a valid label key has at most one '/'; {_QUALIFIED_RULE}")]
        else:
            errors += [
                invalid(path, value, f"prefix part {error.message}") for error in subdomain(path, prefix)
            ]
    if not name:
        errors.append(invalid(path, value, "name part must be non-empty"))
    elif len(name) > LABEL_MAX:
        errors.append(invalid(path, value, f"name part must be no more than {LABEL_MAX} characters"))
    elif not _QUALIFIED.fullmatch(name):
        errors.append(invalid(path, value, _QUALIFIED_RULE))
    return errors


def label_value(path: str, value: Any) -> list[FieldError]:
    """Return what is wrong with a label's value: empty, or at most 63 characters of a restricted set."""
    if not isinstance(value, str):
        return [type_invalid(path, value, "string")]
    if len(value) > LABEL_MAX:
        return [invalid(path, value, f"must be no more than {LABEL_MAX} characters")]
    if value and not _QUALIFIED.fullmatch(value):
        return [invalid(path, value, _VALUE_RULE)]
    return []


def label_map(path: str, found: Any) -> list[FieldError]:
    """Return what is wrong with a map of labels. Cost: O(labels)."""
    if not isinstance(found, dict):
        return [type_invalid(path, found, "object")] if found is not None else []
    errors = []
    for key, value in found.items():
        errors += qualified_name(path, key)
        errors += label_value(path, value)
    return errors


def annotation_map(path: str, found: Any) -> list[FieldError]:
    """Return what is wrong with a map of annotations; together they hold 256 KiB. Cost: O(size)."""
    if not isinstance(found, dict):
        return [type_invalid(path, found, "object")] if found is not None else []
    errors = []
    size = 0
    for key, value in found.items():
        errors += qualified_name(path, key.lower())
        if isinstance(value, str):
            size += len(key) + len(value.encode())
        else:
            errors.append(type_invalid(f"{path}[{key}]", value, "string"))
    if size > ANNOTATIONS_MAX_BYTES:
        errors.append(
            FieldError("Invalid", path, f"Too long: may not be more than {ANNOTATIONS_MAX_BYTES} bytes")
        )
    return errors
