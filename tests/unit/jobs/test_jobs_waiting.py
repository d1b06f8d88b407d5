"""Why a job waits, told on the job: by its gang's scheduler, by its pods, by the API server.

In scope: the condition Waiting. Out of scope: what schedulers write, and how a PodGroup is made.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import PodStatus
from gangline.api.pod_group import PodGroup
from gangline.jobs.gang import build_pod_group, dialect_of
from gangline.jobs.mpijob_gang import gang_of_mpijob
from gangline.jobs.settings import Settings
from gangline.jobs.waiting import said_of

Build = Callable[..., Any]
NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
NO_ROOM = {
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "needs 4 GPUs"}
    ]
}
PULL = {
    "conditions": [{"type": "PodScheduled", "status": "True"}],
    "containerStatuses": [
        {"name": "main", "state": {"waiting": {"reason": "ErrImagePull", "message": "not\nfound"}}}
    ],
}
QUIET = {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}]}
COMPLETE = [{"type": "Complete", "status": "True"}]
SHORTFALL = "needs 4 nvidia.com/gpu on one node; best node a has 1 free"


def gang(scene: Build) -> Any:
    one = scene()
    one.settings = Settings(gang_scheduling="volcano")
    return one


def say(one: Any, conditions: Any) -> None:
    dialect = dialect_of("volcano")
    assert dialect is not None
    wire = build_pod_group(gang_of_mpijob(one.read().job), dialect, {})
    group = PodGroup(metadata=one.child_meta(one.name), spec=wire["spec"], status={"conditions": conditions})
    one.pod_groups[one.name] = group


def told(type_: str, reason: str, message: str, at: str = "2026-05-01T12:00:00Z") -> dict[str, Any]:
    return {"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at}


def waiting_job(scene: Build, message: str = SHORTFALL) -> Any:
    one = gang(scene).add_children()
    one.add_workers(2, "Pending").add_launcher()
    say(one, [told("Unschedulable", "NoRoom", message)])
    return one


def test_a_job_says_why_its_gang_waits_and_keeps_its_state(scene: Build) -> None:
    one = waiting_job(scene)

    plan = one.settle_status()

    assert one.message(plan, "Waiting") == SHORTFALL
    assert list(one.conditions(plan).items()) == [
        ("Waiting", ("True", "NoRoom")),
        ("Created", ("True", "MPIJobCreated")),
    ]


def test_what_is_said_already_is_not_written_again_and_what_is_new_is(scene: Build) -> None:
    one = waiting_job(scene)
    one.settle_status()
    assert one.plan(NOW + timedelta(minutes=1)).status is None

    say(one, [told("Unschedulable", "NoRoom", "needs 1 cpu more")])
    plan = one.plan(NOW + timedelta(minutes=2))

    assert plan.status is not None
    found = plan.status["conditions"][0]
    assert (found["message"], found["lastTransitionTime"]) == ("needs 1 cpu more", "2026-05-01T12:00:00Z")


def test_a_job_waits_no_more_once_its_gang_is_placed(scene: Build) -> None:
    one = waiting_job(scene)
    one.settle_status()
    # Volcano leaves the older one where it is.
    later = told("Scheduled", "Scheduled", "3 pods are placed", "2026-05-01T12:00:07Z")
    say(one, [later, told("Unschedulable", "NoRoom", SHORTFALL)])

    assert one.conditions(one.settle_status())["Waiting"] == ("False", "MPIJobStarting")
    one.pods.clear()
    one.add_workers(2).add_launcher_pod()
    assert list(one.conditions(one.settle_status())) == ["Waiting", "Created", "Running"]


def test_a_job_that_is_held_or_over_does_not_wait(scene: Build) -> None:
    held = waiting_job(scene)
    held.settle_status()
    held.spec["runPolicy"] = {"suspend": True}
    over = waiting_job(scene)
    over.settle_status()
    over.add_launcher(conditions=COMPLETE)

    assert held.conditions(held.plan())["Waiting"] == ("False", "MPIJobSuspended")
    assert list(held.conditions(held.plan()))[-1] == "Suspended"
    assert over.conditions(over.plan())["Waiting"] == ("False", "MPIJobSucceeded")
    assert list(over.conditions(over.plan()))[-1] == "Succeeded"


@pytest.mark.parametrize(
    "conditions",
    [None, [], "x", ["x"], [{"type": 1}], [{"type": "Unschedulable", "status": "False"}]],
)
def test_a_job_of_a_scheduler_that_says_nothing_is_not_said_to_wait(scene: Build, conditions: Any) -> None:
    one = gang(scene)
    say(one, conditions)

    assert list(one.conditions(one.plan())) == ["Created"]


@pytest.mark.parametrize(
    ("status", "told_of"),
    [
        (NO_ROOM, ("Unschedulable", "pod pi-worker-1 fits on no node: needs 4 GPUs")),
        (PULL, ("ErrImagePull", "pod pi-worker-1, container main: ErrImagePull: not found")),
        (QUIET, None),
    ],
)
def test_without_a_word_of_the_gang_a_job_says_what_a_pod_waits_for(
    scene: Build, status: Any, told_of: Any
) -> None:
    one = scene().add_children().add_launcher()
    one.settle_status()
    one.add_worker(0, "Pending")
    one.add_worker(1, "Pending")
    pod = one.pods["pi-worker-1"]
    said = msgspec.convert({"phase": "Pending", **status}, PodStatus)
    one.pods["pi-worker-1"] = msgspec.structs.replace(pod, status=said)

    plan = one.plan()

    if told_of is None:
        assert plan.status is None
    else:
        assert (one.conditions(plan)["Waiting"], one.message(plan, "Waiting")) == (
            ("True", told_of[0]),
            told_of[1],
        )
        one.settle_status()
        assert said_of(one.pods["pi-worker-1"]) and not said_of(one.pods["pi-worker-0"])
        one.add_workers(2).add_launcher_pod()
        assert one.conditions(one.settle_status())["Waiting"] == ("False", "MPIJobRunning")


def test_a_gang_that_is_placed_says_of_a_pod_that_it_waits_for_its_image(scene: Build) -> None:
    one = waiting_job(scene)
    say(one, [told("Scheduled", "Scheduled", "3 pods are placed")])
    pod = one.pods["pi-worker-1"]
    said = msgspec.convert({"phase": "Pending", **PULL}, PodStatus)
    one.pods["pi-worker-1"] = msgspec.structs.replace(pod, status=said)

    assert one.conditions(one.plan())["Waiting"] == ("True", "ErrImagePull")


def test_pods_that_a_quota_refuses_are_told_of_too(scene: Build) -> None:
    one = scene().add_children()
    one.refused = 'pods "pi-worker-0" is forbidden: exceeded quota: team'

    assert one.message(one.plan(), "Waiting") == one.refused
    one.settle_status()
    one.refused = ""
    assert one.conditions(one.plan())["Waiting"] == ("False", "MPIJobStarting")


def lose_worker(one: Any, attempt: str = "") -> None:
    """Have worker 1 deleted at noon, on a node that does not say that it ended."""
    one.add_worker(1)
    pod = one.pods["pi-worker-1"]
    notes = {"gangline.dev/attempt": attempt} if attempt else {}
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-05-01T12:00:00Z", annotations=notes)
    one.pods["pi-worker-1"] = msgspec.structs.replace(
        pod, metadata=meta, spec=msgspec.structs.replace(pod.spec, node_name="n7")
    )


def test_a_job_whose_pod_is_on_a_lost_node_says_what_lets_it_go(scene: Build) -> None:
    one = gang(scene).add_children()
    say(one, [told("Scheduled", "Scheduled", "3 pods are placed")])
    one.status = {"restarts": 1, "conditions": [told("Created", "MPIJobCreated", "")]}
    lose_worker(one)  # of the attempt before, so that nothing is made anew yet

    early = one.plan(NOW + timedelta(seconds=10))
    late = one.plan(NOW + timedelta(seconds=31))

    assert early.requeue_after_s == 20
    assert "Waiting" not in one.conditions(early)
    assert one.conditions(late)["Waiting"] == ("True", "Terminating")
    assert "`kubectl delete node n7`" in one.message(late, "Waiting")
    assert late.requeue_after_s is None
    assert late.status is not None

    one.status = late.status
    assert one.plan(NOW + timedelta(minutes=9)).status is None
    one.pods.clear()
    assert one.conditions(one.plan(NOW + timedelta(minutes=10)))["Waiting"] == ("False", "MPIJobStarting")


def test_a_job_of_no_gang_waits_for_a_lost_node_too(scene: Build) -> None:
    one = scene()
    lose_worker(one)
    one.status = one.plan(NOW + timedelta(minutes=1)).status
    assert one.status["conditions"][0]["reason"] == "Terminating"

    one.pods.clear()

    assert one.conditions(one.plan(NOW + timedelta(minutes=2)))["Waiting"] == ("False", "MPIJobStarting")
