"""What PodGroups are told of their gangs, in both dialects."""

from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.api.resources import SCHEDULER_PLUGINS_POD_GROUPS, VOLCANO_POD_GROUPS
from gangline.placement.decisions import Wait
from gangline.scheduler.dialects import DIALECTS
from gangline.scheduler.group_status import group_status, is_same
from gangline.scheduler.tally import GangProgress, GangTally

WAIT = Wait(gang="team/g", reason="NoRoom", message="needs 8 nvidia.com/gpu on one node", position=1)
NOW = "2026-01-01T00:00:00Z"


def status(progress: GangProgress, wait: Wait | None = None, *, volcano: bool = False) -> dict[str, Any]:
    resource = VOLCANO_POD_GROUPS if volcano else SCHEDULER_PLUGINS_POD_GROUPS
    [write] = [one.status for one in DIALECTS if one.resource == resource and one.status is not None]
    return write(wait=wait, progress=progress, min_member=3, now=NOW)


@pytest.mark.parametrize(
    ("progress", "wait", "phase", "volcano"),
    [
        (GangProgress(pods=2), None, "Pending", "Pending"),
        (GangProgress(pods=3), WAIT, "Pending", "Pending"),
        (GangProgress(pods=3), None, "Scheduling", "Pending"),
        (GangProgress(pods=3, bound=1), None, "Scheduling", "Pending"),
        (GangProgress(pods=3, bound=3), None, "Scheduled", "Inqueue"),
        (GangProgress(pods=3, bound=2, running=1), None, "Scheduled", "Inqueue"),
        (GangProgress(pods=3, running=3), None, "Running", "Running"),
        (GangProgress(pods=4, running=3), WAIT, "Running", "Running"),
        (GangProgress(pods=3, running=2, succeeded=1), None, "Running", "Running"),
        (GangProgress(pods=3, running=2, failed=1), None, "Failed", "Unknown"),
        (GangProgress(pods=3, succeeded=3), None, "Finished", "Completed"),
    ],
)
def test_the_phase_is_that_of_the_dialects_own_scheduler(progress, wait, phase, volcano):
    assert status(progress, wait)["phase"] == phase
    assert status(progress, wait, volcano=True)["phase"] == volcano


def test_the_condition_says_why_a_gang_waits_in_each_dialects_words():
    message = "needs 8 nvidia.com/gpu on one node"
    for volcano, reason in ((False, "NoRoom"), (True, "NotEnoughResources")):
        [condition] = status(GangProgress(pods=3), WAIT, volcano=volcano)["conditions"]
        assert (condition["type"], condition["status"]) == ("Unschedulable", "True")
        assert (condition["reason"], condition["message"]) == (reason, message)


def test_a_placed_gang_says_how_many_pods_and_counts_those_that_run():
    found = status(GangProgress(pods=3, bound=1, running=2))
    assert (found["running"], found["succeeded"], found["failed"]) == (2, 0, 0)
    assert [one["message"] for one in found["conditions"]] == ["3 pods are placed"]


def test_what_was_said_stays_while_nothing_is_known():
    assert "conditions" not in status(GangProgress(pods=3))


def test_an_unchanged_status_is_recognised_whatever_its_times_and_other_fields():
    found = status(GangProgress(pods=3, bound=3))
    later = group_status(
        wait=None,
        progress=GangProgress(pods=3, bound=3),
        min_member=3,
        now="2026-01-02T00:00:00Z",
    )
    known = {key: value for key, value in found.items() if value != 0} | {"occupiedBy": "team/x"}

    assert is_same(later, known)
    assert not is_same(status(GangProgress(pods=3, running=3)), known)
    assert not is_same(status(GangProgress(pods=3), WAIT), known)


def pod(name: str, phase: str = "Pending", node: str = "", scheduler: str = "ours") -> Pod:
    metadata = {"name": name, "namespace": "team", "uid": name}
    metadata["labels"] = {"scheduling.x-k8s.io/pod-group": "g"}
    spec = {"nodeName": node, "schedulerName": scheduler}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, Pod)


def test_pods_are_counted_by_how_far_they_are():
    tally = GangTally(("ours",))
    assert tally.take(None, pod("0")) == "team/g"
    assert tally.take(pod("0"), pod("0")) == ""
    for one in (pod("1", node="a"), pod("2", "Running", "a"), pod("3", "Failed", "a"), pod("4", "Succeeded")):
        tally.take(None, one)
    assert tally.progress("team/g") == GangProgress(5, 1, 1, 1, 1)

    for name in "01234":
        assert tally.take(pod(name), None) == "team/g"
    assert tally.progress("team/g") == GangProgress()


def test_pods_of_other_schedulers_and_of_no_gang_do_not_count():
    tally = GangTally(("ours",))
    assert tally.take(None, pod("0", scheduler="volcano")) == ""
    assert tally.progress("team/g") == GangProgress()
