"""What a pod asks of its neighbours: near which pods it must run, apart from which, how evenly spread.

Source: Kubernetes documentation, "Inter-pod affinity and anti-affinity", "Pod Topology Spread Constraints".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.placement.filters import holds

EVERY_NAMESPACE = "*"

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


NEEDS_NAMESPACES = (
    "the labels of namespaces, which namespaceSelector of its affinity asks for, cannot be read here"
)
"""Why a pod waits whose terms select namespaces that nobody has named yet."""

Rule = tuple[str, str, tuple[str, ...]]
"""Key, operator, values of a selector."""


class Term(msgspec.Struct, frozen=True):
    """Pods of some labels, counted by domains of nodes.

    Attributes:
        key: label of nodes; nodes that agree in it are one domain.
        namespaces: of the pods, or :data:`EVERY_NAMESPACE`.
        labels: that the pods have, as pairs.
        expressions: that hold for their labels.
        selector: that hold for the labels of further namespaces; empty once these are named.
    """

    key: str
    namespaces: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()
    expressions: tuple[Rule, ...] = ()
    selector: tuple[Rule, ...] = ()

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether the term is about a pod."""
        if namespace not in self.namespaces and self.namespaces != (EVERY_NAMESPACE,):
            return False
        return all(labels.get(key) == value for key, value in self.labels) and all(
            holds(operator, values, labels.get(key)) for key, operator, values in self.expressions
        )

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether the selector holds for the labels of a namespace."""
        return all(holds(operator, values, labels.get(key)) for key, operator, values in self.selector)

    def __str__(self) -> str:
        """Return the labels as ``kubectl -l`` takes them."""
        pairs = [f"{key}={value}" for key, value in self.labels]
        rules = [f"{key} {operator} {','.join(values)}".strip() for key, operator, values in self.expressions]
        return ", ".join([*pairs, *rules]) or "any labels"


class Spread(msgspec.Struct, frozen=True):
    """Pods that a term is about are spread over its domains.

    Attributes:
        term: the pods and the domains.
        skew: how many more of them a domain may have than the one with fewest.
        domains: with fewer domains than that, the fewest counts as zero.
    """

    term: Term
    skew: int = 1
    domains: int = 1


class Relations(msgspec.Struct, frozen=True):
    """What one pod asks of its neighbours.

    Attributes:
        near: each domain that it runs in has a pod of the term; the first pod of a group that asks for
            itself may run anywhere.
        apart: no domain that it runs in has a pod of the term.
        even: spread that must hold with it.
        preferred: (weight, term) that would be good; a negative weight would be bad.
    """

    near: tuple[Term, ...] = ()
    apart: tuple[Term, ...] = ()
    even: tuple[Spread, ...] = ()
    preferred: tuple[tuple[int, Term], ...] = ()

    @property
    def is_required(self) -> bool:
        """Whether anything of it must hold."""
        return bool(self.near or self.apart or self.even)

    @property
    def selects_namespaces(self) -> bool:
        """Whether a term is about namespaces by their labels."""
        terms = (*self.near, *self.apart, *(term for _, term in self.preferred))
        return any(term.selector for term in terms)


def read_relations(
    affinity: Mapping[str, Any] | None,
    spread: list[dict[str, Any]] | None,
    namespace: str,
    labels: Mapping[str, str],
) -> tuple[Relations | None, str]:
    """Return what a pod asks of its neighbours, and why it has to wait until more is known, in words.

    Args:
        affinity: ``spec.affinity``.
        spread: ``spec.topologySpreadConstraints``.
        namespace: of the pod.
        labels: of the pod.
    """
    affinity = affinity or {}
    found: dict[str, tuple[Term, ...]] = {}
    preferred: list[tuple[int, Term]] = []
    for rule, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        asked = affinity.get(rule) or {}
        terms = asked.get(REQUIRED) or []
        found[rule] = tuple(_term(term, namespace, labels) for term in terms)
        for entry in asked.get(PREFERRED) or []:
            wanted = entry.get("podAffinityTerm") or {}
            preferred.append((sign * int(entry.get("weight") or 0), _term(wanted, namespace, labels)))
    even = tuple(
        Spread(
            _term(entry, namespace, labels),
            max(int(entry.get("maxSkew") or 1), 1),
            max(int(entry.get("minDomains") or 1), 1),
        )
        for entry in spread or []
        if entry.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
    )
    relations = Relations(found["podAffinity"], found["podAntiAffinity"], even, tuple(preferred))
    required = (*relations.near, *relations.apart)
    waits = NEEDS_NAMESPACES if any(term.selector for term in required) else ""
    return (relations if relations != Relations() else None), waits


def pods_of(selector: Mapping[str, Any], namespace: str) -> Term:
    """Return the pods of one namespace for which a label selector holds."""
    return _term({"labelSelector": selector}, namespace, {})


def _term(term: Mapping[str, Any], namespace: str, labels: Mapping[str, str]) -> Term:
    """Return a term; ``matchLabelKeys`` are those labels of the pod itself."""
    selector = term.get("labelSelector") or {}
    expressions = _expressions(selector)
    for keys, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        expressions += [(key, operator, (labels[key],)) for key in term.get(keys) or [] if key in labels]
    if term.get("labelSelector") is None:
        expressions.append(("", "In", ()))  # no selector means no pods, an empty one all
    namespaces = tuple(sorted(term.get("namespaces") or ()))
    among = term.get("namespaceSelector")
    if among is None:
        namespaces = namespaces or (namespace,)
    pairs = sorted(((among or {}).get("matchLabels") or {}).items())
    rules = [*((key, "In", (value,)) for key, value in pairs), *_expressions(among or {})]
    if among is not None and not rules:
        namespaces = (EVERY_NAMESPACE,)
    return Term(
        str(term.get("topologyKey", "")),
        namespaces,
        tuple(sorted((selector.get("matchLabels") or {}).items())),
        tuple(expressions),
        tuple(rules),
    )


def _expressions(selector: Mapping[str, Any]) -> list[Rule]:
    return [
        (rule.get("key", ""), rule.get("operator", ""), tuple(rule.get("values") or ()))
        for rule in selector.get("matchExpressions") or []
    ]
