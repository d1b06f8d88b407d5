"""Jobs that break rules: every broken one is told at once, nothing is made, and mending starts the job."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api.resources import JOBS, PODS, SERVICES, TRAINING_RUNTIMES
from gangline.api.trainer.bundled import bundled_runtimes

from .jobs_of_kinds import ALL_KINDS, MPI, PYTORCH, TENSORFLOW, TRAIN, KindOfJob


def template(container: str, **more: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": container, **more}]}}


BROKEN: list[tuple[KindOfJob, dict[str, Any], list[str]]] = [
    (
        TENSORFLOW,
        {
            "successPolicy": "Most",
            "tfReplicaSpecs": {
                "Chief": {"restartPolicy": "Sometimes", "template": template("tensorflow", image="i")},
                "Master": {"template": template("tensorflow")},
                "PS": {"template": template("ps", image="i")},
                "Boss": {"template": template("tensorflow", image="i")},
            },
        },
        [
            "spec.tfReplicaSpecs[Boss]: NotSupported",
            "spec.tfReplicaSpecs[Chief].restartPolicy: NotSupported",
            "spec.tfReplicaSpecs[Master].template.spec.containers[0].image: Required",
            "spec.tfReplicaSpecs[PS].template.spec.containers: Required",
            "spec.tfReplicaSpecs: Forbidden",
            "spec.successPolicy: NotSupported",
        ],
    ),
    (
        PYTORCH,
        {
            "nprocPerNode": "1",
            "elasticPolicy": {"minReplicas": 3, "maxReplicas": 2, "nProcPerNode": 2},
            "pytorchReplicaSpecs": {
                "Master": {
                    "replicas": 2,
                    "restartPolicy": "Sometimes",
                    "template": template("pytorch", image="i"),
                },
                "Worker": {"replicas": 0, "template": template("pytorch")},
                "Boss": {"template": template("main", image="i")},
            },
        },
        [
            "spec.pytorchReplicaSpecs[Boss]: NotSupported",
            "spec.pytorchReplicaSpecs[Master].restartPolicy: NotSupported",
            "spec.pytorchReplicaSpecs[Worker].template.spec.containers[0].image: Required",
            "spec.pytorchReplicaSpecs[Master].replicas: Invalid",
            "spec.pytorchReplicaSpecs[Worker].replicas: Invalid",
            "spec.elasticPolicy.nProcPerNode: Forbidden",
            "spec.elasticPolicy.minReplicas: Invalid",
        ],
    ),
    (
        TRAIN,
        {
            "mlPolicy": {"jax": {}},
            "template": {"spec": {"coordinator": {}, "replicatedJobs": [{"name": "other", "replicas": 2}]}},
        },
        [
            "runtime.spec.mlPolicy.jax: NotSupported",
            "runtime.spec.template.spec.coordinator: NotSupported",
            "runtime.spec.template.spec.replicatedJobs[0].replicas: NotSupported",
            "runtime.spec.template.spec.replicatedJobs: Required",
        ],
    ),
    (
        MPI,
        {
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 2, "template": template("main")},
                "Worker": {"replicas": 0, "template": {"spec": {"containers": []}}},
            },
        },
        [
            "spec.mpiReplicaSpecs[Launcher].template.spec.containers[0].image: Required",
            "spec.mpiReplicaSpecs[Launcher].replicas: Invalid",
            "spec.mpiReplicaSpecs[Worker].template.spec.containers: Required",
            "spec.mpiReplicaSpecs[Worker].replicas: Invalid",
        ],
    ),
]


@pytest.mark.parametrize(("kind", "spec", "errors"), BROKEN, ids=[kind.name for kind, *_ in BROKEN])
async def test_every_broken_rule_is_told_and_mending_starts_the_job(
    cluster: Any, kind: KindOfJob, spec: dict[str, Any], errors: list[str]
) -> None:
    await create(cluster, kind, spec)

    failed = await cluster.has(kind.resource, "Failed")

    assert failed["reason"] == "ValidationError"
    assert [error for error in errors if error not in failed["message"]] == []
    assert failed["message"].count(": Required") + failed["message"].count(": Invalid") + sum(
        failed["message"].count(f": {word}") for word in ("NotSupported", "Forbidden")
    ) == len(errors)
    await cluster.settle()
    for resource in (PODS, SERVICES, JOBS):
        assert not await made_by(cluster, resource)

    await replace_spec(cluster, kind, good_spec(kind))

    for name in kind.pods:
        await cluster.set_phase(await cluster.exists(PODS, f"train-{name}"), "Running")
    job = await cluster.client.get(kind.resource, "train", cluster.namespace)
    assert "Failed" not in {one["type"] for one in job["status"].get("conditions", [])}


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)
async def test_a_job_that_is_broken_while_it_runs_keeps_its_pods_and_goes_on_once_mended(
    cluster: Any, kind: KindOfJob
) -> None:
    await create(cluster, kind, good_spec(kind))
    pods = {name: await cluster.exists(PODS, f"train-{name}") for name in kind.pods}
    for pod in pods.values():
        await cluster.set_phase(pod, "Running")
    await cluster.settle()
    await replace_spec(cluster, kind, next(spec for one, spec, _ in BROKEN if one is kind))

    async def is_told() -> bool:
        return bool(await cluster.events("ValidationError"))

    await cluster.until(is_told)
    await cluster.settle()
    for name, pod in pods.items():
        kept = await cluster.exists(PODS, f"train-{name}")
        assert kept["metadata"]["uid"] == pod["metadata"]["uid"]
    job = await cluster.client.get(kind.resource, "train", cluster.namespace)
    assert "Failed" not in {one["type"] for one in job["status"].get("conditions", [])}
    lost = pods[kind.others[0]]["metadata"]
    await cluster.delete_pod(lost["name"], lost["uid"])
    await replace_spec(cluster, kind, good_spec(kind))
    await cluster.another(PODS, lost["name"], lost["uid"])


# The spec of a TrainJob cannot be changed: of that kind, what is broken and mended is its runtime's.


def good_spec(kind: KindOfJob) -> dict[str, Any]:
    spec = bundled_runtimes()[0]["spec"] if kind is TRAIN else kind.spec("")
    return dict(spec)


async def create(cluster: Any, kind: KindOfJob, spec: dict[str, Any]) -> None:
    job = kind.manifest(cluster.namespace)
    if kind is TRAIN:
        runtime = {
            "apiVersion": TRAINING_RUNTIMES.api_version,
            "kind": TRAINING_RUNTIMES.kind,
            "metadata": {"name": "own", "namespace": cluster.namespace},
            "spec": spec,
        }
        await cluster.client.create(TRAINING_RUNTIMES, runtime)
        reference = {"name": "own", "kind": TRAINING_RUNTIMES.kind}
        spec = {"runtimeRef": reference, "trainer": {"numNodes": len(kind.pods)}}
    await cluster.client.create(kind.resource, {**job, "spec": spec})


async def replace_spec(cluster: Any, kind: KindOfJob, spec: dict[str, Any]) -> None:
    patch = [{"op": "replace", "path": "/spec", "value": spec}]
    resource, name = (TRAINING_RUNTIMES, "own") if kind is TRAIN else (kind.resource, "train")
    await cluster.client.patch(resource, name, patch, cluster.namespace, kind="json")


async def made_by(cluster: Any, resource: Any) -> list[dict[str, Any]]:
    found = (await cluster.client.list(resource, cluster.namespace)).items
    return [one for one in found if one["metadata"].get("ownerReferences")]
