"""The gangs of training jobs: what their PodGroup says, and what it tells the job."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from gangline.api.core import PodSpec
from gangline.jobs.plan import Patch
from gangline.jobs.settings import Settings

from .conftest import TrainingScene, created

Scene = Callable[..., TrainingScene]
KINDS = [("PyTorchJob", {"Master": 1, "Worker": 2}), ("TFJob", {"Chief": 1, "Worker": 2})]
each_kind = pytest.mark.parametrize(("kind", "roles"), KINDS, ids=[kind for kind, _ in KINDS])


@each_kind
def test_the_gang_is_the_whole_job_and_known_before_its_pods(
    training: Scene, kind: str, roles: dict[str, int]
) -> None:
    scene = training(kind, roles)
    scene.settings = Settings(gang_scheduling="gangline-scheduler")

    first, second = scene.plan().stages

    [group] = [a.object for a in first if getattr(a, "object", {}).get("kind") == "PodGroup"]
    assert (group["metadata"]["name"], group["spec"]["minMember"]) == ("train", 3)
    assert group["metadata"]["ownerReferences"][0]["kind"] == kind
    pods = [a.object for a in second]
    assert {pod["kind"] for pod in pods} == {"Pod"}
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"gangline-scheduler"}
    assert {pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for pod in pods} == {"train"}


@each_kind
def test_a_job_says_why_its_gang_waits_before_what_else_it_says(
    training: Scene, kind: str, roles: dict[str, int]
) -> None:
    scene = training(kind, roles)
    scene.settings = Settings(gang_scheduling="gangline-scheduler")
    scene.carry_out()
    said = {"type": "Unschedulable", "status": "True", "reason": "NoRoom", "message": "1 GPU is missing"}
    group = scene.pod_groups["train"]
    scene.pod_groups["train"] = msgspec.structs.replace(group, status={"conditions": [said]})

    scene.settle()

    assert scene.conditions() == {"Waiting": "True", "Created": "True"}
    assert scene.condition("Waiting") == ("True", "NoRoom", "1 GPU is missing")
    scene.pods_of(next(iter(roles)), "R").pods_of("Worker", "RR").settle()
    assert scene.condition("Waiting")[:2] == ("False", f"{kind}Running")


@each_kind
def test_a_job_says_which_pod_its_node_does_not_let_go_while_the_others_run(
    training: Scene, kind: str, roles: dict[str, int]
) -> None:
    scene = training(kind, roles).pods_of(next(iter(roles)), "R").pods_of("Worker", "R")
    scene.pod("Worker", 1, "Running", deleted=True)
    pod = scene.pods["train-worker-1"]
    scene.pods["train-worker-1"] = msgspec.structs.replace(pod, spec=PodSpec(node_name="node-7"))

    assert scene.settle().requeue_after_s == 30
    assert list(scene.conditions()) == ["Created", "Running"]
    scene.later(31)
    plan = scene.settle()

    assert scene.conditions() == {"Waiting": "True", "Created": "True", "Running": "True"}
    told = scene.condition("Waiting")
    assert told[1] == "Terminating"
    assert told[2].startswith("pod train-worker-1 was deleted, and node node-7 does not confirm its end")
    assert (told[1], told[2]) in [(warning.reason, warning.message) for warning in plan.warnings]
    assert not created(plan, "Pod")


@pytest.mark.parametrize(("policy", "sizes"), [({}, (4, 2)), ({"minAvailable": 3}, (3, 2))])
def test_a_pod_that_is_made_again_does_not_wait_for_those_that_are_done(
    training: Scene, policy: dict[str, int], sizes: tuple[int, int]
) -> None:
    scene = training("PyTorchJob", {"Master": 1, "Worker": 3}).policy(schedulingPolicy=policy)
    scene.settings = Settings(gang_scheduling="gangline-scheduler")
    scene.carry_out()
    before = scene.pod_groups["train"].spec["minMember"]
    scene.pods_of("Master", "R").pods_of("Worker", "SSR")

    [patch] = [action for action in scene.plan().actions if isinstance(action, Patch)]

    assert (before, patch.body["spec"]["minMember"]) == sizes


@pytest.mark.parametrize(
    ("roles", "elastic", "size"),
    [
        ({"Worker": 3}, {"minReplicas": 1, "maxReplicas": 4}, 1),
        ({"Master": 1, "Worker": 3}, {"minReplicas": 2}, 3),
        ({"Worker": 1}, {"minReplicas": 2, "maxReplicas": 4}, 1),
        ({"Worker": 3}, {}, 3),
    ],
)
def test_the_fewest_of_elastic_workers_start_together(
    training: Scene, roles: dict[str, int], elastic: dict[str, int], size: int
) -> None:
    scene = training("PyTorchJob", roles, elasticPolicy=elastic)
    scene.settings = Settings(gang_scheduling="gangline-scheduler")

    scene.carry_out()

    assert scene.pod_groups["train"].spec["minMember"] == size
