"""PyTorchJobs and TFJobs against API servers, without nodes: the tests say what pods do."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api.resources import (
    MPIJOBS,
    PODS,
    PYTORCHJOBS,
    SERVICES,
    TFJOBS,
    TRAINING_RUNTIMES,
    TRAINJOBS,
    Resource,
)
from gangline.api.trainer.bundled import bundled_runtimes
from gangline.kube.errors import Invalid, NotFound

KINDS = [
    (PYTORCHJOBS, "pytorchReplicaSpecs", "pytorch", "master"),
    (TFJOBS, "tfReplicaSpecs", "tensorflow", "chief"),
]
each_kind = pytest.mark.parametrize(("resource", "field", "container", "head"), KINDS)


async def create(
    cluster: Any, resource: Resource, field: str, container: str, head: str, **policy: Any
) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": container, "image": "image"}]}}
    roles = {head.capitalize(): {"template": template}, "Worker": {"replicas": 2, "template": template}}
    roles["Worker"]["restartPolicy"] = "ExitCode"
    job = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "train", "namespace": cluster.namespace},
        "spec": {field: roles, "runPolicy": policy},
    }
    made: dict[str, Any] = await cluster.client.create(resource, job)
    return made


async def until_condition(
    cluster: Any, resource: Resource, type_: str, status: str = "True"
) -> dict[str, Any]:
    async def found() -> Any:
        job = await cluster.client.get(resource, "train", cluster.namespace)
        conditions = (job.get("status") or {}).get("conditions") or []
        return job if any((c["type"], c["status"]) == (type_, status) for c in conditions) else None

    held: dict[str, Any] = await cluster.until(found)
    return held


@each_kind
async def test_a_job_runs_restarts_a_worker_succeeds_and_goes_after_its_time(
    cluster: Any, resource: Resource, field: str, container: str, head: str
) -> None:
    await create(cluster, resource, field, container, head, cleanPodPolicy="All", ttlSecondsAfterFinished=1)
    names = [f"train-{head}-0", "train-worker-0", "train-worker-1"]
    pods = [await cluster.exists(PODS, name) for name in names]
    for name, pod in zip(names, pods, strict=True):
        assert (await cluster.exists(SERVICES, name))["spec"]["clusterIP"] == "None"
        await cluster.set_phase(pod, "Running")
    await until_condition(cluster, resource, "Running")

    await cluster.fail(pods[2], 137)

    async def made_again() -> Any:
        pod = await cluster.get(PODS, "train-worker-1")
        return pod if pod and pod["metadata"]["uid"] != pods[2]["metadata"]["uid"] else None

    await cluster.until(made_again)
    job = await cluster.client.get(resource, "train", cluster.namespace)
    assert job["status"]["restarts"] == 1
    assert [e["message"] for e in await cluster.events(f"{resource.kind}Restarting")] == [
        "job train is restarting because Worker replica(s) failed."
    ]

    await cluster.set_phase(pods[0], "Succeeded")

    await until_condition(cluster, resource, "Succeeded")
    for name in names:
        await cluster.gone(PODS, name)
        await cluster.gone(SERVICES, name)
    await cluster.gone(resource, "train")


@each_kind
async def test_a_job_is_made_smaller_suspended_and_resumed(
    cluster: Any, resource: Resource, field: str, container: str, head: str
) -> None:
    await create(cluster, resource, field, container, head)
    await cluster.exists(PODS, "train-worker-1")

    await cluster.client.patch(
        resource, "train", {"spec": {field: {"Worker": {"replicas": 1}}}}, cluster.namespace
    )
    await cluster.gone(PODS, "train-worker-1")
    await cluster.client.patch(
        resource, "train", {"spec": {"runPolicy": {"suspend": True}}}, cluster.namespace
    )
    await until_condition(cluster, resource, "Suspended")
    await cluster.gone(PODS, "train-worker-0")
    await cluster.client.patch(
        resource, "train", {"spec": {"runPolicy": {"suspend": False}}}, cluster.namespace
    )

    await cluster.exists(PODS, "train-worker-0")
    await until_condition(cluster, resource, "Suspended", "False")
    await cluster.client.delete(resource, "train", cluster.namespace)
    with pytest.raises(NotFound):
        await cluster.client.get(resource, "train", cluster.namespace)


async def test_a_trainjob_waits_for_its_runtime_runs_restarts_a_pod_and_completes(cluster: Any) -> None:
    namespace = cluster.namespace
    job = {
        "apiVersion": TRAINJOBS.api_version,
        "kind": TRAINJOBS.kind,
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {"runtimeRef": {"name": "own", "kind": TRAINING_RUNTIMES.kind}, "trainer": {"numNodes": 2}},
    }
    await cluster.client.create(TRAINJOBS, job)
    spec = bundled_runtimes()[0]["spec"]
    runtime = {
        "apiVersion": TRAINING_RUNTIMES.api_version,
        "kind": TRAINING_RUNTIMES.kind,
        "metadata": {"name": "own", "namespace": namespace},
        "spec": spec,
    }
    await cluster.client.create(TRAINING_RUNTIMES, runtime)
    names = ["train-node-0-0", "train-node-0-1"]
    first, second = [await cluster.exists(PODS, name) for name in names]
    assert (await cluster.exists(SERVICES, "train"))["spec"]["clusterIP"] == "None"

    await cluster.set_phase(first, "Running")
    await cluster.fail(second, 1)

    async def again() -> Any:
        try:
            found = await cluster.client.get(PODS, names[1], namespace)
        except NotFound:
            return None
        return found if found["metadata"]["uid"] != second["metadata"]["uid"] else None

    made_again = await cluster.until(again)
    running = await cluster.client.get(TRAINJOBS, "train", namespace)
    assert running["status"]["restarts"] == 1
    assert "conditions" not in running["status"]

    await cluster.set_phase(first, "Succeeded")
    await cluster.set_phase(made_again, "Succeeded")
    done = await until_condition(cluster, TRAINJOBS, "Complete")
    assert done["status"]["jobsStatus"][0]["succeeded"] == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"runtimeRef": {"name": "other"}}, "runtimeRef is immutable"),
        ({"trainer": {"numNodes": 3}}, "trainer is immutable"),
        ({"trainer": None}, "trainer is immutable"),
        ({"initializer": {"dataset": {"storageUri": "hf://a"}}}, "initializer is immutable"),
        ({"activeDeadlineSeconds": 9}, "activeDeadlineSeconds is immutable"),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "managedBy is immutable"),
        ({"runtimePatches": []}, "only while the job is suspended"),
    ],
)
async def test_a_trainjob_is_changed_only_where_and_when_it_may(
    cluster: Any, changed: dict[str, Any], message: str
) -> None:
    """Its patches of the runtime while it is suspended, and whether it is; of two by one manager neither."""
    namespace = cluster.namespace
    patch = {"manager": "queue", "trainingRuntimeSpec": {"mlPolicy": {"numNodes": 1}}}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}, "suspend": True}
    job = {
        "apiVersion": TRAINJOBS.api_version,
        "kind": TRAINJOBS.kind,
        "metadata": {"name": "train", "namespace": namespace},
        "spec": spec | {"runtimePatches": [patch]},
    }
    await cluster.client.create(TRAINJOBS, job)
    twice = {"spec": {"runtimePatches": [patch, patch]}}
    with pytest.raises(Invalid, match="Duplicate"):
        await cluster.client.patch(TRAINJOBS, "train", twice, namespace)
    other = {"spec": {"suspend": False, "runtimePatches": [patch | {"manager": "mine"}]}}
    await cluster.client.patch(TRAINJOBS, "train", other, namespace)

    with pytest.raises(Invalid, match=message):
        await cluster.client.patch(TRAINJOBS, "train", {"spec": changed}, namespace)


async def test_an_mpijob_whose_pods_name_another_job_has_says_so(cluster: Any) -> None:
    await create(cluster, *KINDS[0])
    await cluster.exists(PODS, "train-worker-0")
    template = {"spec": {"containers": [{"name": "main", "image": "image"}]}}
    job = {
        "apiVersion": MPIJOBS.api_version,
        "kind": MPIJOBS.kind,
        "metadata": {"name": "train", "namespace": cluster.namespace},
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": {"template": template},
                "Worker": {"replicas": 1, "template": template},
            }
        },
    }
    await cluster.client.create(MPIJOBS, job)

    waiting = (await until_condition(cluster, MPIJOBS, "Waiting"))["status"]["conditions"][0]

    assert waiting["message"] == (
        'Resource "train-worker-0" of Kind "Pod" already exists and is not managed by MPIJob'
    )


@each_kind
async def test_a_training_job_whose_pods_names_an_mpijob_has_says_so(
    cluster: Any, make_job: Any, resource: Resource, field: str, container: str, head: str
) -> None:
    mpijob = make_job("train")
    await cluster.client.create(MPIJOBS, mpijob)
    theirs = await cluster.exists(PODS, "train-worker-0")
    await create(cluster, resource, field, container, head)

    waiting = (await until_condition(cluster, resource, "Waiting"))["status"]["conditions"][0]

    assert waiting["message"].startswith('Resource "train-worker-')
    assert waiting["message"].endswith(f"already exists and is not managed by {resource.kind}")
    await cluster.settle()
    kept = await cluster.exists(PODS, "train-worker-0")
    assert kept["metadata"]["uid"] == theirs["metadata"]["uid"]
