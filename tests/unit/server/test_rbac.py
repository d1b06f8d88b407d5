"""Rules of roles, as ``rbac.authorization.k8s.io`` defines them."""

import pytest

from gangline.cluster.server.rbac.default_roles import cluster_roles
from gangline.cluster.server.rbac.rules import (
    AccessAttributes,
    Grant,
    attributes_of,
    rule_allows,
    rules_of,
    subjects_of,
)
from gangline.cluster.server.resources import BUILT_IN_SERVED

PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


@pytest.mark.parametrize(
    ("rule", "wanted", "allowed"),
    [
        (PODS, AccessAttributes("get", resource="pods"), True),
        (PODS, AccessAttributes("delete", resource="pods"), False),
        (PODS, AccessAttributes("get", "apps", "pods"), False),
        (PODS, AccessAttributes("get", resource="pods", subresource="log"), False),
        (
            PODS | {"resources": ["pods/log"]},
            AccessAttributes("get", resource="pods", subresource="log"),
            True,
        ),
        (PODS | {"resources": ["*/log"]}, AccessAttributes("get", resource="pods", subresource="log"), True),
        (PODS | {"resources": ["*"]}, AccessAttributes("get", resource="pods", subresource="log"), True),
        (PODS | {"resources": ["*/log"]}, AccessAttributes("get", resource="pods"), False),
        (PODS | {"verbs": ["*"], "apiGroups": ["*"]}, AccessAttributes("use", "x.y", "pods"), True),
        (PODS | {"resourceNames": ["a"]}, AccessAttributes("get", resource="pods", name="a"), True),
        (PODS | {"resourceNames": ["a"]}, AccessAttributes("get", resource="pods", name="b"), False),
        (PODS | {"resourceNames": ["a"]}, AccessAttributes("list", resource="pods"), False),
        ({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}, AccessAttributes("get", path="/metrics"), True),
        ({"nonResourceURLs": ["/logs/*"], "verbs": ["get"]}, AccessAttributes("get", path="/logs/a"), True),
        ({"nonResourceURLs": ["/logs"], "verbs": ["get"]}, AccessAttributes("get", path="/logs/a"), False),
        (PODS, AccessAttributes("get", path="/metrics"), False),
    ],
)
def test_a_rule_allows_what_it_names(rule, wanted, allowed):
    assert rule_allows(rule, wanted) is allowed


def test_a_grant_of_a_namespace_holds_there_only():
    there, everywhere = Grant("a", (PODS,)), Grant("", (PODS,))

    assert there.allows(AccessAttributes("get", resource="pods", namespace="a"))
    assert not there.allows(AccessAttributes("get", resource="pods", namespace="b"))
    assert not there.allows(AccessAttributes("list", resource="pods"))
    assert everywhere.allows(AccessAttributes("list", resource="pods"))


def test_a_role_gathers_the_rules_of_the_cluster_roles_it_selects():
    selectors = [{"matchLabels": {"to-view": "true"}}]
    role = {"aggregationRule": {"clusterRoleSelectors": selectors}, "rules": [{"verbs": ["a"]}]}
    chosen = {"metadata": {"labels": {"to-view": "true"}}, "rules": [{"verbs": ["b"]}]}
    other = {"metadata": {}, "rules": [{"verbs": ["c"]}]}

    assert [rule["verbs"] for rule in rules_of(role, [role, chosen, other])] == [["a"], ["b"]]


def test_a_service_account_is_a_user_of_its_namespace():
    subjects = [
        {"kind": "ServiceAccount", "name": "a"},
        {"kind": "ServiceAccount", "name": "b", "namespace": "other"},
        {"kind": "Group", "name": "g"},
    ]

    assert list(subjects_of({"metadata": {"namespace": "own"}, "subjects": subjects})) == [
        ("User", "system:serviceaccount:own:a"),
        ("User", "system:serviceaccount:other:b"),
        ("Group", "g"),
    ]


def test_a_rule_is_given_away_whole():
    rule = {"apiGroups": [""], "resources": ["*", "pods/log"], "verbs": ["get"]}

    assert list(attributes_of(rule, "n")) == [
        AccessAttributes("get", "", "*", "", "n"),
        AccessAttributes("get", "", "pods", "log", "n"),
    ]
    assert not rule_allows(PODS, AccessAttributes("get", "", "*", "", "n")), (
        "a star is more than what there is"
    )


@pytest.mark.parametrize(
    ("role", "wanted", "allowed"),
    [
        ("view", AccessAttributes("list", resource="pods"), True),
        ("view", AccessAttributes("get", resource="pods", subresource="log"), True),
        ("view", AccessAttributes("get", "apps", "deployments"), True),
        ("view", AccessAttributes("get", resource="secrets"), False),
        ("view", AccessAttributes("create", resource="pods"), False),
        ("view", AccessAttributes("get", "rbac.authorization.k8s.io", "roles"), False),
        ("edit", AccessAttributes("get", resource="secrets"), True),
        ("edit", AccessAttributes("create", resource="pods", subresource="exec"), True),
        ("edit", AccessAttributes("delete", "batch", "jobs"), True),
        ("edit", AccessAttributes("create", resource="resourcequotas"), False),
        ("edit", AccessAttributes("create", "rbac.authorization.k8s.io", "roles"), False),
        ("admin", AccessAttributes("create", "rbac.authorization.k8s.io", "rolebindings"), True),
        ("admin", AccessAttributes("delete", resource="nodes"), False),
        ("cluster-admin", AccessAttributes("delete", resource="nodes"), True),
        ("cluster-admin", AccessAttributes("get", path="/metrics"), True),
    ],
)
def test_the_roles_of_every_cluster_allow_what_they_do_upstream(role, wanted, allowed):
    rules = {item["metadata"]["name"]: item["rules"] for item in cluster_roles(BUILT_IN_SERVED)}

    assert any(rule_allows(rule, wanted) for rule in rules[role]) is allowed
