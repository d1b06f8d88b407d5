"""What can be done with a job of each kind, and by which command line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gangline.jobs.job_changes import scaling, suspension
from gangline.page.detail import job_detail
from gangline.page.rows import row_of
from gangline.workloads.job_view import view_job

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def job(kind: str, group: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "team", "uid": "u", "managedFields": [{"manager": "x"}]}
    return {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec}


TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
MPI = job(
    "MPIJob", "kubeflow.org/v2beta1", {"mpiReplicaSpecs": {"Worker": {"replicas": 2, "template": TEMPLATE}}}
)
TRAIN = job("TrainJob", "trainer.kubeflow.org/v1alpha1", {"runtimeRef": {"name": "r"}})
BATCH = job("Job", "batch/v1", {"template": TEMPLATE})


@pytest.mark.parametrize(
    ("one", "patch"),
    [
        (MPI, {"spec": {"runPolicy": {"suspend": True}}}),
        (TRAIN, {"spec": {"suspend": True}}),
        (BATCH, {"spec": {"suspend": True}}),
        (job("Pod", "v1", TEMPLATE["spec"]), None),
    ],
)
def test_a_job_is_suspended_where_its_kind_has_the_field(one: dict[str, Any], patch: Any) -> None:
    assert suspension(one, is_wanted=True) == patch


def test_workers_are_scaled_and_nothing_else() -> None:
    assert scaling(MPI, 5) == {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 5}}}}
    assert scaling(TRAIN, 5) is None


def test_a_job_shows_its_file_without_bookkeeping_and_the_commands_that_do_the_same() -> None:
    view = view_job(MPI, [], NOW)
    events = [
        {
            "reason": "Old",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "involvedObject": {"kind": "Pod", "name": "p"},
        },
        {"reason": "New", "lastTimestamp": "2026-01-02T00:00:00Z", "count": 3},
    ]
    found = job_detail(row_of(view), view, MPI, events, " --context C", " --context C")

    assert "managedFields" not in found["manifest"]
    assert [event["reason"] for event in found["events"]] == ["New", "Old"]
    assert found["scalable"] == {"role": "Worker", "replicas": 2}
    assert found["suspended"] is False
    commands = found["commands"]
    assert commands["delete"] == "gangline delete mpijob/a --context C -n team"
    assert commands["suspend"] == (
        "kubectl --context C -n team patch mpijobs.kubeflow.org a --type merge "
        '-p \'{"spec":{"runPolicy":{"suspend":true}}}\''
    )
    assert '"replicas":COUNT' in commands["scale"]
