"""Defaults and columns of kinds that are stored only; expected values are those of kube-apiserver 1.35."""

from datetime import UTC, datetime

import pytest

from gangline.cluster.server.resources import STORED_KINDS
from gangline.cluster.server.rules.defaults import apply_defaults
from gangline.cluster.server.tables.tables import to_table

KINDS = {resource.plural: resource for resource in STORED_KINDS}
NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
META = {"name": "x", "creationTimestamp": "2026-01-02T11:59:00Z"}


@pytest.mark.parametrize(
    ("plural", "obj", "want"),
    [
        ("networkpolicies", {"spec": {}}, {"spec": {"policyTypes": ["Ingress"]}}),
        (
            "networkpolicies",
            {"spec": {"egress": [{"ports": [{"port": 1}]}]}},
            {
                "spec": {
                    "egress": [{"ports": [{"port": 1, "protocol": "TCP"}]}],
                    "policyTypes": ["Ingress", "Egress"],
                }
            },
        ),
        ("validatingadmissionpolicies", {"spec": {}}, {"spec": {"failurePolicy": "Fail"}}),
        (
            "prioritylevelconfigurations",
            {"spec": {"type": "Exempt"}},
            {"spec": {"type": "Exempt"}},
        ),
        (
            "rolebindings",
            {"roleRef": {"kind": "Role", "name": "a"}},
            {"roleRef": {"kind": "Role", "name": "a", "apiGroup": "rbac.authorization.k8s.io"}},
        ),
        ("configmaps", {"data": {}}, {"data": {}}),
    ],
)
def test_missing_fields_are_filled_and_others_left_alone(plural, obj, want):
    assert apply_defaults(KINDS[plural], obj) == want
    assert apply_defaults(KINDS[plural], want) == want


@pytest.mark.parametrize(
    ("plural", "obj", "want"),
    [
        ("roles", {}, ["x", META["creationTimestamp"]]),
        (
            "resourcequotas",
            {"status": {"hard": {"pods": "2", "limits.cpu": "4"}, "used": {"pods": "1", "limits.cpu": "3"}}},
            ["x", "pods: 1/2", "limits.cpu: 3/4", "60s"],
        ),
        (
            "rolebindings",
            {
                "roleRef": {"kind": "Role", "name": "r"},
                "subjects": [
                    {"kind": "User", "name": "u"},
                    {"kind": "ServiceAccount", "namespace": "n", "name": "s"},
                ],
            },
            ["x", "Role/r", "60s", "u", "", "n/s"],
        ),
        ("poddisruptionbudgets", {"spec": {"minAvailable": 1}}, ["x", 1, "N/A", 0, "60s"]),
        (
            "ingresses",
            {"spec": {"rules": [{"host": "a"}, {"host": "b"}]}},
            ["x", "<none>", "a,b", "", "80", "60s"],
        ),
        (
            "certificatesigningrequests",
            {"status": {"conditions": [{"type": "Approved"}], "certificate": "YQ=="}},
            None,
        ),
    ],
)
def test_kind_shows_the_columns_of_upstream(plural, obj, want):
    (row,) = to_table(KINDS[plural], [{"metadata": META, **obj}], now=NOW)["rows"]

    assert row["cells"] == want if want else row["cells"][-1] == "Approved,Issued"
