"""How long a job that runs may take yet, by ended jobs of the same namespace and size."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.cluster.runs.durations import EndedRun, JobScale, expected_s
from gangline.cluster.runs.record import RunRecord

SIZE = JobScale("team", 8, 0)


def job(gpus: int, *, ended: str = "", started: str = "", namespace: str = "team") -> dict[str, Any]:
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    template = {"spec": {"containers": [{"name": "w", "resources": {"limits": limits}}]}}
    status: dict[str, Any] = {"startTime": started} if started else {}
    if ended:
        status |= {
            "completionTime": ended,
            "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": ended}],
        }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": namespace, "uid": "u"},
        "spec": {"parallelism": 2, "completions": 2, "template": template},
        "status": status,
    }


def ended(*ran_s: float, size: JobScale = SIZE) -> list[EndedRun]:
    return [EndedRun(str(index), size, value) for index, value in enumerate(ran_s)]


def test_median_and_ninth_tenth_of_those_that_are_alike():
    history = ended(*range(100, 1100, 100)) + ended(9.0, 9.0, 9.0, size=JobScale("other", 8, 0))

    assert expected_s(history, SIZE, 0, 0.5) == 500
    assert expected_s(history, SIZE, 0, 0.9) == 900


def test_only_those_count_that_ran_longer_than_it_has_already():
    history = ended(*range(100, 1100, 100))

    assert expected_s(history, SIZE, 650, 0.5) == 800  # of 700, 800, 900, 1000
    assert expected_s(history, SIZE, 850, 0.5) is None  # two are left


def test_what_a_job_ran_is_counted_from_its_first_pod_and_not_from_its_wait():
    over = job(4, started="2026-01-01T10:00:00Z", ended="2026-01-01T12:00:00Z")
    pods = [{"status": {"startTime": moment}} for moment in ("2026-01-01T11:30:00Z", "2026-01-01T11:00:00Z")]

    assert EndedRun.of(RunRecord(job=over, pods=pods)) == EndedRun("u", SIZE, 3600)
    assert EndedRun.of(RunRecord(job=over, pods=[])) == EndedRun("u", SIZE, 7200)  # its pods are gone
    assert EndedRun.of(RunRecord(job=job(4, started="2026-01-01T10:00:00Z"), pods=pods)) is None


@pytest.mark.parametrize(("gpus", "size"), [(4, JobScale("team", 8, 0)), (0, JobScale("team", 0, 2))])
def test_without_gpus_the_number_of_pods_is_the_size(gpus: int, size: JobScale):
    assert JobScale.of(job(gpus)) == size
