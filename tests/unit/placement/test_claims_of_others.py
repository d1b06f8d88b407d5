"""Claims of devices of other drivers: what pods and gangs get of them, and why they wait."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from claim_scenes import CASES, CLASSES, FOUR, SAME_NUMA, Case, claim, pool, request
from gang_scenes import group

from gangline.placement import Binding, Decisions, NodeView, PodView, Policy, Snapshot, schedule
from gangline.placement.claims.device_claims import DeviceClaims
from gangline.placement.claims.results import held_devices

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Obj = dict[str, Any]


class Cluster:
    """Nodes that publish devices, and claims that are made and allocated as a scheduler does it."""

    def __init__(self, *slices: Obj, nodes: tuple[str, ...] = ("n0",)) -> None:
        self.devices = DeviceClaims()
        classes = [{"metadata": {"name": name}, "spec": spec} for name, spec in CLASSES.items()]
        self.devices.take((), classes, ())
        self.nodes = [
            NodeView(name=name, labels={"rack": "r1"}, allocatable={"cpu": 64000}) for name in nodes
        ]
        self.held: list[PodView] = []
        for number, spec in enumerate(slices):
            self.publish(number, spec)

    def publish(self, number: int, spec: Obj, node: str = "n0") -> None:
        spec = json.loads(json.dumps(spec).replace('"NODE"', json.dumps(node)).replace("POOL", node))
        self.devices.take_slice({"metadata": {"name": f"slice-{node}-{number}"}, "spec": spec})

    def add_claim(self, name: str, devices: Obj) -> None:
        made = {"metadata": {"namespace": "team", "name": name}, "spec": {"devices": devices}}
        self.devices.take_claim(f"team/{name}", made)

    def pod(self, name: str, *claims: str, **more: Any) -> PodView:
        found = PodView(
            key=f"team/{name}",
            uid=name,
            shape=b"same",
            request={"cpu": 1000},
            device_claims=tuple((one, one) for one in claims),
            **more,
        )
        self.devices.note(found)
        return found

    def decide(self, *pods: PodView, **more: Any) -> Decisions:
        nodes = tuple(map(self.devices.on_node, self.nodes))
        snapshot = Snapshot(nodes=nodes, pods=tuple(self.held), claimed=frozenset(self.devices.held))
        return schedule(snapshot, map(self.devices.applied, pods), now=NOW, policy=Policy(), **more)

    def carry_out(self, decisions: Decisions, *pods: PodView) -> None:
        """Write the claims as decided, and bind the pods."""
        users: dict[str, list[Binding]] = {}
        for binding in decisions.bindings:
            (pod,) = (one for one in pods if one.uid == binding.uid)
            for key in pod.named_claims:
                users.setdefault(key, []).append(binding)
        for key, bindings in users.items():
            status = self.devices.allocated(key, bindings)
            self.devices.take_claim(key, {**self.devices.claims[key], "status": status})
        for binding in decisions.bindings:
            (pod,) = (one for one in pods if one.uid == binding.uid)
            bound = msgspec.structs.replace(pod, node_name=binding.node)
            self.held.append(self.devices.applied(bound))

    def got(self, name: str) -> list[str]:
        return [device.name for device in held_devices(self.devices.claims[f"team/{name}"])]


def allocated(case: Case) -> list[list[list[str]] | None]:
    """Return what the pods of a case get, one after another."""
    cluster, found = Cluster(*case.slices), []
    for number, claims in enumerate(case.pods):
        names = [f"pod-{number}-{index}" for index in range(len(claims))]
        for name, devices in zip(names, claims, strict=True):
            cluster.add_claim(name, devices)
        pod = cluster.pod(f"pod-{number}", *names)
        decisions = cluster.decide(pod)
        cluster.carry_out(decisions, pod)
        statuses = [cluster.devices.claims[f"team/{name}"].get("status") or {} for name in names]
        given = [one["allocation"]["devices"]["results"] for one in statuses if "allocation" in one]
        found.append([[one["device"] for one in some] for some in given] if decisions.bindings else None)
    return found


@pytest.mark.parametrize("name", CASES)
def test_claims_get_what_the_rules_of_kubernetes_say(name: str) -> None:
    assert allocated(CASES[name]) == CASES[name].gets


def gang_of(cluster: Cluster, size: int, devices: Obj) -> list[PodView]:
    for index in range(size):
        cluster.add_claim(f"c{index}", devices)
    return [cluster.pod(f"p{index}", f"c{index}", gang="team/g") for index in range(size)]


def test_the_claims_of_a_gang_are_allocated_all_or_none() -> None:
    cluster = Cluster(nodes=("n0", "n1"))
    for node in ("n0", "n1"):
        cluster.publish(0, FOUR, node)
    five = gang_of(cluster, 5, claim(request(count=2)))
    decisions = cluster.decide(*five, groups={"team/g": group("g", 5)})
    assert decisions.bindings == ()
    assert decisions.waits[0].message == (
        "needs room for 5 pods with the devices of their claims at once; there is room for 4"
    )

    decisions = cluster.decide(*five[:4], groups={"team/g": group("g", 4)})
    cluster.carry_out(decisions, *five[:4])
    assert sorted(binding.node for binding in decisions.bindings) == ["n0", "n0", "n1", "n1"]
    assert sorted(name for index in range(4) for name in cluster.got(f"c{index}")) == sorted(
        [f"d{index}" for index in range(4)] * 2
    )


def test_nodes_that_count_on_the_same_devices_do_not_give_them_twice() -> None:
    cluster = Cluster(nodes=("n0", "n1"))
    cluster.publish(0, pool("d0", "d1", allNodes=True, name="net"))
    two, three = gang_of(cluster, 2, claim(request())), gang_of(cluster, 3, claim(request()))

    assert cluster.decide(*three, groups={"team/g": group("g", 3)}).bindings == ()
    decisions = cluster.decide(*two, groups={"team/g": group("g", 2)})
    cluster.carry_out(decisions, *two)

    assert sorted([*cluster.got("c0"), *cluster.got("c1")]) == ["d0", "d1"]


def test_a_gang_takes_shared_devices_only_where_a_node_has_none_of_its_own() -> None:
    """One device is for all nodes, one for n1 alone: two pods fit, though each node counts on the first."""
    cluster = Cluster(nodes=("n0", "n1"))
    cluster.publish(0, pool("d0", allNodes=True, name="a"))
    cluster.publish(1, pool("d1", name="b"), "n1")
    pods = gang_of(cluster, 2, claim(request()))

    decisions = cluster.decide(*pods, groups={"team/g": group("g", 2)})

    cluster.carry_out(decisions, *pods)
    assert sorted([*cluster.got("c0"), *cluster.got("c1")]) == ["d0", "d1"]


def test_pods_of_a_gang_that_share_a_claim_go_where_its_devices_are() -> None:
    cluster = Cluster(nodes=("n0", "n1"))
    cluster.publish(0, pool("d0"), "n1")
    cluster.add_claim("shared", claim(request()))
    pods = [cluster.pod(f"p{index}", "shared", gang="team/g") for index in range(3)]

    decisions = cluster.decide(*pods, groups={"team/g": group("g", 3)})

    assert {binding.node for binding in decisions.bindings} == {"n1"}
    cluster.carry_out(decisions, *pods)
    assert cluster.got("shared") == ["d0"]
    reserved = cluster.devices.claims["team/shared"]["status"]["reservedFor"]
    assert sorted(one["uid"] for one in reserved) == ["p0", "p1", "p2"]


def test_a_shared_claim_and_own_ones_are_served_together() -> None:
    cluster = Cluster(nodes=("n0", "n1"))
    cluster.publish(0, pool("d0", "d1"), "n0")
    cluster.publish(0, FOUR, "n1")
    cluster.add_claim("shared", claim(request()))
    for index in range(3):
        cluster.add_claim(f"own-{index}", claim(request()))
    pods = [cluster.pod(f"p{index}", "shared", f"own-{index}", gang="team/g") for index in range(3)]

    decisions = cluster.decide(*pods, groups={"team/g": group("g", 3)})

    assert {binding.node for binding in decisions.bindings} == {
        "n1"
    }  # n0 has two for the four that they need
    cluster.carry_out(decisions, *pods)
    names = ("shared", "own-0", "own-1", "own-2")
    assert sorted(device for name in names for device in cluster.got(name)) == ["d0", "d1", "d2", "d3"]


def test_a_claim_of_two_pods_of_no_gang_is_given_once() -> None:
    cluster = Cluster(FOUR)
    cluster.add_claim("shared", claim(request()))
    pods = [cluster.pod("one", "shared"), cluster.pod("two", "shared")]

    first = cluster.decide(*pods)

    assert [binding.pod for binding in first.bindings] == ["team/one"]
    cluster.carry_out(first, *pods)
    second = cluster.decide(pods[1])
    assert [(binding.pod, binding.allocations) for binding in second.bindings] == [("team/two", ())]
    cluster.carry_out(second, *pods)
    assert cluster.got("shared") == ["d0"]


def test_devices_of_a_pod_that_gives_way_go_to_who_takes_its_place() -> None:
    cluster = Cluster(FOUR)
    cluster.add_claim("old", claim(request(count=4)))
    cluster.add_claim("new", claim(request(count=3)))
    weak, strong = cluster.pod("weak", "old"), cluster.pod("strong", "new", priority=10)
    cluster.carry_out(cluster.decide(weak), weak)

    decisions = cluster.decide(strong)

    assert [eviction.gang for eviction in decisions.evictions] == ["team/weak"]


@pytest.mark.parametrize(
    ("slices", "asked", "why"),
    [
        ([FOUR], claim(request(count=5)), "too few devices of class gpu for request r"),
        ([], claim(request()), "no device of class gpu for request r"),
        (
            [FOUR],
            claim(request(count=3), **SAME_NUMA),
            "devices for each request of the claims, but not for all",
        ),
        (
            [pool({"name": "d0", "consumesCounters": [{"counterSet": "s", "counters": {}}]})],
            claim(request()),
            "apart from those with consumesCounters, which are not served here",
        ),
        (
            [pool({"name": "d0", "allowMultipleAllocations": True})],
            claim(request()),
            "apart from those with allowMultipleAllocations, which are not served here",
        ),
        ([pool("d0 !bad")], claim(request()), "others have taints that it does not tolerate"),
        (
            [pool("d0", count=2)],
            claim(request(allocationMode="All")),
            "resource pool gpu.example.com/n0-p, all of which is asked for, is being updated",
        ),
    ],
)
def test_why_a_pod_waits_for_devices_is_said(slices: list[Obj], asked: Obj, why: str) -> None:
    cluster = Cluster(*slices)
    cluster.add_claim("c", asked)
    (told,) = cluster.decide(cluster.pod("p", "c")).unschedulable
    assert why in told.message


def test_a_claim_that_is_being_allocated_or_deleted_is_waited_for() -> None:
    cluster = Cluster(FOUR)
    cluster.add_claim("c", claim(request()))
    cluster.devices.pending.add("team/c")
    (told,) = cluster.decide(cluster.pod("p", "c")).unschedulable
    assert "claim team/c, which is being allocated" in told.message
    cluster.devices.pending.clear()
    cluster.devices.claims["team/c"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    (told,) = cluster.decide(cluster.pod("p", "c")).unschedulable
    assert "claim team/c is being deleted" in told.message


def test_a_claim_has_no_more_users_than_kubernetes_lets_it() -> None:
    cluster = Cluster(FOUR)
    cluster.add_claim("c", claim(request()))
    users = [Binding(f"team/p{index}", f"p{index}", "n0") for index in range(256)]
    first = cluster.decide(cluster.pod("p0", "c")).bindings
    status = cluster.devices.allocated("team/c", [*first, *users[1:]])
    cluster.devices.take_claim("team/c", {**cluster.devices.claims["team/c"], "status": status})
    (told,) = cluster.decide(cluster.pod("late", "c")).unschedulable
    assert "claim team/c is used by 256 pods" in told.message
    assert cluster.decide(cluster.pod("p7", "c")).bindings
