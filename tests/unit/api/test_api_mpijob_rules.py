"""Defaults and rules of MPIJob v2beta1: which fields, which reasons, in which order."""

from collections.abc import Callable
from typing import Any

import pytest

from gangline.api.core import ObjectMeta
from gangline.api.mpijob import LAUNCHER, WORKER, MPIJob, MPIJobSpec, ReplicaSpec, RunPolicy
from gangline.api.mpijob_defaults import apply_defaults
from gangline.api.mpijob_reading import read_mpijob, read_observed
from gangline.api.mpijob_validation import validate_mpijob

Build = Callable[..., dict[str, Any]]
CONTAINERS = {"spec": {"containers": [{"name": "main", "image": "image"}]}}


def found(job: MPIJob) -> list[tuple[str, str]]:
    return [(error.reason, error.path) for error in validate_mpijob(job)]


def make(name: str = "pi", **spec: Any) -> MPIJob:
    return MPIJob(metadata=ObjectMeta(name=name), spec=MPIJobSpec(**spec))


# Defaults.


def test_defaults_fill_what_is_absent() -> None:
    spec = apply_defaults(make()).spec

    assert spec.slots_per_worker == 1
    assert spec.run_policy.clean_pod_policy == "None"
    assert spec.ssh_auth_mount_path == "/root/.ssh"
    assert spec.mpi_implementation == "OpenMPI"
    assert spec.launcher_creation_policy == "AtStartup"
    assert spec.mpi_replica_specs is None


@pytest.mark.parametrize("implementation", ["Intel", "MPICH"])
def test_defaults_keep_what_is_set(implementation: str) -> None:
    given = make(
        slots_per_worker=10,
        run_policy=RunPolicy(clean_pod_policy="Running", ttl_seconds_after_finished=2),
        ssh_auth_mount_path="/home/mpiuser/.ssh",
        mpi_implementation=implementation,
        launcher_creation_policy="WaitForWorkersReady",
    )

    assert apply_defaults(given) == given


def test_defaults_of_the_roles() -> None:
    roles = apply_defaults(make(mpi_replica_specs={LAUNCHER: ReplicaSpec(), WORKER: ReplicaSpec()})).spec

    launcher, worker = roles.replica(LAUNCHER), roles.replica(WORKER)
    assert launcher and (launcher.replicas, launcher.restart_policy) == (1, "OnFailure")
    assert worker and (worker.replicas, worker.restart_policy) == (0, "Never")


# Rules.


@pytest.mark.parametrize("implementation", ["OpenMPI", "Intel", "MPICH"])
@pytest.mark.parametrize("workers", [None, 3])
def test_a_good_job_breaks_no_rule(document: Build, implementation: str, workers: int | None) -> None:
    read = read_mpijob(document(workers=workers, mpiImplementation=implementation))

    assert read.errors == []


def test_an_empty_job_lacks_everything_in_order() -> None:
    assert found(MPIJob()) == [
        ("Invalid", "metadata.name"),
        ("Required", "spec.mpiReplicaSpecs"),
        ("Required", "spec.slotsPerWorker"),
        ("Required", "spec.runPolicy.cleanPodPolicy"),
        ("Required", "spec.sshAuthMountPath"),
        ("NotSupported", "spec.mpiImplementation"),
    ]


def test_bad_values_of_the_spec_are_all_named_in_order() -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "image"}]}}
    job = make(
        name="this-name-is-waaaaaaaay-too-long-for-a-worker-hostname1",
        slots_per_worker=2,
        run_policy=RunPolicy(
            clean_pod_policy="unknown",
            ttl_seconds_after_finished=-1,
            active_deadline_seconds=-1,
            backoff_limit=-1,
            managed_by="invalid.com/controller",
        ),
        ssh_auth_mount_path="/root/.ssh",
        mpi_implementation="Unknown",
        mpi_replica_specs={
            LAUNCHER: ReplicaSpec(replicas=1, restart_policy="Never", template=template),
            WORKER: ReplicaSpec(replicas=1000, restart_policy="Never", template=template),
        },
    )

    assert found(job) == [
        ("Invalid", "metadata.name"),
        ("NotSupported", "spec.runPolicy.cleanPodPolicy"),
        ("Invalid", "spec.runPolicy.ttlSecondsAfterFinished"),
        ("Invalid", "spec.runPolicy.activeDeadlineSeconds"),
        ("Invalid", "spec.runPolicy.backoffLimit"),
        ("NotSupported", "spec.runPolicy.managedBy"),
        ("NotSupported", "spec.mpiImplementation"),
    ]


