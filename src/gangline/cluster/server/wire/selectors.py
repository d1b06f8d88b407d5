"""Label and field selectors of list and watch requests: parse once, match many objects.

Source: k8s.io/apimachinery labels.Parse and fields.ParseSelector; the fields per kind are those that a real
    server
offers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gangline.api.resources import Resource
from gangline.cluster.server.wire.conversion import selected_field

_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_TOKEN = re.compile(r"\s*(==|!=|=|!|>|<|\(|\)|,|[^\s=!<>(),]+)")

_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS = (
    *(f"involvedObject.{name}" for name in _REFERENCE),
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_FIELDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ),
    ("", "events"): _EVENT_FIELDS,
    ("events.k8s.io", "events"): (
        *_EVENT_FIELDS,
        *(f"regarding.{name}" for name in _REFERENCE),
        "reportingController",
    ),
    ("", "nodes"): ("spec.unschedulable",),
    ("", "secrets"): ("type",),
    ("", "services"): ("spec.clusterIP", "spec.type"),
    ("", "namespaces"): ("status.phase",),
    ("batch", "jobs"): ("status.successful",),
    ("", "replicationcontrollers"): ("status.replicas",),
    ("certificates.k8s.io", "certificatesigningrequests"): ("spec.signerName",),
    ("resource.k8s.io", "resourceslices"): ("spec.nodeName", "spec.driver"),
}
"""Fields that may be selected beside ``metadata.name`` and ``metadata.namespace``, by group and plural."""

_FALSE_WHEN_ABSENT = {"spec.unschedulable", "spec.hostNetwork"}
_PATHS = {"source": "source.component", "status.successful": "status.succeeded"}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector.

    Attributes:
        key: the label.
        operator: ``in``, ``notin``, ``exists``, ``!``, ``gt`` or ``lt``; ``=`` and ``!=`` are ``in`` and
            ``notin``.
        values: what to compare with.
    """

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet the term; ``notin`` is met by objects without the label."""
        value = labels.get(self.key)
        if self.operator == "in":
            return value is not None and value in self.values
        if self.operator == "notin":
            return value is None or value not in self.values
        if self.operator == "exists":
            return value is not None
        if self.operator == "!":
            return value is None
        if value is None or not re.fullmatch(r"-?[0-9]+", value):
            return False
        (limit,) = self.values
        return int(value) > int(limit) if self.operator == "gt" else int(value) < int(limit)


@dataclass(frozen=True, slots=True)
class LabelTerms:
    """Terms that must all hold; without terms everything matches."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether the labels of an object meet every term. Cost: O(terms)."""
        found = labels or {}
        return all(requirement.matches(found) for requirement in self.requirements)

    def exact(self) -> tuple[str, str] | None:
        """Return a label and the one value demanded of it, so that a caller may look it up directly."""
        for one in self.requirements:
            if one.operator == "in" and len(one.values) == 1:
                (value,) = one.values
                return one.key, value
        return None

    @property
    def is_empty(self) -> bool:
        """Whether everything matches."""
        return not self.requirements


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector: the field's text equals, or does not equal, the value."""

    field: str
    value: str
    equal: bool = True


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Terms that must all hold; without terms everything matches."""

    terms: tuple[FieldTerm, ...] = ()

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """Return whether an object in wire form meets every term. Cost: O(terms)."""
        return all((_field_text(obj, term.field) == term.value) is term.equal for term in self.terms)

    def exact(self, field: str) -> str | None:
        """Return the value that the selector demands of a field, so that a caller may look it up directly."""
        return next((term.value for term in self.terms if term.equal and term.field == field), None)

    @property
    def is_empty(self) -> bool:
        """Whether everything matches."""
        return not self.terms


@lru_cache(maxsize=512)
def parse_label_selector(text: str) -> LabelTerms:
    """Return the selector written as ``app=x,tier!=y,env in (a, b),key,!other``.

    Raises:
        ValueError: the text is no selector; the message says what was found where.

    Cost: O(text); results are kept for the 512 latest texts.
    """
    tokens = _TOKEN.findall(text)
    if _TOKEN.sub("", text).strip():
        raise ValueError(f"unable to parse requirement: `{text}` has characters that no selector has")
    reader = _Tokens(text, tokens)
    requirements = []
    while not reader.done:
        requirements.append(_requirement(reader))
        if not reader.done:
            reader.expect(",")
            if reader.done:
                raise ValueError(f"unable to parse requirement: `{text}` ends with a comma")
    return LabelTerms(tuple(requirements))


def label_selector_from_object(selector: Mapping[str, Any] | None) -> LabelTerms:
    """Return the selector written as ``matchLabels`` and ``matchExpressions``, as in the spec of a Job.

    An empty object matches everything. The caller decides what an absent one means.

    Raises:
        ValueError: an expression has an unknown operator.
    """
    found = selector or {}
    requirements = [
        Requirement(key, "in", frozenset([value])) for key, value in (found.get("matchLabels") or {}).items()
    ]
    operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
    for expression in found.get("matchExpressions") or []:
        operator = operators.get(expression.get("operator", ""))
        if operator is None:
            raise ValueError(f'"{expression.get("operator", "")}" is not a valid label selector operator')
        requirements.append(
            Requirement(expression.get("key", ""), operator, frozenset(expression.get("values") or ()))
        )
    return LabelTerms(tuple(requirements))


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """Return a selector of either form, a map of labels or ``matchLabels`` and ``matchExpressions``, as text.

    Source: metav1.FormatLabelSelector.
    """
    found = selector or {}
    is_map = not found.keys() & {"matchLabels", "matchExpressions"}
    labels = found if is_map else found.get("matchLabels") or {}
    terms = [f"{key}={value}" for key, value in sorted(labels.items())]
    for entry in () if is_map else found.get("matchExpressions") or ():
        key, values = entry.get("key", ""), ",".join(sorted(entry.get("values") or []))
        operator = entry.get("operator")
        if operator in ("In", "NotIn"):
            terms.append(f"{key} {operator.lower()} ({values})")
        else:
            terms.append(key if operator == "Exists" else f"!{key}")
    return ",".join(terms)


class _Tokens:
    """Reads the tokens of one selector from left to right."""

    def __init__(self, text: str, tokens: list[str]) -> None:
        self.text = text
        self._tokens = tokens
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at >= len(self._tokens)

    def peek(self) -> str:
        return "" if self.done else self._tokens[self._at]

    def next(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def expect(self, want: str) -> None:
        found = self.next()
        if found != want:
            raise ValueError(
                f"unable to parse requirement: found '{found}', expected: '{want}' in `{self.text}`"
            )


def _requirement(reader: _Tokens) -> Requirement:
    if reader.peek() == "!":
        reader.next()
        return Requirement(_key(reader.next()), "!")
    key = _key(reader.next())
    operator = reader.peek()
    if operator in ("", ","):
        return Requirement(key, "exists")
    reader.next()
    if operator in ("=", "==", "!="):
        value = "" if reader.peek() in ("", ",") else _value(reader.next())
        return Requirement(key, "notin" if operator == "!=" else "in", frozenset([value]))
    if operator in (">", "<"):
        limit = reader.next()
        if not re.fullmatch(r"-?[0-9]+", limit):
            raise ValueError(f"for 'Gt', 'Lt' operators, the value must be an integer, found '{limit}'")
        return Requirement(key, "gt" if operator == ">" else "lt", frozenset([limit]))
    if operator in ("in", "notin"):
        return Requirement(key, operator, _values(reader))
    raise ValueError(f"unable to parse requirement: found '{operator}', expected: in, notin, =, ==, !=, >, <")


def _values(reader: _Tokens) -> frozenset[str]:
    reader.expect("(")
    values = set()
    while True:
        if reader.peek() in (",", ")"):
            values.add("")
        else:
            values.add(_value(reader.next()))
        token = reader.next()
        if token == ")":
            return frozenset(values)
        if token != ",":
            raise ValueError(
                f"unable to parse requirement: found '{token}', expected: ',' or ')' in `{reader.text}`"
            )


def _key(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= 253 and _DNS_SUBDOMAIN.fullmatch(prefix)):
        raise ValueError(f'unable to parse requirement: invalid label key "{text}": prefix part {prefix!r}')
    if not _LABEL_NAME.fullmatch(name):
        raise ValueError(f'unable to parse requirement: invalid label key "{text}"')
    return text


def _value(text: str) -> str:
    if not _LABEL_NAME.fullmatch(text):
        raise ValueError(f'unable to parse requirement: invalid label value "{text}"')
    return text


def parse_field_selector(text: str, resource: Resource, *, selectable: Iterable[str] = ()) -> FieldSelector:
    r"""Return the selector written as ``metadata.name=x,status.phase!=Failed``.

    Args:
        text: the selector; ``\,``, ``\=`` and ``\\`` in values stand for the characters themselves.
        resource: the kind, which decides the fields on offer.
        selectable: further fields, the ``selectableFields`` of a custom kind.

    Raises:
        ValueError: the text is no selector, or names a field that the kind does not offer.

    Cost: O(text).
    """
    allowed = {"metadata.name", "metadata.namespace", *selectable}
    allowed.update(_FIELDS.get((resource.group, resource.plural), ()))
    terms = []
    for part in re.split(r"(?<!\\),", text):
        if not part.strip():
            continue
        match = re.match(r"([^=!\\]*)(!=|==|=)(.*)", part, re.DOTALL)
        if not match:
            raise ValueError(f"invalid selector: '{text}'; can't understand '{part}'")
        field, operator, value = match.groups()
        field = field.strip()
        if field not in allowed:
            raise ValueError(f"field label not supported: {field}")
        field = selected_field(resource.api_version, field)
        terms.append(FieldTerm(field, re.sub(r"\\([\\,=])", r"\1", value), operator != "!="))
    return FieldSelector(tuple(terms))


def _field_text(obj: Mapping[str, Any], field: str) -> str:
    """Return the field's value as text; an absent field is empty, or ``false`` for the switches."""
    value: Any = obj
    for part in _PATHS.get(field, field).split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        if field == "source":
            return str(obj.get("reportingComponent") or "")
        if field in ("status.successful", "status.replicas"):
            return "0"
        return "false" if field in _FALSE_WHEN_ABSENT else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
