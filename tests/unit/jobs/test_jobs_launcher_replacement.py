"""A launcher whose pod a node refused before it ran: placed anew, not counted, told, and not for ever.

In scope: which failures are forgiven, the pause, the bound, what the next launcher Job may still fail. Out of
scope: refused workers (test_jobs_changes.py).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from gangline.jobs.plan import Create, Delete, Plan

Build = Callable[..., Any]
NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
NOW_TEXT = "2026-05-01T12:00:00Z"
SAID = "Pod was rejected: Node didn't have enough resource: cpu"
FAILED = {
    "type": "Failed",
    "status": "True",
    "reason": "BackoffLimitExceeded",
    "lastTransitionTime": NOW_TEXT,
}
EXIT_7 = [{"name": "main", "state": {"terminated": {"exitCode": 7, "reason": "Error"}}}]


def refused(
    scene: Build, *, failed: int = 1, limit: int = 0, policy: str = "Never", over: bool = True, **status: Any
) -> Any:
    """A job of which one launcher pod was refused, among ``failed`` that its Job has counted."""
    one = scene(runPolicy={"backoffLimit": limit})
    one.role("Launcher")["restartPolicy"] = policy
    one.status = status
    one.add_workers(2).add_children()
    spec = {"template": {"spec": {"restartPolicy": policy}}}
    one.add_launcher(spec=spec, failed=failed, conditions=[FAILED] if over else [])
    job = one.jobs["pi-launcher"]
    attempt = {"gangline.dev/launcher-attempt": str(status.get("launcherReplacements", 0))}
    one.jobs["pi-launcher"] = replace(job, metadata=replace(job.metadata, annotations=attempt))
    one.add_launcher_pod("Failed", suffix="first", reason="OutOfcpu", message=SAID)
    if not status:
        one.settle_status()
    return one


def after(seconds: float) -> Any:
    return NOW + timedelta(seconds=seconds)


def launchers(plan: Plan) -> list[dict[str, Any]]:
    made = [action.object for action in plan.actions if isinstance(action, Create)]
    return [obj for obj in made if obj["kind"] == "Job"]


def deletions(plan: Plan) -> list[str]:
    return [action.name for action in plan.actions if isinstance(action, Delete)]


def replaced(scene: Build, **options: Any) -> Any:
    """The same after the pause, when the old launcher Job and its pods are gone."""
    one = refused(scene, **options)
    one.status = one.plan(after(10)).status
    one.jobs.clear()
    one.pods = {name: pod for name, pod in one.pods.items() if "launcher" not in name}
    return one


def test_the_job_goes_on_and_waits_ten_seconds(scene: Build) -> None:
    one = refused(scene)

    plan = one.plan(after(4))

    assert "Failed" not in one.conditions(plan)
    assert plan.actions == ()
    assert plan.requeue_after_s == 6


def test_it_is_told_with_the_words_of_the_node(scene: Build) -> None:
    (event,) = refused(scene).plan().warnings

    assert (event.type, event.reason) == ("Warning", "MPIJobLauncherRefused")
    assert event.message == (
        f"launcher pod pi-launcher-first was refused by its node (OutOfcpu: {SAID}); "
        "it is placed anew, and that does not count against the backoff limit"
    )


def test_it_is_no_failed_launcher_in_the_counters(scene: Build) -> None:
    assert refused(scene).status["replicaStatuses"]["Launcher"].get("failed", 0) == 0


def test_after_the_pause_it_is_written_down_before_anything_is_deleted(scene: Build) -> None:
    one = refused(scene)

    plan = one.plan(after(10))

    assert plan.status["launcherReplacements"] == 1
    assert plan.actions == ()


def test_then_the_old_launcher_goes_and_the_workers_stay(scene: Build) -> None:
    one = refused(scene)
    one.status = one.plan(after(10)).status

    assert deletions(one.plan(after(10))) == ["pi-launcher"]


def test_then_the_launcher_is_made_anew_with_its_whole_limit(scene: Build) -> None:
    (launcher,) = launchers(replaced(scene).plan(after(11)))

    assert launcher["spec"]["backoffLimit"] == 0
    assert launcher["metadata"]["annotations"]["gangline.dev/launcher-attempt"] == "1"


def test_failures_of_the_program_are_not_forgiven_with_it(scene: Build) -> None:
    # One pod was refused, two failed by themselves: of three that are forgiven one is left.
    (launcher,) = launchers(replaced(scene, failed=3, limit=2 + 1).plan(after(11)))

    assert launcher["spec"]["backoffLimit"] == 1
    assert launcher["metadata"]["annotations"]["gangline.dev/launcher-failures"] == "2"


@pytest.mark.parametrize(
    ("failed", "limit", "policy"),
    [(3, 1, "Never"), (2, 0, "Never"), (2, 6, "OnFailure")],
    ids=["more failures than allowed", "one with none allowed", "restarts used up"],
)
def test_a_program_that_failed_too_often_fails_the_job(
    scene: Build, failed: int, limit: int, policy: str
) -> None:
    one = refused(scene, failed=failed, limit=limit, policy=policy)

    assert one.status["conditions"][-1]["type"] == "Failed"


def test_the_pause_doubles(scene: Build) -> None:
    one = refused(scene, launcherReplacements=2)

    assert one.plan().requeue_after_s == 40


def test_a_suspended_job_is_left_alone_until_it_goes_on(scene: Build) -> None:
    one = refused(scene)
    one.spec["runPolicy"]["suspend"] = True
    one.status = one.plan(after(10)).status
    assert one.plan(after(10)).requeue_after_s is None

    one.spec["runPolicy"]["suspend"] = False
    assert one.plan(after(20)).status["launcherReplacements"] == 1


def test_it_ends_after_six_times(scene: Build) -> None:
    one = refused(scene, launcherReplacements=6)

    plan = one.plan()

    assert one.conditions(plan)["Failed"] == ("True", "BackoffLimitExceeded/OutOfcpu")
    assert one.message(plan, "Failed").endswith(f"{SAID} (placed anew 6 times)")
    assert plan.warnings == ()


def test_a_launcher_that_its_job_tries_again_is_left_alone(scene: Build) -> None:
    plan = refused(scene, limit=6, over=False).plan()

    assert plan.actions == ()
    assert [event.reason for event in plan.warnings] == ["MPIJobLauncherRefused"]


def test_other_ends_of_the_launcher_are_ends(scene: Build) -> None:
    one = scene()
    one.add_workers(2).add_children()
    one.add_launcher(failed=1, conditions=[FAILED | {"reason": "DeadlineExceeded"}])
    one.add_launcher_pod("Failed", reason="OutOfcpu")

    assert one.conditions(one.plan())["Failed"] == ("True", "DeadlineExceeded")


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_pod_that_is_known_only_as_it_was_before_is_waited_for(scene: Build, phase: str) -> None:
    one = scene(runPolicy={"backoffLimit": 0})
    one.add_workers(2).add_children()
    one.add_launcher(failed=1, conditions=[FAILED]).add_launcher_pod(phase)

    assert "Failed" not in one.conditions(one.plan())
    assert one.plan().requeue_after_s == 1
    assert "Failed" in one.conditions(one.plan(after(60)))
