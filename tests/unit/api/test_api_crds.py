"""The generated CRD: what the API server needs to know of MPIJob."""

from typing import Any

import pytest

from gangline.api.crds import crds


@pytest.fixture
def version() -> dict[str, Any]:
    (crd,) = crds()
    assert crd["metadata"]["name"] == "mpijobs.kubeflow.org"
    (only,) = crd["spec"]["versions"]
    return only


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
    assert version["served"] and version["storage"]
    assert version["subresources"]["status"] == {}
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.mpiReplicaSpecs.Worker.replicas"


def test_columns_say_what_a_job_does(version: dict[str, Any]) -> None:
    columns = [column["name"] for column in version["additionalPrinterColumns"] if not column.get("priority")]

    assert columns == ["State", "Running", "Workers", "Age"]


def test_spec_carries_the_published_defaults_and_required_fields(version: dict[str, Any]) -> None:
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]

    assert spec["required"] == ["mpiReplicaSpecs"]
    assert {name: field["default"] for name, field in spec["properties"].items() if "default" in field} == {
        "slotsPerWorker": 1,
        "runLauncherAsWorker": False,
        "sshAuthMountPath": "/root/.ssh",
        "launcherCreationPolicy": "AtStartup",
        "mpiImplementation": "OpenMPI",
    }
    assert spec["properties"]["mpiImplementation"]["enum"] == ["OpenMPI", "Intel", "MPICH"]
    assert spec["properties"]["runPolicy"]["properties"]["suspend"]["default"] is False


def test_pod_templates_keep_every_field(version: dict[str, Any]) -> None:
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    role = spec["properties"]["mpiReplicaSpecs"]["additionalProperties"]

    assert role["properties"]["template"]["x-kubernetes-preserve-unknown-fields"] is True


def test_conditions_are_a_map_by_type(version: dict[str, Any]) -> None:
    conditions = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"]

    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert conditions["items"]["required"] == ["type", "status"]
    assert conditions["items"]["properties"]["status"]["enum"] == ["True", "False", "Unknown"]


def test_each_call_gives_fresh_objects() -> None:
    crds()[0]["metadata"]["name"] = "changed"

    assert crds()[0]["metadata"]["name"] == "mpijobs.kubeflow.org"
