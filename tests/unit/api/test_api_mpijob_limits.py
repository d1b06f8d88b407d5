"""What one MPIJob may ask of an operator: sizes that would fill its memory are refused."""

from __future__ import annotations

import pytest

from gangline.api.core import ObjectMeta
from gangline.api.mpijob_reading import read_mpijob, read_observed

ROLE = {"template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}}


def job(workers: int) -> dict[str, object]:
    roles = {"Launcher": ROLE, "Worker": {"replicas": workers, **ROLE}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "pi"},
        "spec": {"mpiReplicaSpecs": roles},
    }


@pytest.mark.parametrize(
    ("workers", "want"), [(10_000, []), (10_001, ["10001"]), (2**31 - 1, ["2147483647"])]
)
def test_workers_are_limited(workers: int, want: list[str]) -> None:
    errors = read_mpijob(job(workers)).errors

    assert [error.value for error in errors] == want
    assert all(error.path == "spec.mpiReplicaSpecs[Worker].replicas" for error in errors)


def test_an_applied_text_of_any_depth_is_no_version() -> None:
    annotation = {"kubectl.kubernetes.io/last-applied-configuration": "[" * 100_000}

    assert read_observed(ObjectMeta(name="pi", annotations=annotation), job(1)["spec"], None).errors == []


@pytest.mark.parametrize(("levels", "want"), [(80, []), (200, ["spec"]), (9000, ["spec"])])
def test_levels_are_limited(levels: int, want: list[str]) -> None:
    deep: object = "x"
    for _ in range(levels):
        deep = {"a": deep}
    container = {"name": "main", "image": "i", "lifecycle": deep}
    spec = {"mpiReplicaSpecs": {"Launcher": {"template": {"spec": {"containers": [container]}}}}}
    document = {**job(1), "spec": spec}

    for read in (read_mpijob(document), read_observed(ObjectMeta(name="pi"), spec, None)):
        assert [error.path for error in read.errors if error.path == "spec"] == want
