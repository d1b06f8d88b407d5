"""What is a PyTorchJob's own: its variables, its end, its rules. Expected values are upstream's (1.9.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gangline.api.training.kinds import PYTORCHJOB
from gangline.api.training.reading import read_training_job

from .conftest import TrainingScene

Scene = Callable[..., TrainingScene]


def environment(scene: TrainingScene, pod: str) -> dict[str, str]:
    return {one["name"]: one["value"] for one in scene.container(pod)["env"]}


def test_variables_of_a_master_and_its_workers_in_their_order(training: Scene) -> None:
    scene = training("PyTorchJob", {"Master": 1, "Worker": 2}, nprocPerNode="4")
    common = {
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": "23456",
        "PET_MASTER_PORT": "23456",
        "MASTER_ADDR": "train-master-0",
        "PET_MASTER_ADDR": "train-master-0",
        "WORLD_SIZE": "12",
    }
    rest = {"PET_NPROC_PER_NODE": "4", "PET_NNODES": "3"}

    for pod, rank in (("train-master-0", "0"), ("train-worker-0", "1"), ("train-worker-1", "2")):
        want = {**common, "RANK": rank, "PET_NODE_RANK": rank, **rest}
        assert list(environment(scene, pod).items()) == list(want.items())


def test_the_port_is_that_of_the_masters_container(training: Scene) -> None:
    scene = training("PyTorchJob", {"Master": 1, "Worker": 1})
    specs = scene.spec["pytorchReplicaSpecs"]
    port = {"name": "pytorchjob-port", "containerPort": 29500}
    specs["Master"]["template"] = {
        "spec": {"containers": [{"name": "pytorch", "image": "image", "ports": [port]}]}
    }

    assert environment(scene, "train-worker-0")["MASTER_PORT"] == "29500"
    assert scene.container("train-master-0")["ports"] == [port]
    assert scene.container("train-worker-0")["ports"] == [{"name": "pytorchjob-port", "containerPort": 23456}]


def test_every_container_is_told_after_what_the_user_wrote_and_no_init_container(training: Scene) -> None:
    scene = training("PyTorchJob", {"Master": 1})
    pod = scene.spec["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    pod["containers"][0]["env"] = [{"name": "RANK", "value": "7"}]
    pod["containers"].append({"name": "side", "image": "image"})
    pod["initContainers"] = [{"name": "first", "image": "image"}]

    [action] = [a for a in scene.plan().actions if a.resource.kind == "Pod"]  # type: ignore[union-attr]

    spec = action.object["spec"]  # type: ignore[union-attr]
    main, side = spec["containers"]
    assert [one["value"] for one in main["env"] if one["name"] == "RANK"] == ["7", "0"]
    assert {one["name"] for one in side["env"]} == {one["name"] for one in main["env"]}
    assert "env" not in spec["initContainers"][0]


@pytest.mark.parametrize(("nproc", "world"), [(None, "2"), ("auto", "2"), ("gpu", "2"), ("8", "16")])
def test_processes_count_in_the_world_where_they_are_a_number(
    training: Scene, nproc: str | None, world: str
) -> None:
    scene = training("PyTorchJob", {"Master": 1, "Worker": 1}, **({"nprocPerNode": nproc} if nproc else {}))

    found = environment(scene, "train-worker-0")

    assert (found["WORLD_SIZE"], found["PET_NPROC_PER_NODE"]) == (world, nproc or "auto")


def test_without_a_master_there_is_no_address(training: Scene) -> None:
    found = environment(training("PyTorchJob", {"Worker": 2}), "train-worker-1")

    assert found == {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": "auto", "PET_NNODES": "2"}


def test_variables_of_an_elastic_job(training: Scene) -> None:
    policy = {
        "minReplicas": 1,
        "maxReplicas": 3,
        "rdzvBackend": "etcd",
        "rdzvId": "id",
        "rdzvConf": [{"key": "timeout", "value": "60"}, {"key": "x", "value": "y"}],
        "standalone": True,
        "maxRestarts": 5,
        "nProcPerNode": 2,
    }

    found = environment(training("PyTorchJob", {"Worker": 2}, elasticPolicy=policy), "train-worker-1")

    assert list(found.items()) == [
        ("PYTHONUNBUFFERED", "1"),
        ("PET_RDZV_ENDPOINT", "train-worker-0:23456"),
        ("PET_RDZV_BACKEND", "etcd"),
        ("PET_NNODES", "1:3"),
        ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"),
        ("PET_MAX_RESTARTS", "5"),
        ("PET_NPROC_PER_NODE", "2"),
        ("PET_RDZV_ID", "id"),
        ("PET_RDZV_CONF", "timeout=60,x=y"),
        ("PET_STANDALONE", ""),
    ]


@pytest.mark.parametrize(
    ("policy", "nodes"),
    [
        ({}, "2:2"),
        ({"minReplicas": 1}, "1:1"),
        ({"maxReplicas": 4}, "4:4"),
        ({"minReplicas": 1, "maxReplicas": 4}, "1:4"),
    ],
)
def test_a_missing_bound_is_the_other_one_or_the_workers(
    training: Scene, policy: dict[str, int], nodes: str
) -> None:
    found = environment(training("PyTorchJob", {"Worker": 2}, elasticPolicy=policy), "train-worker-0")

    assert (found["PET_NNODES"], found["PET_RDZV_BACKEND"]) == (nodes, "c10d")


@pytest.mark.parametrize(
    ("roles", "elastic", "state", "message"),
    [
        ({"Master": "R", "Worker": "PP"}, False, "Running", "PyTorchJob train is running."),
        ({"Master": "P", "Worker": "RR"}, False, "", ""),
        ({"Master": "S", "Worker": "RR"}, False, "Succeeded", "PyTorchJob train is successfully completed."),
        ({"Master": "R", "Worker": "SS"}, False, "Running", "PyTorchJob train is running."),
        ({"Worker": "RP"}, False, "Running", "PyTorchJob ns/train is running."),
        ({"Worker": "SR"}, False, "Running", "PyTorchJob ns/train is running."),
        ({"Worker": "SS"}, False, "Succeeded", "PyTorchJob ns/train successfully completed."),
        ({"Worker": "SR"}, True, "Succeeded", "PyTorchJob ns/train successfully completed."),
    ],
)
def test_the_master_decides_else_the_workers(
    training: Scene, roles: dict[str, str], elastic: bool, state: str, message: str
) -> None:
    more: dict[str, Any] = {"elasticPolicy": {}} if elastic else {}
    scene = training("PyTorchJob", {role: len(phases) for role, phases in roles.items()}, **more)
    for role, phases in roles.items():
        scene.pods_of(role, phases)

    scene.settle()

    if state:
        assert scene.condition(state) == ("True", f"PyTorchJob{state}", message)
    else:
        assert scene.conditions() == {"Created": "True"}


@pytest.mark.parametrize(
    ("policy", "state"), [("Never", "Failed"), ("OnFailure", "Restarting"), ("Always", "Restarting")]
)
def test_a_failed_pod_is_made_again_unless_never(training: Scene, policy: str, state: str) -> None:
    scene = training("PyTorchJob", {"Master": 1, "Worker": 2}).restart(policy)
    scene.pods_of("Master", "R").pods_of("Worker", "FF")

    scene.settle()

    assert scene.conditions()[state] == "True"
    if state == "Failed":
        message = "PyTorchJob train is failed because 2 Worker replica(s) failed."
        assert scene.condition("Failed") == ("True", "PyTorchJobFailed", message)
        assert scene.status["completionTime"]


def test_a_master_that_is_done_wins_over_a_worker_that_failed(training: Scene) -> None:
    scene = training("PyTorchJob", {"Master": 1, "Worker": 1}).restart("Never")

    scene.pods_of("Master", "S").pods_of("Worker", "F").settle()

    assert (scene.conditions().get("Succeeded"), scene.conditions().get("Failed")) == ("True", None)


def document(**changes: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "image"}]}}
    roles = {"Master": {"replicas": 1, "template": template}, "Worker": {"replicas": 1, "template": template}}
    found = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train"},
        "spec": {"pytorchReplicaSpecs": roles},
    }
    for path, value in changes.items():
        at: Any = found
        *keys, last = path.split("__")
        for key in keys:
            at = (
                at.setdefault(int(key) if key.isdigit() else key, {})
                if isinstance(at, dict)
                else at[int(key)]
            )
        if value is None:
            del at[last]
        else:
            at[last] = value
    return found


ROLES = "spec__pytorchReplicaSpecs"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({}, ""),
        ({f"{ROLES}__Master__replicas": None}, ""),
        ({"metadata__name": "0-train"}, "metadata.name"),
        ({f"{ROLES}__master": {}}, "spec.pytorchReplicaSpecs[master]"),
        ({f"{ROLES}__Master__replicas": 2}, "spec.pytorchReplicaSpecs[Master].replicas"),
        ({f"{ROLES}__Worker__replicas": 0}, "spec.pytorchReplicaSpecs[Worker].replicas"),
        (
            {f"{ROLES}__Worker__template": {"spec": {"containers": []}}},
            "spec.pytorchReplicaSpecs[Worker].template.spec.containers",
        ),
        (
            {f"{ROLES}__Worker__template": {"spec": {"containers": [{"name": "other", "image": "i"}]}}},
            "spec.pytorchReplicaSpecs[Worker].template.spec.containers",
        ),
        (
            {f"{ROLES}__Worker__template": {"spec": {"containers": [{"name": "pytorch"}]}}},
            "spec.pytorchReplicaSpecs[Worker].template.spec.containers[0].image",
        ),
        ({f"{ROLES}__Worker__restartPolicy": "Sometimes"}, "spec.pytorchReplicaSpecs[Worker].restartPolicy"),
        ({"spec__elasticPolicy": {}, f"{ROLES}__Worker": None}, "spec.pytorchReplicaSpecs[Worker]"),
        (
            {"spec__elasticPolicy": {"nProcPerNode": 1}, "spec__nprocPerNode": "1"},
            "spec.elasticPolicy.nProcPerNode",
        ),
        ({"spec__runPolicy": {"managedBy": "other.dev/controller"}}, "spec.runPolicy.managedBy"),
        ({"spec__nprocPerNod": "1"}, "spec.nprocPerNod"),
        ({ROLES: {}}, "spec.pytorchReplicaSpecs"),
    ],
)
def test_a_broken_rule_is_named_with_its_field(changes: dict[str, Any], path: str) -> None:
    errors = read_training_job(PYTORCHJOB, document(**changes)).errors

    assert [error.path for error in errors] == ([path] if path else [])