def test_a_job_needs_a_launcher() -> None:
    assert found(apply_defaults(make(mpi_replica_specs={}))) == [
        ("Required", "spec.mpiReplicaSpecs[Launcher]")
    ]


def test_what_a_role_lacks_is_named_for_launcher_then_worker() -> None:
    job = make(
        slots_per_worker=2,
        run_policy=RunPolicy(clean_pod_policy="Running"),
        ssh_auth_mount_path="/root/.ssh",
        mpi_implementation="OpenMPI",
        mpi_replica_specs={LAUNCHER: ReplicaSpec(), WORKER: ReplicaSpec()},
    )

    assert found(job) == [
        (reason, f"spec.mpiReplicaSpecs[{role}].{field}")
        for role in ("Launcher", "Worker")
        for reason, field in [
            ("Required", "replicas"),
            ("NotSupported", "restartPolicy"),
            ("Required", "template.spec.containers"),
        ]
    ]


def test_bad_values_of_the_roles() -> None:
    job = apply_defaults(
        make(
            mpi_replica_specs={
                LAUNCHER: ReplicaSpec(replicas=2, restart_policy="Always", template=CONTAINERS),
                WORKER: ReplicaSpec(replicas=0, restart_policy="Invalid", template=CONTAINERS),
            }
        )
    )

    assert found(job) == [
        ("NotSupported", "spec.mpiReplicaSpecs[Launcher].restartPolicy"),
        ("Invalid", "spec.mpiReplicaSpecs[Launcher].replicas"),
        ("NotSupported", "spec.mpiReplicaSpecs[Worker].restartPolicy"),
        ("Invalid", "spec.mpiReplicaSpecs[Worker].replicas"),
    ]


@pytest.mark.parametrize("name", ["pi", "1-foo", "16gpu-tensorflow-benchmark-imagenet", "a" * 54])
def test_names_that_make_host_names_are_good(document: Build, name: str) -> None:
    assert read_mpijob(document(name)).errors == []


@pytest.mark.parametrize("name", ["", "-a", "A", "a.b", "a_b", "a" * 55])
def test_other_names_are_not(document: Build, name: str) -> None:
    assert [error.path for error in read_mpijob(document(name)).errors] == ["metadata.name"]


def test_the_number_of_workers_counts_for_the_name(document: Build) -> None:
    (error,) = read_mpijob(document("a" * 54, workers=11)).errors

    assert "would have 64 characters" in error.message


# Beyond upstream: what users meet.


def paths(document: dict[str, Any]) -> dict[str, str]:
    return {error.path: f"{error.reason}: {error.message}" for error in read_mpijob(document).errors}


def test_zero_slots_can_take_no_rank(document: Build) -> None:
    assert "at least 1" in paths(document(slotsPerWorker=0))["spec.slotsPerWorker"]


def test_an_unknown_field_gets_a_suggestion(document: Build) -> None:
    job = document(slotsPerWoker=2, runPolicy={"cleanPodPolcy": "All"}, colour="red")

    assert paths(job) == {
        "spec.slotsPerWoker": "Invalid: unknown field; did you mean `slotsPerWorker`?",
        "spec.runPolicy.cleanPodPolcy": "Invalid: unknown field; did you mean `cleanPodPolicy`?",
        "spec.colour": "Invalid: unknown field",
    }


