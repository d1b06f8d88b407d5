"""MPIJobs of v1, v1alpha2 and v1alpha1 read in the shape of v2beta1.

In scope: what each old field becomes, how the version is told, what is said about the rest. Out of scope: the
rules of the result (test_api_mpijob_rules.py) and what is made of it (tests/unit/jobs).
"""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from gangline.api.core import ObjectMeta
from gangline.api.mpijob import JobMeta, ManagedFields
from gangline.api.mpijob_reading import ReadJob, read_mpijob, read_observed
from gangline.api.mpijob_versions import LAST_APPLIED, normalise, written_version

Spec = dict[str, Any]
GPU = "nvidia.com/gpu"


def role(*, limits: Spec | None = None, command: list[str] | None = None, **more: Any) -> Spec:
    container: Spec = {"name": "main", "image": "image"}
    container |= {"resources": {"limits": limits}} if limits else {}
    container |= {"command": command} if command else {}
    return {"template": {"spec": {"containers": [container]}}, **more}


def roles(**worker: Any) -> Spec:
    return {
        "Launcher": role(command=["mpirun", "true"]),
        "Worker": role(**{"replicas": 2, **worker}),
    }


def read(version: str, **spec: Any) -> ReadJob:
    document = {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": "pi", "namespace": "ns"},
        "spec": spec,
    }
    return read_mpijob(document)


def observe(spec: Spec, written: str = "") -> ReadJob:
    entries = [ManagedFields(api_version=f"kubeflow.org/{written}", time="1")] if written else []
    return read_observed(JobMeta(name="pi", namespace="ns", managed_fields=entries), spec, None)


def main_of(found: ReadJob, name: str) -> Spec:
    spec = found.job.spec.replica(name)
    assert spec is not None
    return spec.containers[0]


def problems(found: ReadJob) -> list[tuple[str, str]]:
    return [(error.reason, error.path) for error in found.errors]


# v1alpha2 and v1.


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
def test_a_clean_pod_policy_moves_into_the_run_policy(version: str) -> None:
    found = read(version, cleanPodPolicy="Running", mpiReplicaSpecs=roles())

    assert found.errors == found.warnings == []
    assert found.job.spec.run_policy.clean_pod_policy == "Running"
    assert found.job.version == version


def test_limits_move_into_the_run_policy() -> None:
    found = read("v1alpha2", backoffLimit=3, activeDeadlineSeconds=60, mpiReplicaSpecs=roles())

    policy = found.job.spec.run_policy

    assert (policy.backoff_limit, policy.active_deadline_seconds) == (3, 60)


def test_the_run_policy_wins_and_the_other_value_is_named() -> None:
    found = read(
        "v1alpha2",
        backoffLimit=3,
        cleanPodPolicy="All",
        runPolicy={"backoffLimit": 5, "cleanPodPolicy": "All"},
        mpiReplicaSpecs=roles(),
    )

    assert found.job.spec.run_policy.backoff_limit == 5
    assert [(warning.path, warning.value) for warning in found.warnings] == [("spec.backoffLimit", "3")]


@pytest.mark.parametrize(
    ("given", "want"), [("OpenMPI", "OpenMPI"), ("IntelMPI", "Intel"), ("MPICH", "MPICH")]
)
def test_the_distribution_becomes_the_implementation(given: str, want: str) -> None:
    assert (
        read("v1alpha2", mpiDistribution=given, mpiReplicaSpecs=roles()).job.spec.mpi_implementation == want
    )


def test_a_bad_value_is_reported_where_it_was_written() -> None:
    found = read("v1alpha2", mpiDistribution="LAM", cleanPodPolicy="Sometimes", mpiReplicaSpecs=roles())

    assert problems(found) == [
        ("NotSupported", "spec.cleanPodPolicy"),
        ("NotSupported", "spec.mpiDistribution"),
    ]


def test_a_field_of_the_wrong_type_is_reported() -> None:
    found = read("v1alpha2", backoffLimit="3", mpiReplicaSpecs=roles())

    assert problems(found) == [("TypeInvalid", "spec.backoffLimit")]


def test_workers_sleep_and_ranks_come_through_the_exec_api() -> None:
    found = read("v1alpha2", mpiReplicaSpecs=roles())

    assert found.job.needs_exec
    assert main_of(found, "Worker")["command"] == ["sleep"]
    assert main_of(found, "Worker")["args"] == ["365d"]
    assert main_of(found, "Launcher")["command"] == ["mpirun", "true"]


