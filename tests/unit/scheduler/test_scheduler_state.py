"""What the scheduler remembers between passes."""

from typing import Any

import msgspec

from gangline.api.core import Node, Pod
from gangline.placement.claims.volumes import Claim
from gangline.placement.decisions import Binding
from gangline.placement.gangs import Group
from gangline.scheduler.state import SchedulerState

NAMES = ("gangline-scheduler",)


def pod(name: str, *, node: str = "", phase: str = "Pending", scheduler: str = NAMES[0], **spec: Any) -> Pod:
    metadata: dict[str, Any] = {"name": name, "namespace": "team", "uid": name}
    if spec.pop("deleted", False):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec = {"nodeName": node, "schedulerName": scheduler, **spec}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, Pod)


def node(name: str = "a", cpu: str = "4", **labels: str) -> Node:
    return msgspec.convert(
        {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"cpu": cpu}}}, Node
    )


def allocations(state: SchedulerState) -> list[tuple[str, str]]:
    return [(view.uid, view.node_name) for view in state.snapshot().pods]


def waiting(state: SchedulerState) -> list[str]:
    return [view.uid for view in state.waiting()]


def test_a_new_pod_of_ours_makes_a_pass_due():
    state = SchedulerState(NAMES)

    assert state.take_pod(None, pod("one"))
    assert not state.take_pod(None, pod("theirs", scheduler="volcano"))
    assert not state.take_pod(None, pod("gated", schedulingGates=[{"name": "hold"}]))
    assert waiting(state) == ["one", "gated"]


def test_a_change_of_its_status_makes_no_pass_due():
    state = SchedulerState(NAMES)
    first, second = pod("one"), pod("one", phase="Unknown")
    state.take_pod(None, first)

    assert not state.take_pod(first, second)


def test_an_assumed_pod_holds_its_room_until_it_is_seen_bound():
    state = SchedulerState(NAMES)
    state.take_pod(None, pod("one"))

    state.assume(Binding("team/one", "one", "a"))
    assert (waiting(state), allocations(state)) == ([], [("one", "a")])
    assert not state.take_pod(pod("one"), pod("one", phase="Unknown"))
    assert waiting(state) == []

    state.take_pod(pod("one"), pod("one", node="a"))
    assert allocations(state) == [("one", "a")]


def test_a_binding_that_failed_gives_its_room_back_and_waits_for_its_turn():
    state = SchedulerState(NAMES)
    binding = Binding("team/one", "one", "a")
    state.take_pod(None, pod("one"))
    state.assume(binding)

    state.pause("team/one")
    state.revoke(binding)
    assert (waiting(state), allocations(state)) == ([], [])

    state.resume("team/one")
    assert waiting(state) == ["one"]


def test_a_binding_that_failed_because_the_pod_is_gone_is_forgotten():
    state = SchedulerState(NAMES)
    binding = Binding("team/one", "one", "a")
    state.take_pod(None, pod("one"))
    state.assume(binding)
    state.take_pod(pod("one"), None)

    state.revoke(binding)

    assert (waiting(state), allocations(state)) == ([], [])


def test_room_that_becomes_free_makes_a_pass_due_only_when_a_pod_waits():
    state = SchedulerState(NAMES)
    state.take_pod(None, pod("one", node="a"))
    state.take_pod(None, pod("two", node="a"))
    assert not state.take_pod(pod("one", node="a"), pod("one", node="a", phase="Succeeded"))

    state.take_pod(None, pod("waiter"))
    assert state.take_pod(pod("two", node="a"), None)
    assert allocations(state) == []


def test_a_pod_that_waits_no_longer_makes_a_pass_due_for_those_behind_it():
    gone, over, taken = None, pod("ahead", phase="Failed"), pod("ahead", node="a")
    for news in (gone, over, taken, pod("ahead", deleted=True), pod("ahead", scheduler="theirs")):
        state = SchedulerState(NAMES)
        state.take_pod(None, ahead := pod("ahead"))

        assert not SchedulerState(NAMES).take_pod(ahead, news), "nobody waited"
        state.take_pod(None, pod("behind"))
        assert state.take_pod(ahead, news)
        assert not state.take_pod(ahead, news), "it is known already"


def test_a_pod_that_has_ended_holds_nothing_whatever_becomes_of_its_job():
    state = SchedulerState(NAMES)
    running = pod("w", node="a", phase="Running")
    state.take_pod(None, running)

    state.take_pod(running, pod("w", node="a", phase="Succeeded"))
    state.take_pod(None, pod("v", node="a", phase="Failed"))

    assert allocations(state) == []


def test_idle_workers_of_a_job_whose_launcher_has_succeeded_hold_their_room_and_are_known():
    state = SchedulerState(NAMES)

    def of_job(name: str, role: str, phase: str) -> Pod:
        labels = {"training.kubeflow.org/job-name": "j", "training.kubeflow.org/job-role": role}
        found = pod(name, node="a", phase=phase)
        return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, labels=labels))

    launcher = of_job("l", "launcher", "Running")
    state.take_pod(None, of_job("w", "worker", "Running"))
    state.take_pod(None, launcher)
    assert state.allocations.over == set()

    state.take_pod(launcher, of_job("l", "launcher", "Succeeded"))
    assert state.allocations.over == {"team/j"}
    assert allocations(state) == [("w", "a")]

    state.take_pod(of_job("l", "launcher", "Succeeded"), None)
    assert state.allocations.over == set()


