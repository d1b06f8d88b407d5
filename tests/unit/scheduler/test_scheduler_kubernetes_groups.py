"""Kubernetes' own PodGroup, as the scheduler reads it and what it writes there.

Expected values come from the API types of ``scheduling.k8s.io/v1beta1`` (v0.37.1).
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.api.pod_group import PodGroup, PriorityClass
from gangline.api.resources import KUBERNETES_POD_GROUPS, KUBERNETES_POD_GROUPS_V1ALPHA2, Resource
from gangline.placement.decisions import Wait
from gangline.placement.groups.read_groups import read_group
from gangline.scheduler.dialects import DIALECTS
from gangline.scheduler.tally import GangProgress
from gangline.workloads.gang_names import gang_of

WAIT = Wait(gang="team/g", reason="NoRoom", message="needs 8 nvidia.com/gpu on one node", position=1)
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


def conditions(
    progress: GangProgress,
    wait: Wait | None = None,
    known: Any = (),
    now: str = EARLY,
    resource: Resource = KUBERNETES_POD_GROUPS,
    disruption: str | None = None,
    generation: int = 0,
) -> list[dict[str, Any]] | None:
    """What is written as conditions; None where nothing is."""
    [write] = [one.status for one in DIALECTS if one.resource == resource and one.status is not None]
    status = write(
        wait=wait,
        progress=progress,
        min_member=3,
        now=now,
        known={"conditions": list(known)},
        disruption=disruption,
        generation=generation,
    )
    assert status.keys() <= {"conditions"}
    found: list[dict[str, Any]] | None = status.get("conditions")
    return found


def test_a_gang_that_waits_is_unschedulable_with_the_reason_and_the_fix() -> None:
    assert conditions(GangProgress(pods=3), WAIT) == [
        {
            "type": "PodGroupInitiallyScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "needs 8 nvidia.com/gpu on one node",
            "lastTransitionTime": EARLY,
        }
    ]


def test_the_time_is_that_of_the_last_change_of_the_status() -> None:
    waited = conditions(GangProgress(pods=3), WAIT)
    assert waited is not None
    other = msgspec.structs.replace(WAIT, message="needs 4")

    [condition] = conditions(GangProgress(pods=3), other, waited, now=LATE) or [{}]
    assert (condition["message"], condition["lastTransitionTime"]) == ("needs 4", EARLY)

    [condition] = conditions(GangProgress(pods=3, bound=3), None, waited, now=LATE) or [{}]
    assert (condition["status"], condition["reason"]) == ("True", "Scheduled")
    assert condition["lastTransitionTime"] == LATE


def test_once_true_it_stays_and_what_others_said_does_too() -> None:
    placed = conditions(GangProgress(pods=3, bound=3), None, [DISRUPTED])
    assert placed is not None
    assert [one["type"] for one in placed] == ["DisruptionTarget", "PodGroupInitiallyScheduled"]

    assert conditions(GangProgress(pods=3), WAIT, placed) is None


@pytest.mark.parametrize("reason", ["Refused", "BackOff"])
def test_what_has_nothing_to_do_with_room_is_a_scheduler_error(reason: str) -> None:
    wait = msgspec.structs.replace(WAIT, reason=reason)

    [condition] = conditions(GangProgress(pods=3), wait) or [{}]

    assert (condition["status"], condition["reason"]) == ("False", "SchedulerError")


def test_a_gang_that_gives_way_is_a_disruption_target_until_it_is_placed_again() -> None:
    running = GangProgress(pods=3, running=3)
    placed = conditions(running) or []

    found = conditions(running, None, placed, disruption="gave way to team/x") or []
    assert [one["type"] for one in found] == ["PodGroupInitiallyScheduled", "DisruptionTarget"]
    assert (found[1]["status"], found[1]["reason"], found[1]["message"]) == (
        "True",
        "PreemptionByScheduler",
        "gave way to team/x",
    )

    assert conditions(running, None, found, disruption="") == placed
    assert conditions(running, None, found) is None


def test_the_generation_that_was_looked_at_is_noted() -> None:
    [condition] = conditions(GangProgress(pods=3), WAIT, generation=4) or [{}]

    assert condition["observedGeneration"] == 4


@pytest.mark.parametrize("progress", [GangProgress(pods=2), GangProgress(pods=3, bound=2)])
def test_nothing_is_said_of_a_gang_of_which_nothing_is_known(progress: GangProgress) -> None:
    assert conditions(progress) is None


def test_in_v1alpha2_the_condition_has_its_older_name() -> None:
    [found] = conditions(GangProgress(pods=3), WAIT, resource=KUBERNETES_POD_GROUPS_V1ALPHA2) or [{}]
    assert found["type"] == "PodGroupScheduled"


def read(**spec: Any) -> Any:
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}} | spec
    wire = {"metadata": {"name": "g", "namespace": "team"}, "spec": spec}
    classes = {"high": PriorityClass(value=100)}
    return read_group(msgspec.convert(wire, PodGroup), classes)


def test_min_count_is_what_starts_together_and_basic_means_nothing_must() -> None:
    assert read(schedulingPolicy={"gang": {"minCount": 3}}).min_member == 3
    assert read(schedulingPolicy={"basic": {}}).min_member == 0


def test_the_priority_is_what_admission_filled_in_else_that_of_the_class() -> None:
    assert read(priority=7, priorityClassName="high").priority == 7
    assert read(priorityClassName="high").priority == 100


def test_the_topology_constraint_is_the_level_that_must_hold_the_gang() -> None:
    assert read(schedulingConstraints={"topology": [{"key": "rack"}]}).required_level == "rack"


def test_a_pod_names_its_group_in_its_spec() -> None:
    wire = {
        "metadata": {"name": "p", "namespace": "team", "labels": {"scheduling.x-k8s.io/pod-group": "x"}},
        "spec": {"schedulingGroup": {"podGroupName": "g"}},
    }
    assert gang_of(msgspec.convert(wire, Pod)) == "team/g"
