"""The cluster roles that every cluster has: ``cluster-admin``, ``admin``, ``edit`` and ``view``.

Their rules name the namespaced kinds that are served, so they grow with the table of kinds; custom kinds join
by the labels ``rbac.authorization.k8s.io/aggregate-to-...`` of the roles that their installers bring.
Source: plugin/pkg/auth/authorizer/rbac/bootstrappolicy of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gangline.cluster.server.rbac.rules import GROUP
from gangline.cluster.server.resources import ServedResource

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_UNSEEN = ("secrets",)
"""Of these a viewer sees nothing: they would let it act as somebody else."""
_GIVEN = ("limitranges", "resourcequotas")
"""An editor does not change the bounds that it works within."""
_ACTS: dict[str, tuple[str, ...]] = {
    "pods/attach": ("create", "get"),
    "pods/exec": ("create", "get"),
    "pods/portforward": ("create", "get"),
    "pods/eviction": ("create",),
    "serviceaccounts": ("impersonate",),
    "serviceaccounts/token": ("create",),
}
_JOBS = (
    ("kubeflow.org", "mpijobs"),
    ("kubeflow.org", "pytorchjobs"),
    ("kubeflow.org", "tfjobs"),
    ("trainer.kubeflow.org", "trainjobs"),
    ("trainer.kubeflow.org", "trainingruntimes"),
    ("scheduling.x-k8s.io", "podgroups"),
    ("scheduling.volcano.sh", "podgroups"),
)
"""Custom kinds whose roles are added to these, as an installation of Gangline brings them elsewhere."""
_LEVELS = ("view", "edit", "admin")


def cluster_roles(rows: Iterable[ServedResource]) -> list[dict[str, Any]]:
    """Return the roles for what is served without definitions."""
    kinds = [row for row in rows if row.is_stored and row.resource.namespaced and not row.is_custom]
    plain = [row for row in kinds if row.resource.group != GROUP]
    view = [rule for row in plain if row.resource.plural not in _UNSEEN for rule in _rules(row, READ)]
    view.append(_rule("", ("namespaces",), READ))
    view += [_rule(group, (plural, f"{plural}/status"), READ) for group, plural in _JOBS]
    edit = [rule for row in plain if row.resource.plural in _UNSEEN for rule in _rules(row, READ)]
    edit += [rule for row in plain if row.resource.plural not in _GIVEN for rule in _rules(row, WRITE)]
    edit += [_rule(group, (plural,), WRITE) for group, plural in _JOBS]
    edit += [_rule("", (plural,), verbs) for plural, verbs in _ACTS.items()]
    admin = [rule for row in kinds if row.resource.group == GROUP for rule in _rules(row, READ + WRITE)]
    admin.append(_rule("authorization.k8s.io", ("localsubjectaccessreviews",), ("create",)))
    everything = [_rule("*", ("*",), ("*",)), {"nonResourceURLs": ["*"], "verbs": ["*"]}]
    levels = (view, view + edit, view + edit + admin)
    return [
        {"metadata": {"name": "cluster-admin", "labels": _LABELS}, "rules": everything},
        *(_level(index, _joined(rules)) for index, rules in enumerate(levels)),
    ]


CLUSTER_ROLE_BINDING: dict[str, Any] = {
    "metadata": {"name": "cluster-admin", "labels": _LABELS},
    "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": "system:masters"}],
}


def _level(index: int, rules: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the role of a level; what is added to a lower level is added to it, too."""
    selectors = [{"matchLabels": {f"{GROUP}/aggregate-to-{name}": "true"}} for name in _LEVELS[: index + 1]]
    return {
        "metadata": {"name": _LEVELS[index], "labels": _LABELS},
        "aggregationRule": {"clusterRoleSelectors": selectors},
        "rules": rules,
    }


def _rules(row: ServedResource, verbs: tuple[str, ...]) -> list[dict[str, Any]]:
    plural, group = row.resource.plural, row.resource.group
    parts = [f"{plural}/{name}" for name in sorted(row.subresources & {"status", "log", "scale"})]
    return [_rule(group, (plural, *parts), verbs)]


def _rule(group: str, resources: tuple[str, ...], verbs: tuple[str, ...]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _joined(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one rule for each group and set of verbs."""
    joined: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for rule in rules:
        joined.setdefault((rule["apiGroups"][0], tuple(rule["verbs"])), []).extend(rule["resources"])
    return [
        _rule(group, tuple(dict.fromkeys(resources)), verbs) for (group, verbs), resources in joined.items()
    ]
