"""Workers that come and go: which a job makes again, which end it, and what changes their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gangline.api.training.autoscaler import Autoscaler
from gangline.jobs.plan import Patch

Scene = Callable[..., Any]

LOST = [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]
PRESSED = [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]


@pytest.mark.parametrize("kind", ["PyTorchJob", "TFJob"])
def test_a_pod_that_is_lost_with_its_node_is_made_again_and_not_counted(training: Scene, kind: str) -> None:
    scene = training(kind, {"Worker": 1}).restart("OnFailure").policy(backoffLimit=0)
    scene.pod("Worker", 0, "Failed", conditions=LOST)

    scene.carry_out()

    assert scene.pods["train-worker-0"].status.phase == "Pending"
    assert (scene.status.get("restarts", 0), "Failed" in scene.conditions()) == (0, False)


@pytest.mark.parametrize(
    ("elastic", "conditions", "fails"),
    [(True, LOST, False), (False, LOST, True), (True, PRESSED, True), (True, [], True)],
)
def test_never_ends_a_job_unless_an_elastic_worker_is_taken_away(
    training: Scene, elastic: bool, conditions: list[dict[str, str]], fails: bool
) -> None:
    scene = training("PyTorchJob", {"Worker": 2}, **({"elasticPolicy": {}} if elastic else {}))
    scene.restart("Never").pod("Worker", 0, "Running").pod("Worker", 1, "Failed", conditions=conditions)

    scene.carry_out()

    assert ("Failed" in scene.conditions()) == fails


CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "0.5"}},
}
POLICY = {"minReplicas": 1, "maxReplicas": 4, "metrics": [CPU]}


def test_metrics_make_an_autoscaler_of_the_jobs_name_that_scales_it(training: Scene) -> None:
    scene = training("PyTorchJob", {"Worker": 2}, elasticPolicy=POLICY)

    scene.carry_out()

    [(name, found)] = scene.autoscalers.items()
    assert (name, found.metadata.controller.uid) == ("train", "job-uid")
    assert found.spec == {
        "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train"},
        "minReplicas": 1,
        "maxReplicas": 4,
        "metrics": [CPU],
    }


@pytest.mark.parametrize("policy", [None, {"minReplicas": 1, "maxReplicas": 4}])
def test_no_metrics_make_no_autoscaler(training: Scene, policy: dict[str, Any] | None) -> None:
    scene = training("PyTorchJob", {"Worker": 2}, **({"elasticPolicy": policy} if policy else {}))

    scene.carry_out()

    assert not scene.autoscalers


@pytest.mark.parametrize(
    ("written", "patched"),
    [
        ({"averageValue": "500m"}, False),  # as a server writes it
        ({"averageValue": "0.6"}, True),
    ],
)
def test_an_autoscaler_that_is_another_is_mended(
    training: Scene, written: dict[str, str], patched: bool
) -> None:
    scene = training("PyTorchJob", {"Worker": 2}, elasticPolicy=POLICY)
    scene.carry_out()
    wire = msgspec.to_builtins(scene.autoscalers["train"])
    wire["spec"]["metrics"][0]["resource"]["target"] |= written
    scene.autoscalers["train"] = msgspec.convert(
        {**wire, "spec": {**wire["spec"], "behavior": {}}}, Autoscaler
    )

    found = [action for action in scene.plan().actions if isinstance(action, Patch)]

    assert bool(found) == patched


@pytest.mark.parametrize("end", ["suspended", "succeeded", "without metrics"])
def test_an_autoscaler_goes_with_what_it_scales(training: Scene, end: str) -> None:
    scene = training("PyTorchJob", {"Worker": 2}, elasticPolicy=POLICY)
    scene.carry_out()
    match end:
        case "suspended":
            scene.policy(suspend=True)
        case "succeeded":
            scene.pods_of("Worker", "SS")
        case _:
            scene.spec["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 4}

    scene.carry_out()

    assert not scene.autoscalers


def test_an_autoscaler_of_somebody_else_stays(training: Scene) -> None:
    scene = training("PyTorchJob", {"Worker": 2})
    scene.autoscalers["train"] = msgspec.convert(
        {"metadata": {"name": "train", "namespace": "ns"}}, Autoscaler
    )

    scene.carry_out()

    assert "train" in scene.autoscalers
