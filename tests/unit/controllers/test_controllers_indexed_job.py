"""The decisions about Jobs whose completions have indexes of their own."""

from datetime import timedelta
from typing import Any

import pytest
from job_scenes import NOW, conditions, make_job, make_pod, settle

from gangline.cluster.controllers.job_plan import plan_job
from gangline.cluster.controllers.job_pod import format_indexes, parse_indexes, pod_manifest
from gangline.cluster.controllers.job_types import TrackedJob


def make_indexed(parallelism: int, completions: int, **spec: Any) -> TrackedJob:
    return make_job(completionMode="Indexed", parallelism=parallelism, completions=completions, **spec)


def test_an_indexed_job_starts_the_lowest_indexes_that_are_free():
    job = make_indexed(3, 5, status={"completedIndexes": "0,2", "succeeded": 2})

    plan = plan_job(job, [make_pod("a", index=3)], NOW)

    assert plan.create_indexes == (1, 4)
    assert plan.create_count == 2


def test_an_indexed_job_counts_each_index_once():
    job = make_indexed(2, 2)
    pods = [make_pod("a", "Succeeded", index=0), make_pod("b", "Succeeded", index=0)]

    plan = plan_job(job, pods, NOW)

    assert plan.status and (plan.status.succeeded, plan.status.completed_indexes) == (1, "0")
    assert plan.create_indexes == (1,)


def test_an_indexed_job_is_complete_when_every_index_is():
    pods = [make_pod(str(index), "Succeeded", index=index) for index in range(3)]

    plan = plan_job(make_indexed(3, 3), pods, NOW)

    assert "Complete" in conditions(plan.status)
    assert plan.status and plan.status.completed_indexes == "0-2"


def test_two_active_pods_of_one_index_become_one():
    plan = plan_job(make_indexed(2, 2), [make_pod("a", index=0), make_pod("b", index=0)], NOW)

    assert len(plan.delete) == 1
    assert plan.create_indexes == (1,)


def test_a_pod_of_an_indexed_job_knows_its_index():
    template = {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}]}}

    manifest = pod_manifest(make_indexed(1, 1, template=template), 0)

    assert manifest["metadata"]["generateName"] == "pi-0-"
    assert manifest["metadata"]["labels"] == {"batch.kubernetes.io/job-completion-index": "0"}
    assert manifest["spec"]["hostname"] == "pi-0"
    assert [entry["name"] for entry in manifest["spec"]["containers"][0]["env"]] == [
        "A",
        "JOB_COMPLETION_INDEX",
    ]
    assert len(template["spec"]["containers"][0]["env"]) == 1


@pytest.mark.parametrize(
    ("text", "indexes"),
    [("", set()), ("0", {0}), ("0-2,5", {0, 1, 2, 5}), ("1,3-4", {1, 3, 4})],
)
def test_indexes_are_written_as_runs(text: str, indexes: set[int]):
    assert parse_indexes(text) == indexes
    assert format_indexes(indexes) == text


def per_index(*, completed: str = "", failed: str = "", **spec: Any) -> TrackedJob:
    spec = {"completionMode": "Indexed", "backoffLimit": 1 << 31, "backoffLimitPerIndex": 1, **spec}
    status = {"completedIndexes": completed, "failedIndexes": failed}
    return make_job(**{"parallelism": 3, "completions": 3, **spec}, status=status)


def test_an_index_backs_off_for_itself_and_its_next_pod_carries_the_count():
    job = per_index()
    pods = [make_pod("a", "Failed", index=0, failures=0), make_pod("b", index=1, failures=0)]

    first = plan_job(job, pods, NOW)
    assert (first.create_indexes, first.index_failures, first.requeue_after_s) == ((2,), (0,), 10.0)
    assert first.status and (first.status.failed, first.status.failed_indexes) == (1, "")

    later = plan_job(settle(job, first), pods, NOW + timedelta(seconds=10))
    assert (later.create_indexes, later.index_failures) == ((0, 2), (1, 0))
    annotations = pod_manifest(job, 0, 1)["metadata"]["annotations"]
    assert annotations["batch.kubernetes.io/job-index-failure-count"] == "1"
    assert (
        "batch.kubernetes.io/job-index-failure-count" not in pod_manifest(job, 0)["metadata"]["annotations"]
    )


def test_an_index_beyond_its_limit_has_failed_and_the_others_go_on():
    pods = [make_pod("a", "Failed", index=0, failures=1), make_pod("b", index=1), make_pod("c", index=2)]

    plan = plan_job(per_index(), pods, NOW)

    assert plan.status and plan.status.failed_indexes == "0"
    assert (plan.create_indexes, plan.delete, conditions(plan.status)) == ((), (), {})


def test_a_job_with_failed_indexes_fails_when_all_have_ended():
    plan = plan_job(per_index(completed="1-2", failed="0"), [], NOW)

    assert conditions(plan.status) == {"FailureTarget": "FailedIndexes", "Failed": "FailedIndexes"}
    assert plan.status and plan.status.completed_indexes == "1-2"


def test_more_failed_indexes_than_allowed_end_the_job_at_once():
    job = per_index(failed="0", maxFailedIndexes=1)
    pods = [make_pod("b", "Failed", index=1, failures=1), make_pod("c", index=2)]

    plan = plan_job(job, pods, NOW)

    assert conditions(plan.status) == {"FailureTarget": "MaxFailedIndexesExceeded"}
    assert [pod.metadata.uid for pod in plan.delete] == ["c"]


def test_a_rule_may_fail_an_index_without_retries():
    rule = {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}
    job = per_index(backoffLimitPerIndex=9, podFailurePolicy={"rules": [rule]})
    pods = [make_pod("a", "Failed", index=0, failures=0, exit_code=42)]

    plan = plan_job(job, pods, NOW)

    assert plan.status and (plan.status.failed_indexes, plan.status.failed) == ("0", 1)
    assert plan.create_indexes == (1, 2)


def test_a_failure_that_a_rule_ignores_does_not_use_up_the_index():
    rule = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}
    job = per_index(backoffLimitPerIndex=0, podFailurePolicy={"rules": [rule]})
    pods = [make_pod("a", "Failed", index=0, failures=0, exit_code=42, ended_s_ago=10)]

    plan = plan_job(job, pods, NOW)

    assert (plan.create_indexes, plan.index_failures) == ((0, 1, 2), (0, 0, 0))


@pytest.mark.parametrize(
    ("rule", "completed", "is_met"),
    [
        ({"succeededIndexes": "0"}, "0", True),
        ({"succeededIndexes": "0"}, "1", False),
        ({"succeededIndexes": "0-1"}, "0", False),
        ({"succeededCount": 1}, "2", True),
        ({"succeededCount": 2}, "2", False),
        ({"succeededIndexes": "0,1", "succeededCount": 1}, "1", True),
        ({"succeededIndexes": "0,1", "succeededCount": 1}, "2", False),
    ],
)
def test_a_success_policy_ends_the_job_before_all_indexes_have(rule: Any, completed: str, is_met: bool):
    job = per_index(completed=completed, backoffLimitPerIndex=None, successPolicy={"rules": [rule]})
    running = make_pod("x", index=0 if completed != "0" else 1)

    plan = plan_job(job, [running], NOW)

    assert conditions(plan.status) == ({"SuccessCriteriaMet": "SuccessPolicy"} if is_met else {})
    assert plan.delete == ((running,) if is_met else ())
    if is_met:
        done = plan_job(settle(job, plan), [], NOW)
        assert conditions(done.status)["Complete"] == "SuccessPolicy"
        assert done.status and done.status.conditions[-1].message == "Matched rules at index 0"
