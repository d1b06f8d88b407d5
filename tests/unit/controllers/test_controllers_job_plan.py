"""The decisions of the Job controller, as values. The shell is tested in tests/integration."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from job_scenes import NOW, conditions, make_job, make_pod, settle

from gangline.cluster.controllers.job_plan import JobPlan, plan_job
from gangline.cluster.controllers.job_pod import pod_manifest
from gangline.cluster.controllers.job_types import TrackedJob, TrackedJobStatus


def test_a_new_job_gets_its_pod_and_start_time_at_once():
    plan = plan_job(make_job(status={"startTime": None}), [], NOW)

    assert plan.create_count == 1
    assert plan.status == TrackedJobStatus(start_time="2026-01-01T12:00:00Z", active=1)


def test_the_second_look_does_nothing():
    job = make_job(status={"startTime": None}, parallelism=3, completions=3)
    pods = [make_pod(str(index), "Pending") for index in range(3)]

    assert plan_job(settle(job, plan_job(job, [], NOW)), pods, NOW) == JobPlan()


@pytest.mark.parametrize(
    ("parallelism", "completions", "succeeded", "active", "want"),
    [
        pytest.param(3, 5, 0, 0, 3, id="as many as may run beside one another"),
        pytest.param(3, 5, 4, 0, 1, id="only what is still missing"),
        pytest.param(3, 5, 2, 1, 2, id="beside the active ones"),
        pytest.param(2, None, 0, 0, 2, id="a work queue starts all"),
        pytest.param(2, None, 1, 1, 0, id="a work queue starts none after the first success"),
        pytest.param(0, 1, 0, 0, 0, id="no parallelism, no pods"),
    ],
)
def test_pods_are_created_up_to(
    parallelism: int, completions: int | None, succeeded: int, active: int, want: int
):
    job = make_job(parallelism=parallelism, completions=completions, status={"succeeded": succeeded})

    assert plan_job(job, [make_pod(str(index)) for index in range(active)], NOW).create_count == want


def test_a_success_is_counted_and_completes_the_job_in_one_write():
    plan = plan_job(make_job(status={"active": 1}), [make_pod("a", "Succeeded")], NOW)

    assert plan.status is not None
    assert conditions(plan.status) == {
        "SuccessCriteriaMet": "CompletionsReached",
        "Complete": "CompletionsReached",
    }
    assert (plan.status.succeeded, plan.status.active) == (1, 0)
    assert plan.status.completion_time == "2026-01-01T12:00:00Z"
    assert plan.status.uncounted_terminated_pods == {}
    assert [(event.type, event.reason) for event in plan.events] == [("Normal", "Completed")]


def test_a_job_is_not_complete_while_a_pod_still_terminates():
    job = make_job(parallelism=2, completions=1, status={"active": 2})

    plan = plan_job(job, [make_pod("a", "Succeeded"), make_pod("b")], NOW)

    assert conditions(plan.status) == {"SuccessCriteriaMet": "CompletionsReached"}
    assert [pod.metadata.uid for pod in plan.delete] == ["b"]

    job = settle(job, plan)
    assert plan_job(job, [make_pod("a", "Succeeded"), make_pod("b", deleted=True)], NOW).status is None

    plan = plan_job(job, [make_pod("a", "Succeeded")], NOW)
    assert "Complete" in conditions(plan.status)
    assert plan.status and (plan.status.succeeded, plan.status.failed) == (1, 0)


def test_a_failed_pod_is_replaced_after_ten_seconds_doubling():
    job = make_job()

    first = plan_job(job, [make_pod("a", "Failed")], NOW)
    assert (first.create_count, first.requeue_after_s) == (0, 10.0)
    assert first.status and first.status.failed == 1

    job = settle(job, first)
    assert plan_job(job, [make_pod("a", "Failed", ended_s_ago=10)], NOW).create_count == 1

    second = plan_job(job, [make_pod("a", "Failed", ended_s_ago=15), make_pod("b", "Failed")], NOW)
    assert (second.create_count, second.requeue_after_s) == (0, 20.0)


def test_a_success_resets_the_back_off():
    job = make_job(parallelism=1, completions=3)
    pods = [
        make_pod("a", "Failed", ended_s_ago=3),
        make_pod("b", "Failed", ended_s_ago=2),
        make_pod("c", "Succeeded"),
    ]

    assert plan_job(job, pods, NOW).create_count == 1


def test_no_pod_is_counted_twice():
    job = make_job(backoffLimit=1)
    failed = make_pod("a", "Failed")
    job = settle(job, plan_job(job, [failed], NOW))

    assert job.status.uncounted_terminated_pods == {"failed": ["a"]}
    assert plan_job(job, [failed], NOW).status is None


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_back_off_limit_of_n_allows_n_plus_one_pods(limit: int):
    job, pods, started = make_job(backoffLimit=limit), [], 0
    for moment in range(10):
        now = NOW + timedelta(hours=moment)
        plan = plan_job(job, pods, now)
        job = settle(job, plan)
        started += plan.create_count
        pods += [make_pod(f"{moment}-{index}", "Failed") for index in range(plan.create_count)]

    assert started == limit + 1
    assert conditions(job.status) == {
        "FailureTarget": "BackoffLimitExceeded",
        "Failed": "BackoffLimitExceeded",
    }
    assert job.status.failed == limit + 1
    assert job.status.completion_time is None


def test_the_failure_waits_until_the_other_pods_have_ended():
    job = make_job(parallelism=2, completions=2, backoffLimit=0)

    plan = plan_job(job, [make_pod("a", "Failed"), make_pod("b")], NOW)
    assert conditions(plan.status) == {"FailureTarget": "BackoffLimitExceeded"}
    assert [pod.metadata.uid for pod in plan.delete] == ["b"]
    assert plan.events == ()

    job = settle(job, plan)
    plan = plan_job(job, [make_pod("a", "Failed"), make_pod("b", "Failed", deleted=True)], NOW)
    assert "Failed" in conditions(plan.status)
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", "BackoffLimitExceeded")]


@pytest.mark.parametrize(("limit", "restarts", "fails"), [(0, 1, True), (2, 1, False), (2, 2, True)])
def test_restarts_in_place_count_towards_the_limit(limit: int, restarts: int, fails: bool):
    job = make_job(backoffLimit=limit, restart="OnFailure", status={"active": 1})
    pod = make_pod("a", containerStatuses=[{"name": "main", "restartCount": restarts}])

    assert bool(plan_job(job, [pod], NOW).delete) is fails


def test_a_pod_that_was_deleted_before_it_was_counted_still_counts():
    gone = make_pod("a", "Succeeded")

    assert "Complete" in conditions(plan_job(make_job(), [], NOW, vanished=[gone]).status)


def test_a_pod_that_vanished_while_it_ran_counts_as_failed_and_is_replaced():
    plan = plan_job(make_job(), [], NOW, vanished=[make_pod("a")])

    assert plan.status and plan.status.failed == 1
    assert plan.create_count == 1


def test_a_deleted_pod_is_replaced_at_once_or_when_it_has_ended():
    leaving = [make_pod("a", deleted=True)]

    plan = plan_job(make_job(), leaving, NOW)
    assert plan.status and (plan.create_count, plan.status.failed, plan.status.terminating) == (1, 1, 1)

    plan = plan_job(make_job(podReplacementPolicy="Failed"), leaving, NOW)
    assert plan.status and (plan.create_count, plan.status.failed, plan.status.terminating) == (0, 0, 1)


def test_the_deadline_fails_the_job_and_is_waited_for():
    job = make_job(activeDeadlineSeconds=30, status={"active": 1})
    pods = [make_pod("a")]

    assert plan_job(job, pods, NOW + timedelta(seconds=10)).requeue_after_s == 20.0

    plan = plan_job(job, pods, NOW + timedelta(seconds=30))
    assert conditions(plan.status) == {"FailureTarget": "DeadlineExceeded"}
    assert len(plan.delete) == 1


def test_suspending_deletes_the_pods_without_counting_them_and_resuming_starts_anew():
    job = make_job(suspend=True, backoffLimit=0, status={"active": 1})

    plan = plan_job(job, [make_pod("a")], NOW)
    assert len(plan.delete) == 1
    assert conditions(plan.status) == {"Suspended": "JobSuspended"}
    assert plan.status and (plan.status.start_time, plan.status.active) == (None, 0)

    later = NOW + timedelta(hours=1)
    job = make_job(suspend=False, backoffLimit=0, status=msgspec.to_builtins(plan.status))
    plan = plan_job(job, [make_pod("a", deleted=True)], later)
    assert plan.create_count == 1
    assert plan.status and (plan.status.start_time, plan.status.failed) == ("2026-01-01T13:00:00Z", 0)
    assert conditions(plan.status) == {}


def test_lower_parallelism_deletes_the_pods_that_lose_least():
    job = make_job(parallelism=1, completions=3)
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    pods = [make_pod("ready", **ready), make_pod("running"), make_pod("waiting", "Pending", node="")]

    plan = plan_job(job, pods, NOW)

    assert [pod.metadata.uid for pod in plan.delete] == ["waiting", "running"]
    assert plan.status and plan.status.failed == 0


@pytest.mark.parametrize(
    ("rule", "exit_code", "failed", "target"),
    [
        pytest.param(
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
            42,
            1,
            "PodFailurePolicy",
            id="the code fails the job",
        ),
        pytest.param(
            {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [42]}},
            42,
            1,
            None,
            id="another code does not",
        ),
        pytest.param(
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
            137,
            0,
            None,
            id="a disruption is not counted",
        ),
    ],
)
def test_pod_failure_policy(rule: Any, exit_code: int, failed: int, target: str | None):
    job = make_job(podFailurePolicy={"rules": [rule]})
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]

    plan = plan_job(job, [make_pod("a", "Failed", exit_code=exit_code, conditions=disrupted)], NOW)

    assert plan.status and plan.status.failed == failed
    assert conditions(plan.status).get("FailureTarget") == target


def test_a_finished_job_is_left_alone_until_its_time_to_live_is_over():
    job = settle(make_job(), plan_job(make_job(), [make_pod("a", "Succeeded")], NOW))

    assert plan_job(job, [], NOW) == JobPlan()

    spec = msgspec.structs.replace(job.spec, ttl_seconds_after_finished=60)
    job = msgspec.structs.replace(job, spec=spec)
    assert plan_job(job, [], NOW + timedelta(seconds=20)) == JobPlan(requeue_after_s=40.0)
    assert plan_job(job, [], NOW + timedelta(seconds=60)) == JobPlan(delete_job=True)


@pytest.mark.parametrize("job", [make_job(deleted=True), make_job(managedBy="kueue.x-k8s.io/multikueue")])
def test_jobs_that_are_going_or_managed_by_another_are_left_alone(job: TrackedJob):
    assert plan_job(job, [make_pod("a", "Failed")], NOW) == JobPlan()


def test_the_pod_comes_from_the_template_and_is_owned_by_uid():
    template = {"metadata": {"labels": {"job-name": "pi"}}, "spec": {"restartPolicy": "Never"}}

    manifest = pod_manifest(make_job(template=template))

    assert manifest["metadata"]["generateName"] == "pi-"
    assert manifest["metadata"]["labels"] == {"job-name": "pi"}
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == "job-uid"
    assert manifest["spec"] == {"restartPolicy": "Never"}
