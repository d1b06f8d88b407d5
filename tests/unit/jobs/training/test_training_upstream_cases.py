"""Cases of the training operator's own suites (1.9.4) that no other file here restates.

Left out: its expectations and work queue, which have no counterpart in a level-based reconcile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gangline.api.core import Service
from gangline.api.training.kinds import TFJOB
from gangline.api.training.reading import read_training_job

from .conftest import TrainingScene, created, deleted

Scene = Callable[..., TrainingScene]
KINDS = [("PyTorchJob", "Master"), ("TFJob", "Chief")]
each_kind = pytest.mark.parametrize(("kind", "head"), KINDS, ids=[kind for kind, _ in KINDS])


@pytest.mark.parametrize(
    ("roles", "phases", "made", "state"),
    [
        ({"Worker": 1}, {}, 1, "Created"),
        ({"Worker": 4, "PS": 2}, {}, 6, "Created"),
        ({"Worker": 4, "PS": 2}, {"Worker": "PPPP", "PS": "PP"}, 0, "Created"),
        ({"Worker": 4, "PS": 2}, {"Worker": "RRRR", "PS": "RR"}, 0, "Running"),
        ({"Worker": 4, "PS": 2}, {"Worker": "PP", "PS": "P"}, 3, "Created"),
        ({"Worker": 4, "PS": 2}, {"Worker": "PPR", "PS": "P"}, 2, "Running"),
        ({"Worker": 4, "PS": 2}, {"Worker": "SPPP", "PS": "PP"}, 0, "Succeeded"),
        ({"Worker": 4, "PS": 2}, {"Worker": "PSPP", "PS": "PP"}, 0, "Created"),
        ({"Worker": 4, "PS": 2}, {"Worker": "SSSS", "PS": "SS"}, 0, "Succeeded"),
    ],
)
def test_normal_path(
    training: Scene, roles: dict[str, int], phases: dict[str, str], made: int, state: str
) -> None:
    scene = training("TFJob", roles)
    scene.carry_out()
    services = dict(scene.services)
    scene.pods, scene.services = {}, {}
    for role, letters in phases.items():
        scene.pods_of(role, letters)
    scene.services = {name: services[name] for name in scene.pods}

    plan = scene.plan()

    assert len(created(plan, "Pod")) == len(created(plan, "Service")) == made
    scene.settle()
    assert list(scene.conditions())[-1] == state
    counted = scene.status["replicaStatuses"]
    for role, letters in phases.items():
        active = letters.count("R") if state != "Succeeded" else 0
        assert counted[role].get("active", 0) == active


def test_a_chief_that_fails_and_is_made_again_leaves_the_job_restarting(training: Scene) -> None:
    scene = training("TFJob", {"Chief": 1, "PS": 2, "Worker": 4}).restart("ExitCode")
    scene.pods_of("PS", "RR").pods_of("Worker", "SSSS").pod("Chief", 0, "Failed", code=137)

    scene.settle()

    assert list(scene.conditions().items())[-1] == ("Restarting", "True")


@pytest.mark.parametrize(("role", "index"), [("Chief", 0), ("Evaluator", 0)])
def test_other_roles_beside_dynamic_workers_are_told_of_none(training: Scene, role: str, index: int) -> None:
    scene = training("TFJob", {"Worker": 2, "PS": 1, role: 1}, enableDynamicWorker=True)

    found = {one["name"]: one["value"] for one in scene.container(f"train-{role.lower()}-{index}")["env"]}

    assert found["TF_CONFIG"] == (
        f'{{"cluster":{{"worker":{{}},"ps":[]}},"task":{{"type":"{role.lower()}","index":{index}}}}}'
    )


@each_kind
def test_labels_of_the_template_give_way_and_its_annotations_are_copied(
    training: Scene, kind: str, head: str
) -> None:
    scene = training(kind, {head: 1})
    template = scene.spec[scene.rules.kind.specs_field][head]["template"]
    template["metadata"] = {
        "name": "mine",
        "namespace": "elsewhere",
        "labels": {"a": "b", "training.kubeflow.org/job-name": "mine"},
        "annotations": {"c": "d"},
        "finalizers": ["me.dev/mine"],
    }

    metadata = created(scene.plan(), "Pod")[f"train-{head.lower()}-0"]["metadata"]

    assert (metadata["name"], metadata["namespace"]) == (f"train-{head.lower()}-0", "ns")
    assert metadata["labels"]["a"] == "b"
    assert metadata["labels"]["training.kubeflow.org/job-name"] == "train"
    assert metadata["annotations"] == {"c": "d"}
    assert metadata["finalizers"] == ["me.dev/mine"]


@each_kind
def test_pods_and_services_of_others_are_neither_counted_nor_deleted(
    training: Scene, kind: str, head: str
) -> None:
    scene = training(kind, {head: 1, "Worker": 1}).policy(cleanPodPolicy="All")
    scene.pods_of(head, "S").pods_of("Worker", "F", code=1)
    theirs = scene.pods["train-worker-0"]
    theirs.metadata.owner_references.clear()
    scene.services["train-worker-0"] = msgspec.convert(
        {"metadata": {"name": "train-worker-0", "labels": theirs.metadata.labels}}, Service
    )

    plan = scene.settle()

    assert scene.conditions().get("Failed") is None
    assert scene.conditions()["Succeeded"] == "True"
    assert scene.status["replicaStatuses"]["Worker"].get("failed", 0) == 0
    assert deleted(plan) == [f"train-{head.lower()}-0"]
    assert deleted(plan, "Service") == []


@pytest.mark.parametrize(("policy", "left"), [(None, 4), ("None", 4), ("Running", 1), ("All", 0)])
def test_a_job_past_its_backoff_limit_keeps_what_its_policy_says(
    training: Scene, policy: str | None, left: int
) -> None:
    scene = training("TFJob", {"Worker": 4}).restart("OnFailure").policy(backoffLimit=3)
    if policy:
        scene.policy(cleanPodPolicy=policy)
    scene.pods_of("Worker", "RRR", restarts=1).pod("Worker", 3, "Succeeded")

    plan = scene.settle()

    assert scene.conditions()["Failed"] == "True"
    assert 4 - len(deleted(plan)) == left


@pytest.mark.parametrize(("policy", "left"), [("None", 2), ("All", 0)])
@each_kind
def test_a_job_past_its_deadline_keeps_what_its_policy_says(
    training: Scene, kind: str, head: str, policy: str, left: int
) -> None:
    scene = training(kind, {head: 1, "Worker": 1}).policy(activeDeadlineSeconds=2, cleanPodPolicy=policy)
    scene.pods_of(head, "R").pods_of("Worker", "R")
    scene.carry_out()

    plan = scene.later(2).settle()

    assert scene.conditions()["Failed"] == "True"
    assert 2 - len(deleted(plan)) == left


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@each_kind
def test_a_job_goes_three_seconds_after_either_end(training: Scene, kind: str, head: str, phase: str) -> None:
    scene = training(kind, {head: 1}).restart("Never").policy(ttlSecondsAfterFinished=3)
    scene.pod(head, 0, phase, code=int(phase == "Failed"))
    scene.carry_out()
    assert scene.conditions()[phase] == "True"

    assert deleted(scene.later(2).plan(), kind) == []
    assert deleted(scene.later(1).plan(), kind) == ["train"]


@pytest.mark.parametrize("limit", [None, 0, 3])
def test_without_restarts_no_backoff_limit_is_reached(training: Scene, limit: int | None) -> None:
    scene = training("TFJob", {"Worker": 1}).restart("OnFailure")
    if limit is not None:
        scene.policy(backoffLimit=limit)
    scene.pods_of("Worker", "R")

    scene.settle()

    assert scene.conditions()["Running"] == "True"


def tfjob(
    name: str = "train", role: str = "Worker", containers: Any = ({"name": "tensorflow", "image": "image"},)
) -> dict[str, Any]:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"tfReplicaSpecs": {role: {"template": {"spec": {"containers": list(containers)}}}}},
    }


CONTAINERS = "spec.tfReplicaSpecs[Worker].template.spec.containers"


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        (tfjob(), []),
        (tfjob(role="worker"), []),
        (tfjob(name="0-train"), ["metadata.name"]),
        (tfjob(name="train.1"), ["metadata.name"]),
        (tfjob(containers=[]), [CONTAINERS]),
        (tfjob(containers=[{"name": "tensorflow"}]), [f"{CONTAINERS}[0].image"]),
        (tfjob(containers=[{"name": "tensorflow", "image": ""}]), [f"{CONTAINERS}[0].image"]),
        (tfjob(containers=[{"name": "other", "image": "image"}]), [CONTAINERS]),
    ],
)
def test_a_broken_rule_is_named_with_its_field(document: dict[str, Any], paths: list[str]) -> None:
    errors = read_training_job(TFJOB, document).errors

    assert [error.path for error in errors] == paths
