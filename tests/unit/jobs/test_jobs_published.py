"""The published MPIJobs, whatever their version, become a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.api.codec import load_file
from gangline.api.core import ObjectMeta
from gangline.api.mpijob_reading import read_mpijob, read_observed
from gangline.clock import parse_time
from gangline.jobs.mpijob import reconcile
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.plan import Create
from gangline.jobs.settings import Settings

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "published"
NOW = parse_time("2026-05-01T12:00:00Z")
WANT = {  # workers, slots, cleanPodPolicy, whether workers are reached without ssh, paths of warnings
    "v2beta1-benchmarks": (1, 2, "Running", False, []),
    "v2beta1-gang": (9, 1, "Running", False, []),
    "v2beta1-pi-intel": (2, 1, "Running", False, []),
    "v1alpha2-16-gpus": (2, 8, "Running", True, []),
    "v1alpha2-spare-gpus": (2, 1, "Running", True, []),
    "v1-elastic": (2, 1, "Running", True, ["spec.mpiReplicaSpecs[Worker].restartPolicy"]),
    "v1alpha1-16-gpus": (2, 8, "Running", True, []),
}


def load(name: str) -> dict[str, Any]:
    (document,) = load_file(FOLDER / f"{name}.yaml")
    return document.value


def test_every_published_file_is_tested_and_listed() -> None:
    listed = (FOLDER / "README.md").read_text()

    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(WANT)
    assert all(f"`{name}.yaml`" in listed for name in WANT)


@pytest.mark.parametrize("name", WANT)
def test_a_published_job_is_read_as_it_was_meant(name: str) -> None:
    document = load(name)
    found = read_mpijob(document)
    meta = ObjectMeta(name=document["metadata"]["name"], namespace="ns", uid="u", generation=1)

    job = found.job

    assert found.errors == []
    assert (
        job.worker_count,
        job.spec.slots_per_worker,
        job.spec.run_policy.clean_pod_policy,
        job.needs_exec,
        [warning.path for warning in found.warnings],
    ) == WANT[name]
    assert read_observed(meta, document["spec"], None).job.spec.replica("Worker") == job.spec.replica(
        "Worker"
    )


@pytest.mark.parametrize("gangs", ["", "volcano", "scheduler-plugins-scheduler"])
@pytest.mark.parametrize("name", WANT)
def test_a_published_job_becomes_its_objects(name: str, gangs: str) -> None:
    document = load(name)
    meta = ObjectMeta(name=document["metadata"]["name"], namespace="ns", uid="u", generation=1)
    read = read_observed(meta, document["spec"], None)

    plan = reconcile(
        read, ObservedChildren(), NOW, settings=Settings(gang_scheduling=gangs, has_remote_shell=True)
    )

    kinds = [action.object["kind"] for action in plan.actions if isinstance(action, Create)]
    assert kinds.count("Pod") == read.job.worker_count
    assert kinds.count("Job") == 1
    assert kinds.count("PodGroup") == (1 if gangs else 0)
    msgspec.json.encode([action.object for action in plan.actions if isinstance(action, Create)])