def test_a_claim_that_is_bound_lets_its_pod_in():
    state = SchedulerState(NAMES)
    state.storage.is_known = True
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    state.take_pod(None, pod("one", volumes=volumes))
    assert "waits for claim team/data" in state.waiting()[0].refusal

    state.storage.claims["team/data"] = Claim(volume="pv")
    state.storage.volumes["pv"] = None

    assert state.take_storage()
    assert state.waiting()[0].refusal == ""
    assert not state.take_storage()


def test_a_terminating_pod_holds_its_room():
    state = SchedulerState(NAMES)
    state.take_pod(None, pod("one", node="a", deleted=True))

    assert allocations(state) == [("one", "a")]


def test_nodes_make_a_pass_due_when_they_change_not_when_they_beat():
    state = SchedulerState(NAMES)
    assert not state.take_node(None, node())

    state.take_pod(None, pod("waiter"))
    assert not state.take_node(node(), node())
    assert state.take_node(node(), node(cpu="8"))
    assert state.take_node(None, node("b"))
    assert [view.name for view in state.snapshot().nodes] == ["a", "b"]


def test_many_new_nodes_at_once_give_the_arrays_of_one_after_another():
    at_once, in_turn = SchedulerState(NAMES, ("rack",)), SchedulerState(NAMES, ("rack",))
    for index in range(100):
        for state in (at_once, in_turn):
            state.take_node(None, node(f"n{index:03}", rack=f"r{index // 10}"))
            if index % 3 == 0:
                state.take_pod(None, pod(f"p{index}", node=f"n{index:03}"))
        in_turn.table()

    one, other = at_once.table(), in_turn.table()
    assert one.names == other.names
    assert one.room.free.tolist() == other.room.free.tolist()
    assert one.domains.tolist() == other.domains.tolist()


def test_what_a_pod_group_says_counts_for_the_pods_that_run():
    state = SchedulerState(NAMES)
    group = Group(key="team/g", min_member=1, queue="research", priority=7, limit_s=60.0)
    state.take_group("team/g", group)
    member = pod("one", node="a")
    member = msgspec.structs.replace(
        member,
        metadata=msgspec.structs.replace(member.metadata, labels={"scheduling.x-k8s.io/pod-group": "g"}),
    )
    state.take_pod(None, member)

    held = state.allocations.get("one")
    assert held is not None
    assert state.allocations.queue_of(held) == "research"
    assert state.allocations.used_by("research")["pods"] == 1
    assert state.allocations.has_weaker(8)
    assert not state.allocations.has_weaker(7)
    assert state.allocations.limit_of(held) == 60.0

    state.take_group("team/g", msgspec.structs.replace(group, queue="other"))
    assert state.allocations.used_by("research")["pods"] == 0
    assert state.allocations.used_by("other")["pods"] == 1


def test_what_a_workload_says_counts_for_the_replicas_that_run():
    state = SchedulerState(NAMES)
    refs = {"x": "team/w/workers/0", "y": "team/w/workers/1", "z": "team/w/workers2/0"}
    for name, gang in refs.items():
        _, workload, group, replica = gang.split("/")
        ref = {"name": workload, "podGroup": group, "podGroupReplicaKey": replica}
        state.take_pod(None, pod(name, node="a", workloadRef=ref))

    state.take_group("team/w/workers", Group(key="team/w/workers", queue="research"))

    assert {queue: state.allocations.used_by(queue)["pods"] for queue in ("research", "default")} == {
        "research": 2,
        "default": 1,
    }


def test_terms_follow_the_labels_of_namespaces_for_pods_that_wait_and_that_run():
    rule = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {},
        "namespaceSelector": {"matchLabels": {"stage": "test"}},
    }
    required = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    state = SchedulerState(NAMES)
    state.take_pod(None, pod("one", affinity=required))
    state.take_pod(None, pod("two", node="a", affinity=required))
    assert "labels of namespaces" in state.waiting()[0].refusal

    def named() -> list[tuple[str, ...]]:
        held = state.allocations.get("two")
        found = [view.relations for view in (*state.waiting(), held) if view is not None]
        return [relations.apart[0].namespaces for relations in found if relations is not None]

    state.namespaces.take([{"metadata": {"name": "other", "labels": {"stage": "test"}}}])
    assert state.take_namespaces()
    assert (state.waiting()[0].refusal, named()) == ("", [("other",), ("other",)])
    assert not state.take_namespaces()

    state.namespaces.take([{"metadata": {"name": "other"}}])
    assert state.take_namespaces()
    assert named() == [(), ()]

    state.take_pod(pod("two", node="a"), None)
    state.take_pod(pod("one"), None)
    assert not state.take_namespaces()