def test_workers_that_start_an_ssh_server_need_no_exec_api() -> None:
    found = read("v1alpha2", mpiReplicaSpecs=roles(command=["/usr/sbin/sshd", "-De"]))

    assert not found.job.needs_exec


def test_a_program_of_the_workers_own_stays() -> None:
    found = read("v1", mainContainer="main", mpiReplicaSpecs=roles(command=["sleep", "1d"]))

    assert found.job.needs_exec
    assert main_of(found, "Worker")["command"] == ["sleep", "1d"]


@pytest.mark.parametrize("policy", ["Always", "ExitCode"])
def test_restart_policies_become_the_nearest_ones(policy: str) -> None:
    spec = {"Launcher": role(restartPolicy=policy), "Worker": role(replicas=1, restartPolicy=policy)}

    found = read("v1", mpiReplicaSpecs=spec)

    assert [found.job.spec.replica(name).restart_policy for name in ("Launcher", "Worker")] == [
        "OnFailure",
        "Never",
    ]
    assert len(found.warnings) == 2
    assert found.errors == []


@pytest.mark.parametrize(
    ("version", "want"), [("v1", "Never"), ("v1alpha2", "OnFailure"), ("v2beta1", "OnFailure")]
)
def test_an_absent_restart_policy_of_the_launcher_is_the_versions_own(version: str, want: str) -> None:
    assert read(version, mpiReplicaSpecs=roles()).job.spec.replica("Launcher").restart_policy == want


@pytest.mark.parametrize(("version", "want"), [("v1", True), ("v1alpha2", False), ("v2beta1", False)])
def test_a_launcher_with_gpus_takes_ranks_in_v1_only(version: str, want: bool) -> None:
    spec = roles() | {"Launcher": role(limits={GPU: 1})}

    assert read(version, mpiReplicaSpecs=spec).job.spec.run_launcher_as_worker is want


def test_the_main_container_comes_first() -> None:
    spec = roles()
    containers = spec["Worker"]["template"]["spec"]["containers"]
    containers.insert(0, {"name": "proxy", "image": "proxy", "resources": {"limits": {"cpu": "no"}}})

    found = read("v1", mainContainer="main", mpiReplicaSpecs=spec)

    assert [c["name"] for c in found.job.spec.replica("Worker").containers] == ["main", "proxy"]
    assert problems(found) == [
        ("Invalid", "spec.mpiReplicaSpecs[Worker].template.spec.containers[0].resources.limits[cpu]")
    ]


def test_a_main_container_that_is_nowhere_is_an_error() -> None:
    assert problems(read("v1", mainContainer="other", mpiReplicaSpecs=roles())) == [
        ("Invalid", "spec.mainContainer")
    ]


def test_unknown_fields_are_warnings_in_old_versions_and_errors_in_the_current_one() -> None:
    worker = roles()
    worker["Worker"]["template"]["spec"]["containers"][0]["comand"] = []

    old = read("v1alpha2", launcherOnMaster=True, colour="red", mpiReplicaSpecs=worker)
    current = read("v2beta1", launcherOnMaster=True, colour="red", mpiReplicaSpecs=worker)

    path = "spec.mpiReplicaSpecs[Worker].template.spec.containers[0].comand"
    assert old.errors == []
    assert [warning.path for warning in old.warnings] == ["spec.launcherOnMaster", "spec.colour", path]
    assert [error.path for error in current.errors] == ["spec.launcherOnMaster", "spec.colour", path]


def test_a_field_of_an_old_version_in_a_current_manifest_is_told_its_new_place() -> None:
    (error,) = read("v2beta1", cleanPodPolicy="All", mpiReplicaSpecs=roles()).errors

    assert error.message == (
        "unknown field; it belongs to older versions; in v2beta1 it is `spec.runPolicy.cleanPodPolicy`"
    )


# v1alpha1.


def template(**limits: Any) -> Spec:
    return role(limits=limits or None, command=["mpirun", "true"])["template"]


