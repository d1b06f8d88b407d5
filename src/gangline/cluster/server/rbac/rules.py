"""What roles and bindings allow: ``rbac.authorization.k8s.io`` read as rules for what somebody wants.

Nothing here knows of stores or requests; ``authorizer.py`` keeps the grants of a cluster.
Source: pkg/apis/rbac/v1/evaluation_helpers.go and plugin/pkg/auth/authorizer/rbac of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gangline.cluster.server.wire.selectors import label_selector_from_object

GROUP = "rbac.authorization.k8s.io"
EVERYWHERE = ""
"""Namespace of a grant that holds in every namespace and for what is in none."""

Rule = Mapping[str, Any]
Subject = tuple[str, str]
"""``User`` or ``Group``, and its name; a service account is a user."""


@dataclass(frozen=True, slots=True)
class AccessAttributes:
    """What somebody wants to do: with a resource, or with a path that is none.

    Attributes:
        verb: ``get``, ``list``, ``create`` and so on; for a path the method in small letters.
        group, resource, subresource: what with; the resource is a plural.
        namespace: where; empty for everywhere and for what is in no namespace.
        name: which one; empty for any.
        path: the path, for what is no resource.
        is_namespaced: whether objects of the resource live in namespaces.
    """

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    is_namespaced: bool = True


@dataclass(frozen=True, slots=True)
class Grant:
    """Rules that a binding gives its subjects, in one namespace or everywhere."""

    namespace: str
    rules: tuple[Rule, ...]

    def allows(self, wanted: AccessAttributes) -> bool:
        """Whether one of the rules allows it there."""
        if self.namespace not in (EVERYWHERE, wanted.namespace):
            return False
        return any(rule_allows(rule, wanted) for rule in self.rules)


def rule_allows(rule: Rule, wanted: AccessAttributes) -> bool:
    """Whether one rule allows it, whatever the namespace."""
    if not _has(rule, "verbs", wanted.verb):
        return False
    if wanted.path:
        return any(_path_matches(path, wanted.path) for path in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames")
    if names and wanted.name not in names:
        return False
    return _has(rule, "apiGroups", wanted.group) and _has_resource(rule, wanted)


def _has(rule: Rule, key: str, value: str) -> bool:
    values = rule.get(key) or ()
    return value in values or "*" in values


def _has_resource(rule: Rule, wanted: AccessAttributes) -> bool:
    if not wanted.subresource:
        return _has(rule, "resources", wanted.resource)
    full = (f"{wanted.resource}/{wanted.subresource}", f"*/{wanted.subresource}", "*")
    return any(name in full for name in rule.get("resources") or ())


def _path_matches(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


def rules_of(role: Mapping[str, Any], cluster_roles: Iterable[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Return the rules of a role, with those of the cluster roles that its ``aggregationRule`` selects."""
    rules = list(role.get("rules") or ())
    selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
    terms = [label_selector_from_object(selector) for selector in selectors]
    for other in cluster_roles if terms else ():
        meta = other.get("metadata") or {}
        if other is not role and any(term.matches(meta.get("labels")) for term in terms):
            rules += other.get("rules") or ()
    return tuple(rules)


def subjects_of(binding: Mapping[str, Any]) -> Iterator[Subject]:
    """Yield whom a binding names."""
    own = str((binding.get("metadata") or {}).get("namespace") or "")
    for subject in binding.get("subjects") or ():
        kind, name = str(subject.get("kind") or ""), str(subject.get("name") or "")
        if kind == "ServiceAccount":
            yield "User", f"system:serviceaccount:{subject.get('namespace') or own}:{name}"
        else:
            yield kind, name


def attributes_of(rule: Rule, namespace: str) -> Iterator[AccessAttributes]:
    """Yield all that a rule allows, a ``*`` as itself: whoever gives the rule away must be allowed each."""
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield AccessAttributes(verb, path=path)
        for group in rule.get("apiGroups") or ():
            for named in rule.get("resources") or ():
                resource, _, subresource = str(named).partition("/")
                for name in rule.get("resourceNames") or ("",):
                    yield AccessAttributes(verb, group, resource, subresource, namespace, name)
