"""Whose a definition is, and what it says otherwise."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gangline.api.crds import crds, gang_crds
from gangline.api.definitions import ANNOTATION, DIFFERENCES_MAX, judge, stamped


def ours() -> dict[str, Any]:
    return crds()[0]


def served(crd: dict[str, Any]) -> dict[str, Any]:
    """As a server gives it back: with its own defaults."""
    live = copy.deepcopy(crd)
    live["metadata"] |= {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    live["spec"].setdefault("conversion", {"strategy": "None"})
    live["status"] = {"storedVersions": ["v2beta1"]}
    return live


def foreign(served_versions: list[str], **metadata: Any) -> dict[str, Any]:
    """After the definitions of kubeflow's operators."""
    live = served(ours())
    notes = {"controller-gen.kubebuilder.io/version": "v0.15.0"}
    fields = [{"manager": "kubectl-client-side-apply", "time": "2026-02-03T04:05:06Z"}]
    live["metadata"] |= {"annotations": notes, "managedFields": fields, **metadata}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": {}}}}}
    live["spec"]["versions"] = [
        {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        for name in served_versions
    ]
    return live


@pytest.mark.parametrize("crd", [*crds(), *gang_crds()], ids=lambda crd: crd["metadata"]["name"])
def test_what_a_server_fills_in_makes_no_difference(crd: dict[str, Any]) -> None:
    verdict = judge(crd, served(crd))

    assert (verdict.state, verdict.message, verdict.is_safe) == ("ours", "", True)


def test_the_definition_of_another_release_is_known_by_its_fingerprint() -> None:
    other = ours()
    del other["spec"]["versions"][1]
    live = served(stamped(other))

    assert judge(ours(), live).state == "earlier"
    live["spec"]["versions"][0]["served"] = False
    verdict = judge(ours(), live)
    assert (verdict.state, verdict.is_safe) == ("changed", False)
    assert verdict.differences == ("v2beta1: served differs", "it lacks version v1")


def test_the_definition_of_a_release_before_fingerprints_is_known_by_its_descriptions() -> None:
    live = served(ours())
    del live["metadata"]["annotations"][ANNOTATION]
    spec = live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["launcherCreationPolicy"]

    assert judge(ours(), live).state == "earlier"


@pytest.mark.parametrize(
    ("live", "owner"),
    [
        (
            foreign(["v1"]),
            "by kubectl-client-side-apply on 2026-02-03T04:05:06Z (it looks like that of training",
        ),
        (foreign(["v2beta1"]), "(it looks like that of mpi-operator)"),
        (foreign(["v1"], labels={"app.kubernetes.io/managed-by": "argocd"}), "written by argocd on "),
        (
            foreign(["v1"], annotations={"meta.helm.sh/release-name": "kubeflow"}),
            "written by Helm (release kubeflow) on ",
        ),
        (foreign(["v1"], managedFields=[]), "written by somebody else on 2026-01-01T00:00:00Z"),
    ],
)
def test_a_definition_of_others_is_told_with_its_writer(live: dict[str, Any], owner: str) -> None:
    verdict = judge(ours(), live)

    assert (verdict.state, verdict.is_safe) == ("foreign", False)
    assert owner in verdict.message


def test_what_differs_is_named_and_bounded() -> None:
    verdict = judge(ours(), foreign(["v2beta1"]))

    assert len(verdict.differences) == DIFFERENCES_MAX + 1
    assert verdict.differences[0] == "v2beta1: subresources differs"
    assert verdict.differences[-1].endswith(" more")


def test_one_that_was_replaced_by_apply_keeps_the_annotation_and_is_noticed() -> None:
    live = foreign(["v1"])
    live["metadata"]["annotations"][ANNOTATION] = ours()["metadata"]["annotations"][ANNOTATION]
    verdict = judge(ours(), live)

    assert verdict.state == "changed"
    assert "definition mpijobs.kubeflow.org was changed, written by" in verdict.message
    assert "it lacks version v2beta1" in verdict.message