@pytest.mark.parametrize(
    ("spec", "workers", "units"),
    [
        ({"gpus": 8, "gpusPerNode": 4}, 2, 4),
        ({"gpus": 3, "gpusPerNode": 4}, 1, 3),
        ({"gpus": 3}, 3, 1),
        ({"processingUnits": 4, "processingUnitsPerNode": 2}, 2, 2),
    ],
    ids=["a multiple", "less than one worker has", "one each", "processing units"],
)
def test_a_total_is_spread_over_workers(spec: Spec, workers: int, units: int) -> None:
    found = read("v1alpha1", template=template(), **spec)

    assert found.errors == []
    assert (found.job.worker_count, found.job.spec.slots_per_worker) == (workers, units)
    assert main_of(found, "Worker")["resources"]["limits"] == {GPU: units}


def test_processors_may_be_counted_instead() -> None:
    found = read("v1alpha1", template=template(), processingUnits=2, processingResourceType="cpu")

    assert main_of(found, "Worker")["resources"]["limits"] == {"cpu": 1}


def test_replicas_take_their_slots_from_the_limit() -> None:
    found = read("v1alpha1", template=template(**{GPU: 4}), replicas=2)

    assert (found.job.worker_count, found.job.spec.slots_per_worker) == (2, 4)


def test_slots_that_are_given_stand() -> None:
    assert read("v1alpha1", template=template(), gpus=4, slotsPerWorker=2).job.spec.slots_per_worker == 2


def test_the_launcher_keeps_the_program_and_gives_up_the_gpus() -> None:
    found = read("v1alpha1", template=template(**{GPU: 4, "cpu": 1}), replicas=2)

    assert main_of(found, "Launcher")["command"] == ["mpirun", "true"]
    assert main_of(found, "Launcher")["resources"]["limits"] == {"cpu": 1}
    assert main_of(found, "Worker")["command"] == ["sleep"]
    assert found.job.needs_exec


def test_the_workers_go_at_the_end_unless_told_otherwise() -> None:
    kept = read("v1alpha1", template=template(), gpus=1, runPolicy={"cleanPodPolicy": "None"})

    assert read("v1alpha1", template=template(), gpus=1).job.spec.run_policy.clean_pod_policy == "Running"
    assert kept.job.spec.run_policy.clean_pod_policy == "None"


def test_the_launcher_may_ask_for_the_control_plane() -> None:
    found = read("v1alpha1", template=template(), gpus=1, launcherOnMaster=True)

    spec = found.job.spec.replica("Launcher").template["spec"]

    assert spec["nodeSelector"] == {"node-role.kubernetes.io/control-plane": ""}
    assert {entry["key"] for entry in spec["tolerations"]} == {
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
    }
    assert "nodeSelector" not in found.job.spec.replica("Worker").template["spec"]


@pytest.mark.parametrize(
    ("given", "want"), [("Never", "Never"), ("Always", "OnFailure"), (None, "OnFailure")]
)
def test_the_restart_policy_comes_from_the_template(given: str | None, want: str) -> None:
    pod = template()
    pod["spec"] |= {"restartPolicy": given} if given else {}

    found = read("v1alpha1", template=pod, gpus=1)

    assert found.job.spec.replica("Launcher").restart_policy == want
    assert "restartPolicy" not in found.job.spec.replica("Launcher").template["spec"]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, ("Required", "spec.replicas")),
        ({"gpus": 1, "replicas": 1}, ("Invalid", "spec.replicas")),
        ({"gpus": 5, "gpusPerNode": 4}, ("Invalid", "spec.gpus")),
        ({"gpus": 0}, ("Invalid", "spec.gpus")),
        ({"processingUnits": 2, "processingUnitsPerNode": 0}, ("Invalid", "spec.processingUnitsPerNode")),
    ],
    ids=["no size", "two sizes", "not even", "none", "none in each"],
)
def test_a_size_that_does_not_come_out_even_is_an_error(spec: Spec, want: tuple[str, str]) -> None:
    assert problems(read("v1alpha1", template=template(), **spec)) == [want]


def test_a_fault_of_the_one_template_is_said_once() -> None:
    pod = template()
    del pod["spec"]["containers"][0]["image"]

    assert problems(read("v1alpha1", template=pod, gpus=1)) == [
        ("Required", "spec.template.spec.containers[0].image")
    ]


def test_no_template_at_all() -> None:
    assert ("Required", "spec.template") in problems(read("v1alpha1", gpus=1))