def test_a_value_that_is_nearly_one_of_a_few_gets_a_suggestion(document: Build) -> None:
    job = document(runPolicy={"cleanPodPolicy": "running"})

    assert paths(job)["spec.runPolicy.cleanPodPolicy"].endswith("; did you mean `Running`?")


def test_an_unknown_role_is_not_supported(document: Build) -> None:
    job = document()
    job["spec"]["mpiReplicaSpecs"]["worker"] = job["spec"]["mpiReplicaSpecs"].pop("Worker")

    assert paths(job) == {
        "spec.mpiReplicaSpecs[worker]": "NotSupported: supported replica types are Launcher and Worker; "
        "did you mean `Worker`?"
    }


def test_wrong_types_are_all_named_and_silence_the_rules_about_them(document: Build) -> None:
    job = document(slotsPerWorker="2", runPolicy=[], mpiImplementation=4)
    job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = 2.5
    job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"] = "none"

    assert {path: text.partition(":")[0] for path, text in paths(job).items()} == {
        "spec.slotsPerWorker": "TypeInvalid",
        "spec.runPolicy": "TypeInvalid",
        "spec.mpiImplementation": "TypeInvalid",
        "spec.mpiReplicaSpecs[Worker].replicas": "TypeInvalid",
        "spec.mpiReplicaSpecs[Launcher].template": "TypeInvalid",
    }


def test_a_number_out_of_range_is_a_type_error(document: Build) -> None:
    assert paths(document(slotsPerWorker=2**31))["spec.slotsPerWorker"].startswith("TypeInvalid")


def test_null_counts_as_absent(document: Build) -> None:
    assert read_mpijob(document(runPolicy=None, slotsPerWorker=None)).errors == []


def container_errors(document: Build, **container: Any) -> dict[str, str]:
    job = document(workers=None)
    job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"] = {"spec": {"containers": [container]}}
    head = "spec.mpiReplicaSpecs[Launcher].template.spec.containers[0]."
    return {path.removeprefix(head): text for path, text in paths(job).items()}


def test_a_container_needs_name_and_image(document: Build) -> None:
    assert {path: text.partition(":")[0] for path, text in container_errors(document).items()} == {
        "name": "Required",
        "image": "Required",
    }


def test_mistakes_in_a_container_are_found(document: Build) -> None:
    errors = container_errors(
        document,
        name="Main",
        image="x",
        comand=["x"],
        env=[{"name": "A", "value": 1}],
        args="x",
        resources={"limits": {"cpu": "2 cores"}},
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
    )

    assert set(errors) == {
        "name",
        "comand",
        "env[0].value",
        "args",
        "resources.limits[cpu]",
        "volumeMounts[0].name",
    }
    assert "did you mean `command`" in errors["comand"]
    assert "quotes" in errors["env[0].value"]


def test_fields_that_pods_do_not_have_are_found_at_any_depth(document: Build) -> None:
    errors = container_errors(
        document,
        name="a",
        image="x",
        zzz=1,
        resources={"limit": {"cpu": 1}},
        readinessProbe={"httpGet": {"port": 1, "Path": "/"}},
    )

    assert errors == {
        "zzz": "Invalid: unknown field",
        "resources.limit": "Invalid: unknown field; did you mean `limits`?",
        "readinessProbe.httpGet.Path": "Invalid: unknown field; did you mean `path`?",
    }


def test_a_mount_must_not_hide_the_ssh_key(document: Build) -> None:
    job = document(workers=None)
    job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"] = {
        "volumes": [{"name": "keys", "emptyDir": {}}],
        "containers": [
            {"name": "a", "image": "x", "volumeMounts": [{"name": "keys", "mountPath": "/root/.ssh"}]}
        ],
    }

    (path,) = paths(job)
    assert path.endswith("containers[0].volumeMounts[0].mountPath")


def test_an_observed_job_may_have_unknown_fields(document: Build) -> None:
    job = document(fromTheFuture=1)

    read = read_observed(ObjectMeta(name="pi", namespace="default"), job["spec"], {"conditions": "broken"})

    assert read.errors == []
    assert read.job.worker_count == 2
    assert read.job.status.conditions == []
