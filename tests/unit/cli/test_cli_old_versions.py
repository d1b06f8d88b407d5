"""What people see of MPIJobs in old versions: the same as of one of v2beta1 that says the same.

The files are the published ones; what they amount to was worked out by hand from their text.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from gangline.workloads.job_state import expected_pods, requested_gpus
from gangline.workloads.rank_hosts import hosts_of, launcher_command

PUBLISHED = Path(__file__).resolve().parents[3] / "examples" / "published"


def job(name: str, *, as_stored: bool) -> dict:
    """Return a job as in its file, or as a server gives it back: under the stored version's name."""
    found = next(
        item for item in yaml.safe_load_all((PUBLISHED / name).read_text()) if item["kind"] == "MPIJob"
    )
    if as_stored:
        writer = {"manager": "kubectl", "operation": "Update", "apiVersion": found["apiVersion"]}
        found["metadata"]["managedFields"] = [writer]
        found["apiVersion"] = "kubeflow.org/v2beta1"
    return found


@pytest.mark.parametrize("as_stored", [False, True], ids=["file", "stored"])
@pytest.mark.parametrize(
    ("name", "pods", "gpus", "slots"),
    [
        ("v1alpha1-16-gpus.yaml", 3, 16, [8, 8]),
        ("v1alpha2-16-gpus.yaml", 3, 16, [8, 8]),
        ("v2beta1-benchmarks.yaml", 2, 2, [2]),
    ],
)
def test_pods_gpus_and_hosts_are_read_by_shape(
    name: str, pods: int, gpus: int, slots: list[int], as_stored: bool
) -> None:
    found = job(name, as_stored=as_stored)
    before = deepcopy(found)

    assert expected_pods(found) == pods
    assert requested_gpus(found) == gpus
    assert [count for _, count in hosts_of(found)] == slots
    assert launcher_command(found)[0] == "mpirun"
    assert found == before
