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


class Term(msgspec.Struct, frozen=True):
    """Pods of some labels, counted by domains of nodes.

    Attributes:
        key: label of nodes; nodes that agree in it are one domain.
        namespaces: of the pods, or :data:`EVERY_NAMESPACE`.
        labels: that the pods have, as pairs.
        expressions: (key, operator, values) that hold for their labels.
    """

    key: str
    namespaces: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()
    expressions: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether the term is about a pod."""
        if namespace not in self.namespaces and self.namespaces != (EVERY_NAMESPACE,):
            return False
        return all(labels.get(key) == value for key, value in self.labels) and all(
            holds(operator, values, labels.get(key)) for key, operator, values in self.expressions
        )

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
        liked: (weight, term) that would be good; a negative weight would be bad.
    """

    near: tuple[Term, ...] = ()
    apart: tuple[Term, ...] = ()
    even: tuple[Spread, ...] = ()
    liked: tuple[tuple[int, Term], ...] = ()

    @property
    def is_required(self) -> bool:
        """Whether anything of it must hold."""
        return bool(self.near or self.apart or self.even)


def read_relations(
    affinity: Mapping[str, Any] | None,
    spread: list[dict[str, Any]] | None,
    namespace: str,
    labels: Mapping[str, str],
) -> tuple[Relations | None, str]:
    """Return what a pod asks of its neighbours, and what of it is not served, in words.

    Args:
        affinity: ``spec.affinity``.
        spread: ``spec.topologySpreadConstraints``.
        namespace: of the pod.
        labels: of the pod.

    Example: ``namespaceSelector`` needs the labels of namespaces, which nobody reads here.
    """
    affinity = affinity or {}
    unserved = ""
    found: dict[str, tuple[Term, ...]] = {}
    liked: list[tuple[int, Term]] = []
    for rule, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        asked = affinity.get(rule) or {}
        terms = asked.get(REQUIRED) or []
        if any(term.get("namespaceSelector") for term in terms):
            unserved = f"this scheduler does not serve namespaceSelector of required {rule}"
        found[rule] = tuple(_term(term, namespace, labels) for term in terms)
        for entry in asked.get(PREFERRED) or []:
            wanted = entry.get("podAffinityTerm") or {}
            liked.append((sign * int(entry.get("weight") or 0), _term(wanted, namespace, labels)))
    even = tuple(
        Spread(
            _term(entry, namespace, labels),
            max(int(entry.get("maxSkew") or 1), 1),
            max(int(entry.get("minDomains") or 1), 1),
        )
        for entry in spread or []
        if entry.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
    )
    relations = Relations(found["podAffinity"], found["podAntiAffinity"], even, tuple(liked))
    return (relations if relations != Relations() else None), unserved


def _term(term: Mapping[str, Any], namespace: str, labels: Mapping[str, str]) -> Term:
    """Return a term; ``matchLabelKeys`` are those labels of the pod itself."""
    selector = term.get("labelSelector") or {}
    expressions = [
        (rule.get("key", ""), rule.get("operator", ""), tuple(rule.get("values") or ()))
        for rule in selector.get("matchExpressions") or []
    ]
    for keys, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        expressions += [(key, operator, (labels[key],)) for key in term.get(keys) or [] if key in labels]
    if term.get("labelSelector") is None:
        expressions.append(("", "In", ()))  # no selector means no pods, an empty one all
    namespaces = tuple(sorted(term.get("namespaces") or ()))
    if term.get("namespaceSelector") == {}:
        namespaces = (EVERY_NAMESPACE,)
    return Term(
        str(term.get("topologyKey", "")),
        namespaces or (namespace,),
        tuple(sorted((selector.get("matchLabels") or {}).items())),
        tuple(expressions),
    )
