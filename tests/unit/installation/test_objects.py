"""What an installation consists of."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import __version__
from gangline.installation.objects import Installation, definitions, device_plugin, objects, page

WHOLE = Installation()
OPERATOR_ALONE = Installation(has_scheduler=False)
SCHEDULER_ALONE = Installation(has_operator=False)
ONE_NAMESPACE = Installation(namespace="team-a", is_namespaced=True)


def named(installation: Installation, kind: str) -> dict[str, dict[str, Any]]:
    return {obj["metadata"]["name"]: obj for obj in objects(installation) if obj["kind"] == kind}


def arguments(installation: Installation, name: str) -> list[str]:
    (container,) = named(installation, "Deployment")[name]["spec"]["template"]["spec"]["containers"]
    found: list[str] = container["args"]
    return found


@pytest.mark.parametrize("installation", [WHOLE, OPERATOR_ALONE, SCHEDULER_ALONE, ONE_NAMESPACE])
def test_no_namespace_of_others_is_part_of_it(installation: Installation) -> None:
    """Or `kubectl delete -f` would take what they have in it."""
    assert set(named(installation, "Namespace")) <= {"gangline-system"}
    places = {obj["metadata"].get("namespace", installation.namespace) for obj in objects(installation)}
    assert places == {installation.namespace}


def test_for_one_namespace_nothing_is_outside_it_and_no_right_reaches_further() -> None:
    found = objects(ONE_NAMESPACE)

    assert {obj["metadata"].get("namespace") for obj in found} == {"team-a"}
    assert {obj["kind"] for obj in found} == {
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "PodDisruptionBudget",
        "Deployment",
    }
    assert "--namespace=$(POD_NAMESPACE)" in arguments(ONE_NAMESPACE, "gangline-operator")
    assert "priorityClassName" not in str(found)
    for role in named(ONE_NAMESPACE, "Role").values():
        for rule in role["rules"]:
            assert {"customresourcedefinitions", "priorityclasses"}.isdisjoint(rule["resources"])


def test_the_operator_makes_gangs_where_our_scheduler_is_there() -> None:
    gangs = "--gang-scheduling=gangline-scheduler"

    assert gangs in arguments(WHOLE, "gangline-operator")
    assert gangs not in arguments(OPERATOR_ALONE, "gangline-operator")
    assert set(named(SCHEDULER_ALONE, "Deployment")) == {"gangline-scheduler"}


@pytest.mark.parametrize("name", ["gangline-operator", "gangline-scheduler"])
def test_a_service_outlives_a_node_and_a_drain(name: str) -> None:
    deployment, budget = (
        named(WHOLE, "Deployment")[name]["spec"],
        named(WHOLE, "PodDisruptionBudget")[name]["spec"],
    )
    pod = deployment["template"]["spec"]
    (apart,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]

    assert deployment["replicas"] == 2
    assert apart["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert budget == {"maxUnavailable": 1, "selector": deployment["selector"]}
    assert apart["podAffinityTerm"]["labelSelector"] == deployment["selector"]
    assert set(pod["containers"][0]["resources"]["requests"]) == {"cpu", "memory"}
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(pod["containers"][0])


def test_a_critical_priority_class_has_the_quota_that_allows_it() -> None:
    """Without one, clusters that limit these classes by quota refuse the pods (GKE)."""
    (quota,) = named(WHOLE, "ResourceQuota").values()
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    classes = {
        one["spec"]["template"]["spec"]["priorityClassName"] for one in named(WHOLE, "Deployment").values()
    }

    assert set(scope["values"]) == classes


def test_images_are_named_by_version_and_where_there_is_one_by_digest() -> None:
    digests = {"gangline-scheduler": "sha256:00"}
    chosen = Installation(image_prefix="r.example.com/ml", digests=digests)

    assert Installation().image("operator") == f"gangline:{__version__}"
    assert chosen.image("operator") == f"r.example.com/ml/gangline:{__version__}"
    assert chosen.image("scheduler") == f"r.example.com/ml/gangline-scheduler:{__version__}@sha256:00"


def test_each_service_has_the_image_with_what_it_needs() -> None:
    def image(obj: dict[str, Any]) -> str:
        (container,) = obj["spec"]["template"]["spec"]["containers"]
        found: str = container["image"]
        return found.partition(":")[0]

    assert {name: image(obj) for name, obj in named(WHOLE, "Deployment").items()} == {
        "gangline-operator": "gangline",
        "gangline-scheduler": "gangline-scheduler",
    }
    assert image(device_plugin()[-1]) == "gangline-device-plugin"


def test_definitions_of_gangs_come_with_the_scheduler() -> None:
    def names(installation: Installation) -> list[str]:
        return [crd["metadata"]["name"] for crd in definitions(installation)]

    assert names(OPERATOR_ALONE) == [
        "mpijobs.kubeflow.org",
        "pytorchjobs.kubeflow.org",
        "tfjobs.kubeflow.org",
        "trainjobs.trainer.kubeflow.org",
        "clustertrainingruntimes.trainer.kubeflow.org",
        "trainingruntimes.trainer.kubeflow.org",
    ]
    assert "podgroups.scheduling.x-k8s.io" in names(WHOLE)


@pytest.mark.parametrize("installation", [WHOLE, ONE_NAMESPACE])
def test_every_object_carries_the_label_by_which_it_is_found_again(installation: Installation) -> None:
    for obj in objects(installation):
        assert obj["metadata"]["labels"]["app.kubernetes.io/part-of"] == "gangline"


def test_the_page_has_an_account_without_rights_and_no_token() -> None:
    found = {obj["kind"]: obj for obj in page(WHOLE)}
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert set(found) == {"Namespace", "ServiceAccount", "Deployment", "Service"}  # no role, no binding
    assert {obj["metadata"].get("namespace", "gangline-page") for obj in page(WHOLE)} == {"gangline-page"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["volumes"] == [{"name": "authority", "configMap": {"name": "kube-root-ca.crt"}}]
    assert "env" not in container and container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["securityContext"]["runAsNonRoot"]