# What is stored tells no version: the shape does, then metadata.


def test_a_current_job_is_passed_through_untouched() -> None:
    spec = {"mpiReplicaSpecs": roles()}

    assert normalise(spec).spec is spec


@pytest.mark.parametrize(
    ("spec", "written", "want"),
    [
        ({"mpiReplicaSpecs": roles()}, "", "v2beta1"),
        ({"mpiReplicaSpecs": roles()}, "v1alpha2", "v1alpha2"),
        ({"mpiReplicaSpecs": roles()}, "v1", "v1"),
        ({"mpiReplicaSpecs": roles(), "cleanPodPolicy": "All"}, "", "v1alpha2"),
        ({"mpiReplicaSpecs": roles(), "cleanPodPolicy": "All"}, "v1", "v1"),
        ({"mpiReplicaSpecs": roles(), "cleanPodPolicy": "All"}, "v2beta1", "v2beta1"),
        ({"template": template(), "gpus": 1}, "", "v1alpha1"),
        ({"template": template(), "gpus": 1}, "v2beta1", "v1alpha1"),
        ({"mpiReplicaSpecs": roles()}, "v1alpha1", "v1alpha2"),
    ],
)
def test_the_version_is_told_by_shape_then_by_metadata(spec: Spec, written: str, want: str) -> None:
    found = observe(deepcopy(spec), written)

    assert found.errors == []
    assert found.job.version == want


def test_a_name_alone_does_not_make_workers_sleep() -> None:
    """Tools write through the version that the server prefers, v1, whatever a job is."""
    assert not observe({"mpiReplicaSpecs": roles()}, "v1").job.needs_exec
    assert observe({"mpiReplicaSpecs": roles(), "cleanPodPolicy": "All"}, "v1").job.needs_exec
    assert observe({"mpiReplicaSpecs": roles(command=["sleep", "1d"])}, "v1").job.needs_exec
    assert observe({"mpiReplicaSpecs": roles()}, "v1alpha2").job.needs_exec
    assert not observe({"mpiReplicaSpecs": roles(), "cleanPodPolicy": "All"}, "v2beta1").job.needs_exec


def test_stray_fields_of_a_stored_old_job_are_warnings() -> None:
    found = observe({"mpiReplicaSpecs": roles(), "cleanPodPolicy": "All", "colour": "red"})

    assert [warning.path for warning in found.warnings] == ["spec.colour"]


def writer(version: str, time: str, subresource: str = "") -> ManagedFields:
    return ManagedFields(api_version=f"kubeflow.org/{version}", time=time, subresource=subresource)


NOTED = {"gangline.dev/written-version": "kubeflow.org/v1alpha2"}


def applied(version: str) -> dict[str, str]:
    return {LAST_APPLIED: json.dumps({"apiVersion": f"kubeflow.org/{version}"})}


@pytest.mark.parametrize(
    ("meta", "want"),
    [
        (ObjectMeta(), ""),
        (ObjectMeta(annotations=applied("v1alpha2")), "v1alpha2"),
        (ObjectMeta(annotations={LAST_APPLIED: "{"}), ""),
        (ObjectMeta(annotations={LAST_APPLIED: "[]"}), ""),
        (ObjectMeta(annotations={LAST_APPLIED: '{"apiVersion": "batch/v1"}'}), ""),
        (JobMeta(managed_fields=[writer("v1", "2"), writer("v1alpha2", "1")]), "v1alpha2"),
        (JobMeta(managed_fields=[writer("v2beta1", "1", "status"), writer("v1", "2")]), "v1"),
        (JobMeta(managed_fields=[writer("v1", "1")], annotations=applied("v2beta1")), "v2beta1"),
        (JobMeta(managed_fields=[writer("v2beta1", "1")], annotations=NOTED), "v1alpha2"),
        (ObjectMeta(annotations={**NOTED, **applied("v2beta1")}), "v2beta1"),
    ],
    ids=[
        "nothing",
        "applied",
        "broken",
        "no object",
        "another kind",
        "first writer",
        "status",
        "applied wins",
        "noted by the server",
        "applied after the note",
    ],
)
def test_the_version_that_metadata_tells(meta: ObjectMeta, want: str) -> None:
    assert written_version(meta) == want
