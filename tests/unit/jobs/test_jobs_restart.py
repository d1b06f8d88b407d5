"""What becomes of a job when a worker fails or vanishes, by policy: the job fails, or the gang starts again.

In scope: the annotation, the steps of a restart, its bound. Out of scope: the words for a failed worker
(test_jobs_changes.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gangline.api.core import Condition
from gangline.jobs.plan import Create, Delete, Plan
from gangline.jobs.settings import Settings

Build = Callable[..., Any]
AGAIN = {"gangline.dev/on-worker-failure": "restart-gang"}
NOW_TEXT = "2026-05-01T12:00:00Z"
FAILED = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "m"}]
EXIT_7 = [{"name": "main", "state": {"terminated": {"exitCode": 7, "reason": "Error"}}}]


def running(scene: Build, *, again: bool = True, **spec: Any) -> Any:
    one = scene(**spec)
    if again:
        one.meta = replace(one.meta, annotations=AGAIN)
    one.add_workers(2).add_children().add_launcher(active=1, startTime=NOW_TEXT).add_launcher_pod()
    one.settle_status()
    return one


def fail_worker(one: Any, index: int = 1) -> None:
    one.add_worker(index, "Failed", containerStatuses=EXIT_7)


def deletions(plan: Plan) -> list[str]:
    return sorted(action.name for action in plan.actions if isinstance(action, Delete))


def creations(plan: Plan) -> list[dict[str, Any]]:
    return [action.object for action in plan.actions if isinstance(action, Create)]


def mark(one: Any, attempt: int) -> None:
    """Give every pod and the launcher the attempt."""
    for objects in (one.pods, one.jobs):
        for name, found in objects.items():
            annotations = {"gangline.dev/attempt": str(attempt)}
            objects[name] = replace(found, metadata=replace(found.metadata, annotations=annotations))


def test_a_restart_is_written_down_before_anything_is_deleted(scene: Build) -> None:
    one = running(scene)
    fail_worker(one)

    plan = one.plan()

    assert plan.actions == ()
    assert plan.status["restarts"] == 1
    assert one.conditions(plan)["Restarting"] == ("True", "MPIJobRestarting")
    assert "Running" not in one.conditions(plan)
    assert one.message(plan, "Restarting") == (
        "worker pod pi-worker-1 failed: container main exited with code 7; "
        "the whole gang starts again (1 of at most 6 times)"
    )
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", "MPIJobRestarting")]
    assert plan.counts == ("restarted",)


def test_then_launcher_and_all_workers_of_the_attempt_go(scene: Build) -> None:
    one = running(scene)
    fail_worker(one)
    one.settle_status()

    plan = one.plan()

    assert deletions(plan) == ["pi-launcher", "pi-worker-0", "pi-worker-1"]
    assert creations(plan) == []


def test_nothing_is_made_while_something_of_the_old_attempt_is_left(scene: Build) -> None:
    one = running(scene)
    fail_worker(one)
    one.settle_status()
    del one.pods["pi-worker-0"], one.pods["pi-worker-1"], one.jobs["pi-launcher"]
    pod = one.pods["pi-launcher-abcde"]
    labels = {"training.kubeflow.org/job-role": "launcher"}
    one.pods["pi-launcher-abcde"] = replace(pod, metadata=replace(pod.metadata, labels=labels))

    assert one.plan().actions == ()


def test_the_next_attempt_carries_its_number(scene: Build) -> None:
    one = running(scene)
    fail_worker(one)
    one.settle_status()
    one.pods.clear()
    one.jobs.clear()

    made = creations(one.plan())

    assert [obj["metadata"]["name"] for obj in made] == ["pi-worker-0", "pi-worker-1", "pi-launcher"]
    assert {obj["metadata"]["annotations"]["gangline.dev/attempt"] for obj in made} == {"1"}


def test_the_job_runs_again(scene: Build) -> None:
    one = running(scene)
    fail_worker(one)
    one.settle_status()
    one.add_workers(2).add_launcher(active=1)
    mark(one, 1)

    plan = one.plan()

    assert one.conditions(plan)["Running"] == ("True", "MPIJobRunning")
    assert "Restarting" not in one.conditions(plan)
    assert plan.actions == ()
    assert plan.status["restarts"] == 1


def test_the_launchers_backoff_limit_bounds_the_restarts(scene: Build) -> None:
    one = running(scene, runPolicy={"backoffLimit": 1})
    fail_worker(one)
    one.settle_status()
    one.add_workers(2).add_launcher(active=1)
    mark(one, 1)
    one.settle_status()
    fail_worker(one)
    mark(one, 1)

    plan = one.plan()

    assert one.conditions(plan)["Failed"] == ("True", "MPIJobWorkerFailed")
    assert one.message(plan, "Failed").endswith("exited with code 7 (restarts of the gang: 1)")


def test_a_second_restart_says_its_own_reason(scene: Build) -> None:
    one = running(scene)
    fail_worker(one, 1)
    one.settle_status()
    one.pods.clear()
    one.add_worker(0, "Failed", containerStatuses=EXIT_7)
    mark(one, 1)

    message = one.message(one.plan(), "Restarting")

    assert message.startswith("worker pod pi-worker-0")
    assert message.endswith("(2 of at most 6 times)")


def test_a_launcher_that_fails_with_its_worker_does_not_end_the_job(scene: Build) -> None:
    one = running(scene)
    fail_worker(one)
    one.add_launcher(failed=1, conditions=FAILED)

    assert "Failed" not in one.conditions(one.plan())


def test_an_evicted_worker_has_the_gang_start_again(scene: Build) -> None:
    one = running(scene)
    one.add_worker(1, "Failed", reason="Evicted")

    assert one.message(one.plan(), "Restarting").startswith("1/2 workers are evicted: pi-worker-1;")


@pytest.mark.parametrize("how", ["going", "gone"])
def test_a_deleted_worker_has_the_gang_start_again(scene: Build, how: str) -> None:
    one = running(scene)
    pod = one.pods.pop("pi-worker-1")
    if how == "going":
        one.pods["pi-worker-1"] = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=NOW_TEXT))

    assert one.message(one.plan(), "Restarting").startswith(
        "worker pod pi-worker-1 was deleted while the job ran;"
    )


def test_a_worker_that_goes_by_the_users_wish_is_no_loss(scene: Build) -> None:
    one = running(scene)
    one.role("Worker")["replicas"] = 1

    plan = one.plan()

    assert deletions(plan) == ["pi-worker-1"]
    assert "Restarting" not in one.conditions(plan)


def test_a_worker_that_is_new_by_the_users_wish_is_no_loss(scene: Build) -> None:
    one = running(scene)
    one.role("Worker")["replicas"] = 3

    plan = one.plan()

    assert [obj["metadata"]["name"] for obj in creations(plan)] == ["pi-worker-2"]
    assert "Restarting" not in one.conditions(plan)


def target(reason: str) -> list[dict[str, str]]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason}]


def drain(one: Any, name: str, reason: str = "EvictionByEvictionAPI") -> None:
    """Mark a pod and delete it, as the eviction API does."""
    pod = one.pods[name]
    status = replace(pod.status, conditions=msgspec.convert(target(reason), list[Condition]))
    meta = replace(pod.metadata, deletion_timestamp=NOW_TEXT)
    one.pods[name] = replace(pod, metadata=meta, status=status)


@pytest.mark.parametrize("how", ["evicted", "disrupted", "drained"])
def test_without_the_annotation_the_gang_starts_again_after_what_the_cluster_did(
    scene: Build, how: str
) -> None:
    one = running(scene, again=False)
    if how == "drained":
        drain(one, "pi-worker-1")
    elif how == "evicted":
        one.add_worker(1, "Failed", reason="Evicted")
    else:
        ended = target("TerminationByKubelet")
        one.add_worker(1, "Failed", conditions=ended, containerStatuses=EXIT_7)

    message = one.message(one.plan(), "Restarting")

    assert message.startswith("1/2 workers are evicted: pi-worker-1")
    assert message.endswith("the whole gang starts again (1 of at most 6 times)")


def test_a_gang_that_its_scheduler_takes_away_starts_no_restart(scene: Build) -> None:
    one = running(scene, again=False)
    drain(one, "pi-worker-1", "PreemptionByScheduler")
    assert "Restarting" in one.conditions(one.plan())

    one.settings = Settings(gang_scheduling="gangline-scheduler")

    assert "Restarting" not in one.conditions(one.plan())


def test_without_the_annotation_a_program_that_fails_still_fails_the_job(scene: Build) -> None:
    one = running(scene, again=False)
    fail_worker(one)

    assert one.conditions(one.plan())["Failed"][0] == "True"


def test_a_gang_that_is_taken_away_with_its_launcher_comes_back_without_a_restart(scene: Build) -> None:
    one = running(scene, again=False)
    for name in one.pods:
        drain(one, name)

    plan = one.plan()

    assert "Restarting" not in one.conditions(plan)
    assert [(warning.reason, warning.message) for warning in plan.warnings] == [
        (
            "MPIJobWorkerLost",
            "worker pod pi-worker-0 was deleted while the job ran (and 1 more); what is missing is created "
            "again",
        )
    ]


def test_without_the_annotation_a_deleted_worker_is_named_and_made_again(scene: Build) -> None:
    one = running(scene, again=False)
    del one.pods["pi-worker-1"]

    plan = one.plan()

    assert [obj["metadata"]["name"] for obj in creations(plan)] == ["pi-worker-1"]
    assert [(warning.reason, warning.message) for warning in plan.warnings] == [
        (
            "MPIJobWorkerLost",
            "worker pod pi-worker-1 was deleted while the job ran; what is missing is created again",
        )
    ]


def test_an_elastic_job_is_never_started_again_as_a_whole(scene: Build) -> None:
    one = scene()
    one.main("Launcher")["args"] = ["--host-discovery-script", "/etc/mpi/discover_hosts.sh"]
    one.meta = replace(one.meta, annotations=AGAIN)
    one.add_workers(2).add_children().add_launcher(active=1).add_launcher_pod()
    one.settle_status()
    fail_worker(one)

    assert "Restarting" not in one.conditions(one.plan())


def test_an_end_of_the_job_ends_the_restarting(scene: Build) -> None:
    one = running(scene)
    fail_worker(one)
    one.settle_status()
    one.add_workers(2).add_launcher(conditions=[{"type": "Complete", "status": "True"}])
    mark(one, 1)

    plan = one.plan()

    assert one.conditions(plan)["Restarting"][0] == "False"
    assert one.conditions(plan)["Succeeded"][0] == "True"


def test_another_policy_is_an_error(scene: Build) -> None:
    one = scene()
    one.meta = replace(one.meta, annotations={"gangline.dev/on-worker-failure": "pray"})

    (error,) = one.read().errors

    assert (error.reason, error.path) == (
        "NotSupported",
        "metadata.annotations[gangline.dev/on-worker-failure]",
    )
