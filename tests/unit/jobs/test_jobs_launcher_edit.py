"""A launcher that never ran takes an edit of its command; one that has run stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gangline.api.core import Job
from gangline.jobs.plan import Create, Delete, Plan

Build = Callable[..., Any]


def started(scene: Build, phase: str = "Pending", *, has_pod: bool = True, **status: Any) -> Any:
    """A job whose launcher was made as the operator makes it."""
    one = scene()
    one.main("Launcher")["command"] = ["mpirun", "wrong"]
    (wire,) = launchers(one.plan())
    one.add_workers(2, "Pending").add_children().add_launcher(**status)
    made = msgspec.convert({"metadata": wire["metadata"]}, Job)
    launcher = one.jobs["pi-launcher"]
    meta = msgspec.structs.replace(launcher.metadata, annotations=made.metadata.annotations)
    one.jobs["pi-launcher"] = msgspec.structs.replace(launcher, metadata=meta)
    if has_pod:
        one.add_launcher_pod(phase)
    one.settle_status()
    return one


def launchers(plan: Plan) -> list[dict[str, Any]]:
    made = [action.object for action in plan.actions if isinstance(action, Create)]
    return [obj for obj in made if obj["kind"] == "Job"]


def deletions(plan: Plan) -> list[tuple[str, str]]:
    return [(action.name, action.uid) for action in plan.actions if isinstance(action, Delete)]


def edit(one: Any) -> None:
    one.main("Launcher")["command"] = ["mpirun", "right"]


def test_a_launcher_that_never_ran_is_made_anew_with_the_edited_command(scene: Build) -> None:
    one = started(scene)
    assert deletions(one.plan()) == []

    edit(one)
    plan = one.plan()

    assert deletions(plan) == [("pi-launcher", "launcher-uid")]
    (event,) = plan.events
    assert (event.type, event.reason) == ("Normal", "MPIJobLauncherEdited")
    one.jobs.clear()
    (made,) = launchers(one.plan())
    assert made["spec"]["template"]["spec"]["containers"][0]["command"] == ["mpirun", "right"]


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_a_launcher_that_has_run_stays(scene: Build, phase: str) -> None:
    one = started(scene, phase)

    edit(one)

    assert deletions(one.plan()) == []


@pytest.mark.parametrize("status", [{"failed": 1}, {"ready": 1}, {"startTime": "2026-05-01T12:00:00Z"}])
def test_a_launcher_whose_pod_may_have_run_stays(scene: Build, status: dict[str, Any]) -> None:
    # No pod of it is seen, or another one than the one that has failed.
    one = started(scene, has_pod="startTime" not in status, **status)

    edit(one)

    assert deletions(one.plan()) == []


def test_a_launcher_of_another_operator_stays(scene: Build) -> None:
    one = started(scene)
    launcher = one.jobs["pi-launcher"]
    meta = msgspec.structs.replace(launcher.metadata, annotations={})
    one.jobs["pi-launcher"] = msgspec.structs.replace(launcher, metadata=meta)

    edit(one)

    assert deletions(one.plan()) == []


def test_of_a_suspended_job_that_never_started_the_launcher_takes_an_edit_too(scene: Build) -> None:
    suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended"}
    one = started(scene, has_pod=False, conditions=[suspended], spec={"suspend": True})
    one.spec["runPolicy"] = {"suspend": True}

    edit(one)

    assert ("pi-launcher", "launcher-uid") in deletions(one.plan())
