"""What is kept of a run: no environment; and what it came to, read from its objects."""

from datetime import UTC, datetime

import pytest

from gangline.cluster.runs.record import (
    PROGRAM_ANNOTATION,
    RunRecord,
    command_of,
    program_text,
    summary_of,
    without_environment,
)

NOW = datetime(2026, 11, 22, 12, 0, 30, tzinfo=UTC)
SECRET = "hf_abcdef"


def job(**status):
    metadata = {
        "name": "train",
        "namespace": "default",
        "uid": "u1",
        "creationTimestamp": "2026-11-22T12:00:00Z",
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}, "status": status}


def over(kind, at="2026-11-22T12:00:20Z"):
    return job(conditions=[{"type": kind, "status": "True", "lastTransitionTime": at}])


def pod(phase="Running", code=None):
    state = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
    statuses = [{"name": "main", "state": state}]
    return {"metadata": {"name": "p"}, "spec": {}, "status": {"phase": phase, "containerStatuses": statuses}}


@pytest.mark.parametrize(
    ("record", "is_up", "expected"),
    [
        (RunRecord(job=over("Complete"), pods=[pod("Succeeded", 0)]), True, ("SUCCEEDED", 20, 0)),
        (RunRecord(job=over("Failed"), pods=[pod("Failed", 3)]), True, ("FAILED", 20, 3)),
        (RunRecord(job=over("Failed"), gone_at="2026-11-22T12:00:25Z"), True, ("FAILED", 20, None)),
        (RunRecord(job=job(), pods=[pod()]), True, ("RUNNING", 30, None)),
        (RunRecord(job=job(), pods=[pod()]), False, ("LOST", 30, None)),
        (RunRecord(job=job(), pods=[pod("Pending")]), True, ("PENDING", 30, None)),
        (RunRecord(job=job(), pods=[pod()], gone_at="2026-11-22T12:00:05Z"), True, ("CANCELLED", 5, None)),
        (RunRecord(job=job(), gone_at="2026-11-22T12:00:05Z", is_lost=True), True, ("LOST", 5, None)),
    ],
)
def test_a_run_is_told_by_its_last_objects(record, is_up, expected):
    found = summary_of(record, NOW, is_up=is_up)
    assert (found.status, found.duration_s, found.exit_code) == expected


@pytest.mark.parametrize(
    ("deletion", "grace_s", "status"),
    [("12:00:45", 30, "CANCELLED"), ("12:01:00", 30, "FAILED"), ("12:00:15", None, "CANCELLED")],
)
def test_a_job_that_fails_because_it_is_deleted_was_cancelled(deletion, grace_s, status):
    failed = over("Failed", at="2026-11-22T12:00:20Z")
    failed["metadata"] |= {
        "deletionTimestamp": f"2026-11-22T{deletion}Z",
        "deletionGracePeriodSeconds": grace_s,
    }
    assert summary_of(RunRecord(job=failed), NOW).status == status


def test_no_value_of_a_variable_is_kept():
    container = {
        "name": "main",
        "env": [{"name": "HF_TOKEN", "value": SECRET}],
        "envFrom": [{"secretRef": {"name": "s"}}],
        "command": [
            "mpirun",
            "-n",
            "2",
            "-x",
            f"HF_TOKEN={SECRET}",
            "-genv",
            "KEY",
            SECRET,
            "python",
            "t.py",
        ],
        "args": [f"mpirun -x HF_TOKEN={SECRET} python t.py -x"],
    }
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "mine": "kept"}
    found = job() | {
        "spec": {"template": {"spec": {"containers": [container], "initContainers": [container]}}}
    }
    found["metadata"] |= {"annotations": annotations, "managedFields": [{}]}

    kept = without_environment(found)

    assert SECRET not in str(kept)
    [main] = kept["spec"]["template"]["spec"]["containers"]
    assert main["command"] == ["mpirun", "-n", "2", "-x", "HF_TOKEN", "-genv", "KEY", "python", "t.py"]
    assert main["args"] == ["mpirun -x HF_TOKEN python t.py -x"]
    assert kept["metadata"]["annotations"] == {"mine": "kept"}
    assert found["spec"]["template"]["spec"]["containers"][0]["env"], "the live object stays as it is"


def test_the_command_is_the_users_program_else_the_containers():
    spec = {"containers": [{"image": "x", "command": ["sh", "-c"], "args": ["echo a b"]}]}
    written = job() | {"spec": {"template": {"spec": spec}}}
    assert command_of(written) == "sh -c 'echo a b'"
    written["metadata"]["annotations"] = {PROGRAM_ANNOTATION: program_text(["python", "my train.py"])}
    assert command_of(written) == "python 'my train.py'"
    assert command_of(job()) == "(of image unknown)"


def test_a_job_of_the_trainers_sdk_shows_its_own_command_or_its_runtime() -> None:
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "told"},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"command": ["bash", "-c"], "args": ["def train():\n    pass\n\ntrain()\n"]},
        },
    }
    assert command_of(job) == "bash -c 'def train(): pass train() '"

    del job["spec"]["trainer"]  # type: ignore[attr-defined]
    assert command_of(job) == "(of runtime torch-distributed)"
