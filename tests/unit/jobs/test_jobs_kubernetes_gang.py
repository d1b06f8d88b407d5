"""Kubernetes' own PodGroup, as the operator writes it for any scheduler that reads it.

Expected values come from the API types of ``scheduling.k8s.io/v1beta1`` (v0.37.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gangline.api.pod_group import PodGroup
from gangline.jobs.gang import dialect_of, explain_not_served, scheduler_verdict
from gangline.jobs.plan import Create, Patch
from gangline.jobs.settings import Settings

Build = Callable[..., Any]


def scene_of(scene: Build, **policy: Any) -> Any:
    one = scene(workers=2, runPolicy={"schedulingPolicy": policy})
    one.settings = Settings(gang_scheduling="kubernetes")
    return one


def created(one: Any, kind: str) -> list[dict[str, Any]]:
    actions = [action for action in one.plan().actions if isinstance(action, Create)]
    return [action.object for action in actions if action.object["kind"] == kind]


def test_the_gang_is_all_pods_evicted_as_one_and_owned_by_the_job(scene: Build) -> None:
    [found] = created(scene_of(scene, priorityClass="high"), "PodGroup")

    assert found["apiVersion"] == "scheduling.k8s.io/v1beta1"
    assert found["metadata"]["name"] == "pi"
    assert found["metadata"]["ownerReferences"][0]["uid"] == "job-uid"
    assert found["spec"] == {
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "disruptionMode": {"all": {}},
        "priorityClassName": "high",
    }


@pytest.mark.parametrize(("least", "policy"), [(2, {"gang": {"minCount": 2}}), (0, {"basic": {}})])
def test_the_policy_is_one_of_gang_and_basic(scene: Build, least: int, policy: Any) -> None:
    [found] = created(scene_of(scene, minAvailable=least), "PodGroup")

    assert found["spec"]["schedulingPolicy"] == policy


def test_pods_name_their_group_and_keep_their_scheduler(scene: Build) -> None:
    one = scene_of(scene)
    one.pod_spec("Worker")["schedulerName"] = "mine"

    workers = [pod["spec"] for pod in created(one, "Pod")]
    [launcher] = [job["spec"]["template"]["spec"] for job in created(one, "Job")]

    assert [pod["schedulingGroup"] for pod in [*workers, launcher]] == [{"podGroupName": "pi"}] * 3
    assert [pod["schedulerName"] for pod in workers] == ["mine", "mine"]
    assert "schedulerName" not in launcher
    assert one.plan().warnings == ()


def test_only_the_least_number_of_pods_is_ever_changed(scene: Build) -> None:
    """The other fields cannot change, and those of closed feature gates were dropped by the server."""
    one = scene_of(scene, minAvailable=2, priorityClass="high")
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}, "priority": 7}
    one.pod_groups["pi"] = PodGroup(metadata=one.child_meta("pi"), spec=spec)

    patches = [action for action in one.plan().actions if isinstance(action, Patch)]

    assert [found.body for found in patches if found.resource.kind == "PodGroup"] == [
        {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    ]


@pytest.mark.parametrize("type_", ["PodGroupInitiallyScheduled", "PodGroupScheduled"])
def test_its_condition_says_why_the_job_waits(type_: str) -> None:
    condition = {"type": type_, "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}

    verdict = scheduler_verdict(PodGroup(status={"conditions": [condition]}))

    assert verdict is not None
    assert (verdict.type, verdict.reason, verdict.message) == ("Unschedulable", "Unschedulable", "0/3 nodes")


def test_where_the_kind_is_not_served_the_feature_gate_is_named() -> None:
    dialect = dialect_of("kubernetes")
    assert dialect is not None

    said = explain_not_served(dialect)

    assert "--feature-gates=GenericWorkload=true" in said
    assert "--runtime-config=scheduling.k8s.io/v1beta1=true" in said
