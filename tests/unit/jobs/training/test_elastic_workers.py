"""Workers that come and go: which of them a job makes again, and which of them end it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

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
