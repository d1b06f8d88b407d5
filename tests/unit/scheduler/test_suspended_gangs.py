"""Which gangs are suspended and go on: the writes to their jobs, and the room that is held meanwhile."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gangline.api.core import Node, Pod
from gangline.api.resources import JOBS, MPIJOBS
from gangline.placement import Decisions, Group, Policy, SchedulingCycle
from gangline.scheduler.state import SchedulerState
from gangline.scheduler.suspended_gangs import JobWrite, SuspendedGangs
from gangline.workloads.suspension import (
    FIELD_MANAGER,
    SERVICE_ANNOTATION,
    SUSPENDED_ANNOTATION,
    SuspendableJob,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAMES = ("gangline-scheduler",)
POLICY = Policy(whole_for_s=0.0)
GROUP = "scheduling.x-k8s.io/pod-group"


def job(name: str, *, by: str = "", why: str = "", **annotations: str) -> SuspendableJob:
    """A job, suspended if `by` says who wrote that."""
    notes = {f"gangline.dev/{key}": value for key, value in annotations.items()}
    managed = [{"manager": by, "fieldsV1": {"f:spec": {"f:runPolicy": {"f:suspend": {}}}}}] if by else []
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "team",
        "uid": f"job-{name}",
        "annotations": notes | ({SUSPENDED_ANNOTATION: why} if why else {}),
        "managedFields": managed,
    }
    value = {"metadata": metadata, "spec": {"runPolicy": {"suspend": bool(by)}}}
    return msgspec.json.decode(msgspec.json.encode(value), type=SuspendableJob)


def pod(gang: str, rank: int, *, node: str = "", owner: str = "", made: int = 0, **meta: Any) -> Pod:
    value = {
        "metadata": {
            "name": f"{gang}-{rank}",
            "namespace": "team",
            "uid": f"{gang}-{rank}-{made}",
            "labels": {GROUP: gang},
            "creationTimestamp": "2026-01-01T07:00:00Z",
            "ownerReferences": [{"uid": owner or f"job-{gang}", "controller": True}],
            **meta,
        },
        "spec": {
            "nodeName": node,
            "schedulerName": NAMES[0],
            "containers": [{"name": "x", "resources": {"limits": {"nvidia.com/gpu": "4"}}}],
        },
        "status": {"phase": "Running" if node else "Pending", "startTime": "2026-01-01T07:00:00Z"},
    }
    return msgspec.convert(value, Pod)


class Scene:
    """A node with eight GPUs, on which a gang runs since five hours, and another waits."""

    def __init__(self, **annotations: str) -> None:
        self.state = SchedulerState(NAMES)
        self.gangs = SuspendedGangs(self.state)
        amounts = {"cpu": "64", "pods": "100", "nvidia.com/gpu": "8"}
        node = {"metadata": {"name": "a"}, "status": {"allocatable": amounts}}
        node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]  # type: ignore[index]
        self.state.take_node(None, msgspec.convert(node, Node))
        for name in ("long", "new"):
            self.state.take_group(f"team/{name}", Group(key=f"team/{name}", min_member=2))
        self.long = [pod("long", rank, node="a") for rank in range(2)]
        self.new = [pod("new", rank) for rank in range(2)]
        for one in (pod("long", 9, owner="launcher"), *self.long, *self.new):
            self.gangs.take_pod(one)
        for one in (*self.long, *self.new):
            self.state.take_pod(None, one)
        self.gangs.take_job(MPIJOBS, job("long", **annotations), "job-long")

    def decide(self) -> tuple[Decisions, list[JobWrite]]:
        gangs = self.state.gangs()
        gangs += self.gangs.begin(gangs)
        cycle = SchedulingCycle(self.state.table(), self.state.allocations, POLICY, now=NOW)
        return self.gangs.carried_out(cycle.run(gangs), "2026-01-01T12:00:00Z")

    def see(self, found: SuspendableJob) -> list[JobWrite]:
        return self.gangs.take_job(MPIJOBS, found, found.metadata.uid)

    def end(self, pods: list[Pod]) -> None:
        for one in pods:
            self.state.take_pod(one, None)

    def suspend(self) -> None:
        """Suspend the long gang to the end: its job is seen suspended, and its pods are gone."""
        (write,) = self.decide()[1]
        why = write.patch["metadata"]["annotations"][SUSPENDED_ANNOTATION]
        assert self.see(job("long", by=FIELD_MANAGER, why=why, resumable="true")) == []
        self.end(self.long)


def test_the_job_of_a_gang_is_suspended_with_its_reason_in_one_write():
    _, (write,) = Scene(resumable="true").decide()

    assert (write.reason, write.resource, write.job.metadata.name) == ("Suspended", MPIJOBS, "long")
    assert write.patch["spec"] == {"runPolicy": {"suspend": True}}
    assert write.patch["metadata"]["uid"] == "job-long"
    annotations = write.patch["metadata"]["annotations"]
    assert annotations[SERVICE_ANNOTATION] == '{"deviceSeconds":144000,"suspensions":1}'
    assert annotations[SUSPENDED_ANNOTATION] == write.message
    assert write.message.startswith("gives way to team/new")


@pytest.mark.parametrize("annotations", [{}, {"resumable": "false"}, {"resumable": "yes"}])
def test_a_job_that_does_not_say_true_is_left_alone(annotations):
    assert Scene(**annotations).decide()[1] == []


def test_a_training_that_has_told_of_a_checkpoint_can_go_on_unless_the_job_says_not():
    for annotations, count in (({}, 1), ({"resumable": "false"}, 0)):
        scene = Scene(**annotations)
        scene.gangs.take_pod(
            pod("long", 0, node="a", annotations={"gangline.dev/checkpoint-time": "2026-01-01T11:00:00Z"})
        )
        assert len(scene.decide()[1]) == count


@pytest.mark.parametrize(
    "more",
    [
        {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}},
        {"metadata": {"ownerReferences": [{"uid": "jobset", "controller": True}]}},
        {"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}},
    ],
)
def test_a_job_that_somebody_else_starts_and_stops_is_left_alone(more):
    metadata = {
        "name": "long",
        "namespace": "team",
        "uid": "job-long",
        "annotations": {"gangline.dev/resumable": "true"},
    }
    value = {"metadata": metadata | more.get("metadata", {}), "spec": more.get("spec", {})}
    scene = Scene(resumable="true")

    scene.see(msgspec.json.decode(msgspec.json.encode(value), type=SuspendableJob))

    assert scene.decide()[1] == []


def test_nothing_more_is_decided_while_the_pods_go():
    scene = Scene(resumable="true")
    scene.decide()

    assert scene.decide()[1] == []


def test_the_beneficiary_gets_the_room_and_the_suspended_one_goes_on_when_there_is_some():
    scene = Scene(resumable="true")
    scene.suspend()

    decisions, writes = scene.decide()
    assert {one.uid for one in decisions.bindings} == {"new-0-0", "new-1-0"}
    assert writes == []

    for one in decisions.bindings:
        scene.state.assume(one)
    scene.end(scene.new)
    decisions, (write,) = scene.decide()
    assert decisions.bindings == ()
    assert (write.reason, write.patch["spec"]) == ("Resumed", {"runPolicy": {"suspend": False}})
    assert write.patch["metadata"]["annotations"] == {SUSPENDED_ANNOTATION: None}


def test_room_is_held_for_a_job_that_goes_on_until_its_pods_are_all_there():
    scene = Scene(resumable="true")
    scene.suspend()
    scene.end(scene.new)
    scene.decide()
    assert scene.decide()[1] == []
    scene.see(job("long", resumable="true"))

    scene.state.take_group("team/other", Group(key="team/other", min_member=1))
    scene.state.take_pod(None, pod("other", 0))
    assert scene.decide()[0].bindings == ()
    scene.state.take_pod(None, pod("long", 0, made=1))
    assert scene.decide()[0].bindings == ()
    scene.state.take_pod(pod("other", 0), None)
    scene.state.take_pod(None, pod("long", 1, made=1))
    assert {one.uid for one in scene.decide()[0].bindings} == {"long-0-1", "long-1-1"}


def test_held_room_is_given_back_when_the_pods_do_not_come():
    scene = Scene(resumable="true")
    scene.suspend()
    scene.end(scene.new)
    scene.decide()
    scene.see(job("long", resumable="true"))

    scene.gangs.release("team/long")
    scene.state.take_pod(None, pod("new", 0, made=1))
    scene.state.take_pod(None, pod("new", 1, made=1))

    assert len(scene.decide()[0].bindings) == 2


def test_what_could_not_be_written_is_tried_again():
    scene = Scene(resumable="true")
    (first,) = scene.decide()[1]
    scene.gangs.fail("job-long")
    (second,) = scene.decide()[1]
    assert first.patch == second.patch

    scene = Scene(resumable="true")
    scene.suspend()
    scene.end(scene.new)
    (first,) = scene.decide()[1]
    scene.gangs.fail("job-long")
    (second,) = scene.decide()[1]
    assert first.patch == second.patch


def test_a_job_that_another_scheduler_has_suspended_goes_on_at_once():
    scene = Scene()

    (write,) = scene.see(job("left", by=FIELD_MANAGER, why="gives way to team/x"))

    assert (write.reason, write.patch["spec"]) == ("Resumed", {"runPolicy": {"suspend": False}})
    assert [one.patch for one in scene.gangs.look_again("job-left")] == [write.patch]


@pytest.mark.parametrize(("by", "why"), [("kubectl-patch", "gives way to team/x"), (FIELD_MANAGER, "")])
def test_a_job_that_somebody_else_has_suspended_stays_so(by, why):
    assert Scene().see(job("left", by=by, why=why)) == []


def test_a_job_that_a_user_suspends_while_it_is_suspended_is_the_users_from_then_on():
    scene = Scene(resumable="true")
    scene.suspend()
    scene.see(job("long", by="kubectl-patch", why="gives way to team/new", resumable="true"))
    scene.end(scene.new)

    assert scene.decide()[1] == []


def test_a_user_who_resumes_a_job_has_the_reason_taken_away():
    (write,) = Scene().see(job("left", why="gives way to team/x"))

    assert (write.reason, "spec" in write.patch) == ("", False)
    assert write.patch["metadata"]["annotations"] == {SUSPENDED_ANNOTATION: None}


def test_a_job_that_is_gone_is_forgotten():
    scene = Scene(resumable="true")
    scene.suspend()
    scene.gangs.take_job(JOBS, None, "job-long")
    scene.end(scene.new)

    assert scene.decide()[1] == []
