"""The generated CRD: what the API server needs to know of MPIJob."""

import json
from typing import Any

import pytest

from gangline.api.crds import crds, gang_crds

VERSIONS = ["v2beta1", "v1", "v1alpha2", "v1alpha1"]


def versions() -> dict[str, dict[str, Any]]:
    crd = crds()[0]
    assert crd["metadata"]["name"] == "mpijobs.kubeflow.org"
    return {version["name"]: version for version in crd["spec"]["versions"]}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> dict[str, Any]:
    return versions()[request.param]


def spec_of(version: dict[str, Any]) -> dict[str, Any]:
    return version["schema"]["openAPIV3Schema"]["properties"]["spec"]


def test_every_version_is_served_and_one_is_stored() -> None:
    found = versions()

    assert list(found) == VERSIONS
    assert all(version["served"] for version in found.values())
    assert [name for name, version in found.items() if version["storage"]] == ["v2beta1"]
    assert crds()[0]["spec"]["conversion"] == {"strategy": "None"}


def test_names_are_upstreams_with_the_lost_short_names() -> None:
    names = crds()[0]["spec"]["names"]

    assert names == {
        "kind": "MPIJob",
        "listKind": "MPIJobList",
        "plural": "mpijobs",
        "singular": "mpijob",
        "shortNames": ["mj", "mpij"],
    }


def test_status_and_scale_are_subresources(version: dict[str, Any]) -> None:
    want = ".spec.replicas" if version["name"] == "v1alpha1" else ".spec.mpiReplicaSpecs.Worker.replicas"

    assert version["subresources"]["status"] == {}
    assert version["subresources"]["scale"]["specReplicasPath"] == want


def test_columns_say_what_a_job_does(version: dict[str, Any]) -> None:
    columns = [column["name"] for column in version["additionalPrinterColumns"] if not column.get("priority")]

    assert columns == ["State", "Running", "Workers", "Age"]


def test_defaults_are_those_that_mean_the_same_in_every_version(version: dict[str, Any]) -> None:
    spec = spec_of(version)

    assert {name: field["default"] for name, field in spec["properties"].items() if "default" in field} == {
        "sshAuthMountPath": "/root/.ssh",
        "launcherCreationPolicy": "AtStartup",
    }
    assert spec["properties"]["mpiImplementation"]["enum"] == ["OpenMPI", "Intel", "MPICH"]
    assert spec["properties"]["runPolicy"]["properties"]["suspend"]["default"] is False


def test_a_spec_has_roles_or_the_one_template_of_v1alpha1(version: dict[str, Any]) -> None:
    assert spec_of(version)["anyOf"] == [{"required": ["mpiReplicaSpecs"]}, {"required": ["template"]}]


def test_every_version_knows_the_fields_of_all(version: dict[str, Any]) -> None:
    want = {"mpiReplicaSpecs", "cleanPodPolicy", "mainContainer", "mpiDistribution", "gpus", "template"}

    assert want <= set(spec_of(version)["properties"])
    assert set(spec_of(version)["properties"]) == set(spec_of(versions()["v1"])["properties"])


def test_only_old_versions_keep_unknown_fields() -> None:
    kept = {name: spec_of(v).get("x-kubernetes-preserve-unknown-fields") for name, v in versions().items()}

    assert kept == {"v2beta1": None, "v1": True, "v1alpha2": True, "v1alpha1": True}


def test_the_manager_of_a_job_cannot_change(version: dict[str, Any]) -> None:
    (rule,) = spec_of(version)["x-kubernetes-validations"]

    assert "oldSelf.runPolicy.managedBy" in rule["rule"]
    assert "immutable" in rule["message"]


def test_pod_templates_keep_every_field_in_old_versions_and_those_of_pods_in_the_current_one() -> None:
    for name, version in versions().items():
        role = spec_of(version)["properties"]["mpiReplicaSpecs"]["additionalProperties"]
        template = role["properties"]["template"]
        assert template.get("x-kubernetes-preserve-unknown-fields") is (None if name == "v2beta1" else True)
        if name != "v2beta1":
            assert "properties" not in template
            continue
        pod = template["properties"]["spec"]["properties"]
        container = pod["containers"]["items"]["properties"]
        assert {"hostname", "overhead", "initContainers", "volumes"} <= set(pod)
        assert set(container["resources"]["properties"]) == {"limits", "requests", "claims"}
        assert container["ports"]["items"]["properties"]["containerPort"] == {
            "type": "integer",
            "format": "int64",
        }
        assert {"name", "labels", "annotations"} <= set(template["properties"]["metadata"]["properties"])


def test_a_definition_is_small_enough_for_every_way_to_apply_it() -> None:
    # The annotation of a client-side `kubectl apply` holds 256 KiB, an object of etcd 1.5 MiB.
    assert all(len(json.dumps(crd)) < 200_000 for crd in [*crds(), *gang_crds()])


def test_conditions_are_a_map_by_type(version: dict[str, Any]) -> None:
    conditions = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"]

    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert conditions["items"]["required"] == ["type", "status"]
    assert conditions["items"]["properties"]["status"]["enum"] == ["True", "False", "Unknown"]


def test_each_call_gives_fresh_objects() -> None:
    crds()[0]["metadata"]["name"] = "changed"

    assert crds()[0]["metadata"]["name"] == "mpijobs.kubeflow.org"
