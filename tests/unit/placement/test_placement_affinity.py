"""Affinity, anti-affinity and spread: Kubernetes' rules, held for whole gangs, and explained."""

from typing import Any

import msgspec
import pytest
from gang_scenes import NOW, decide, dgx, group, reasons

from gangline.api.core import Pod
from gangline.placement.affinity.affinity_index import TERMS_MAX, AffinityIndex
from gangline.placement.affinity.namespaces import Namespaces
from gangline.placement.affinity.terms import Term
from gangline.placement.cycle import schedule
from gangline.placement.decisions import Decisions
from gangline.placement.gangs import Group
from gangline.placement.policy import Policy
from gangline.placement.snapshot import NodeView, PodView, Snapshot

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def node(name: str, **labels: str) -> NodeView:
    return dgx(name, **({HOST: name} | labels))


def term(key: str = HOST, **labels: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}}


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def apart(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def even(key: str = HOST, skew: int = 1, **labels: str) -> dict[str, Any]:
    rule = {**term(key, **labels), "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [rule]}


def pod(name: str, gpus: int = 0, *, gang: str = "", labels: Any = None, **spec: Any) -> PodView:
    names = {"scheduling.x-k8s.io/pod-group": gang} if gang else {}
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    value = {
        "metadata": {"name": name, "namespace": "team", "uid": name, "labels": names | (labels or {})},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}], **spec},
    }
    return PodView.from_pod(msgspec.convert(value, Pod))


def running(name: str, where: str, **labels: str) -> PodView:
    return msgspec.structs.replace(pod(name, labels=labels), node_name=where)


def workers(count: int, gpus: int = 1, **more: Any) -> list[PodView]:
    return [pod(f"g-{rank}", gpus, gang="g", labels={"job": "g"}, **more) for rank in range(count)]


def where(decisions: Decisions) -> dict[str, str]:
    return {binding.pod.removeprefix("team/"): binding.node for binding in decisions.bindings}


def why(decisions: Decisions) -> str:
    assert not decisions.bindings
    return decisions.waits[0].message


def test_a_gang_that_keeps_apart_by_host_gets_one_node_for_each_worker():
    found = decide([node(name) for name in "abcd"], workers(3, 2, **apart(term(job="g"))), group("g", 3))

    assert sorted(where(found).values()) == ["a", "b", "c"]
    assert [where(found)[f"g-{rank}"] for rank in range(3)] == ["a", "b", "c"]  # ranks by name


def test_a_gang_of_one_pod_a_node_that_no_rack_holds_goes_over_racks():
    nodes = [node(f"n{rank:02}", rack=f"r{rank // 2:02}") for rank in range(60)]

    found = decide(
        nodes, workers(40, 1, **apart(term(job="g"))), group("g", 40), policy=Policy(levels=("rack",))
    )

    assert len(set(where(found).values())) == 40


def test_where_one_rack_holds_it_one_pod_a_node_stays_there():
    nodes = [node(f"n{rank:02}", rack=f"r{rank // 4}") for rank in range(12)]

    found = decide(
        nodes, workers(4, 1, **apart(term(job="g"))), group("g", 4), policy=Policy(levels=("rack",))
    )

    assert len({name[:3] for name in where(found).values()}) == 4
    assert len({int(name[1:]) // 4 for name in where(found).values()}) == 1


def test_a_launcher_without_the_rule_may_be_elsewhere_where_the_workers_share_a_rack():
    small = msgspec.structs.replace(
        node("c", rack="2"), gpus=None, allocatable={"cpu": 8_000, "pods": 9, "memory": 1 << 34}
    )
    full = msgspec.structs.replace(node("a", rack="1"), allocatable={"pods": 2, "nvidia.com/gpu": 8})
    gang = [*workers(2, 4, **near(term("rack", job="g"))), pod("g-launcher", gang="g")]

    found = decide([full, small], gang, group("g", 3))

    assert where(found) == {"g-0": "a", "g-1": "a", "g-launcher": "c"}


@pytest.mark.parametrize("size", [2, 4])
def test_pods_without_gpus_that_must_share_a_host_leave_the_others_of_their_gang_to_any_host(size: int):
    first = [msgspec.structs.replace(node(name), allocatable={"cpu": 8_000, "pods": size}) for name in "cb"]
    other = msgspec.structs.replace(node("a"), allocatable={"cpu": 8_000, "pods": 2})
    servers = [pod(f"ps-{index}", gang="g") for index in range(3)]
    gang = [*workers(size, 0, **near(term(job="g"))), *servers]

    found = decide([other, *first], gang, group("g", len(gang)))

    assert len(where(found)) == len(gang)
    assert len({node for name, node in where(found).items() if name.startswith("g-")}) == 1


def test_it_waits_whole_where_there_are_too_few_nodes_and_says_how_many():
    found = decide([node("a"), node("b")], workers(3, 1, **apart(term(job="g"))), group("g", 3))

    assert why(found) == (
        f"needs room in 3 different {HOST}, one for each pod with job=g (anti-affinity); there is room in 2"
    )


def test_workers_that_must_share_a_rack_share_the_one_with_room_for_all():
    nodes = [node("a", rack="1"), node("b", rack="2"), node("c", rack="2")]
    gang = workers(3, 4, **near(term("rack", job="g")))

    found = decide(nodes, gang, group("g", 3))

    assert set(where(found).values()) == {"b", "c"}


def test_workers_that_must_share_a_rack_wait_where_none_is_large_enough():
    nodes = [node("a", rack="1"), node("b", rack="2")]

    found = decide(nodes, workers(3, 4, **near(term("rack", job="g"))), group("g", 3))

    assert why(found) == "all of its pods with job=g must share one rack (affinity), and none has enough room"


def test_a_pod_goes_where_the_pods_are_that_it_asks_for():
    found = decide(
        [node("a"), node("b")], [pod("p", **near(term(app="store")))], bound=[running("s", "b", app="store")]
    )

    assert where(found) == {"p": "b"}


def test_a_pod_waits_while_no_pod_is_there_that_it_asks_for():
    found = decide([node("a")], [pod("p", **near(term(app="store")))])

    assert why(found) == f"must run in the {HOST} of pods with app=store (affinity), and no such pod runs"
    assert (
        found.unschedulable[0].message
        == "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."
    )


def test_a_pod_keeps_away_from_others_and_others_from_it():
    held = running("s", "a", app="store")
    picky = msgspec.structs.replace(pod("k", **apart(term(app="web"))), node_name="b")

    first = decide([node("a"), node("b")], [pod("p", **apart(term(app="store")))], bound=[held])
    second = decide([node("a"), node("b")], [pod("q", labels={"app": "web"})], bound=[picky])
    third = decide([node("b")], [pod("q", labels={"app": "web"})], bound=[picky])

    assert where(first) == {"p": "b"}
    assert where(second) == {"q": "a"}
    assert why(third) == f"1 running pod keeps pods with app=web out of their {HOST} (anti-affinity)"
    assert third.unschedulable[0].message == (
        "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."
    )


def test_pods_of_one_pass_see_one_another():
    pods = [pod("p", labels={"app": "x"}, **apart(term(app="x"))), pod("q", labels={"app": "x"})]

    found = decide([node("a"), node("b")], pods)

    assert len(set(where(found).values())) == 2


def test_spread_counts_what_runs_and_keeps_the_skew():
    nodes = [node("a", zone="1"), node("b", zone="1"), node("c", zone="2")]
    bound = [running("r1", "a", job="g"), running("r2", "b", job="g")]

    found = decide(nodes, workers(4, 0, **even("zone", job="g")), group("g", 4), bound=bound)

    zones = [found_node == "c" for found_node in where(found).values()]
    assert (zones.count(True), zones.count(False)) == (3, 1)


def test_spread_that_cannot_hold_is_told():
    full = msgspec.structs.replace(pod("full", 8), node_name="b", gpu_uuids=tuple(f"b-{i}" for i in range(8)))

    found = decide([node("a"), node("b")], workers(4, 1, **even(job="g")), group("g", 4), bound=[full])

    assert why(found) == (
        f"its pods with job=g must be spread over {HOST}, none with more than 1 above the fewest "
        "(topologySpreadConstraints); there is room only less evenly"
    )


def test_a_node_without_the_label_is_in_no_domain():
    found = decide([dgx("a")], workers(2, 1, **even(job="g")), group("g", 2))

    assert reasons(found) == {"g": "NoRoom"}


def test_expressions_namespaces_and_label_keys_count():
    rule = {
        "topologyKey": HOST,
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]},
    }
    bound = [running("s", "a", app="y")]
    two = [node("a"), node("b")]

    def goes(**more: Any) -> dict[str, str]:
        return where(decide(two, [pod("p", labels={"v": "2"}, **apart(rule | more))], bound=bound))

    assert goes() == {"p": "b"}
    assert goes(namespaces=["other"]) == {"p": "a"}
    assert goes(namespaceSelector={}) == {"p": "b"}
    assert goes(matchLabelKeys=["v"]) == {"p": "a"}  # s has no label v


SELECTING = term(app="x") | {"namespaceSelector": {"matchLabels": {"stage": "test"}}}


def namespaces(**labels: dict[str, str]) -> Namespaces:
    found = Namespaces()
    found.take([{"metadata": {"name": name, "labels": found}} for name, found in labels.items()])
    return found


def elsewhere(name: str, namespace: str, on: str) -> PodView:
    return msgspec.structs.replace(running(name, on, app="x"), key=f"{namespace}/{name}")


def test_a_pod_waits_while_the_labels_of_namespaces_are_not_known():
    found = decide([node("a")], [Namespaces().applied(pod("p", **apart(SELECTING)))])

    assert "the labels of namespaces, which namespaceSelector of its affinity asks for" in why(found)


@pytest.mark.parametrize(
    ("namespace", "labels", "where_to"),
    [("one", {"stage": "test"}, "b"), ("one", {"stage": "live"}, "a"), ("one", {}, "a"), ("team", {}, "a")],
)
def test_terms_are_about_the_namespaces_that_they_select(namespace: str, labels: Any, where_to: str):
    known = namespaces(**{namespace: labels})

    found = decide(
        [node("a"), node("b")],
        [known.applied(pod("p", **apart(SELECTING)))],
        bound=[elsewhere("s", namespace, "a")],
    )

    assert where(found) == {"p": where_to}


def test_namespaces_that_are_listed_count_beside_those_that_are_selected():
    known = namespaces(one={"stage": "test"}, two={})
    asks = known.applied(pod("p", **apart(SELECTING | {"namespaces": ["two"]})))
    there = [elsewhere("s", "one", "a"), elsewhere("t", "two", "b")]

    assert where(decide([node("a"), node("b"), node("c")], [asks], bound=there)) == {"p": "c"}


def test_a_namespace_is_selected_by_its_name_as_well():
    by_name = {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["two"]}]
    }
    asks = pod("p", **apart(term(app="x") | {"namespaceSelector": by_name}))
    there = [elsewhere("s", "one", "a"), elsewhere("t", "two", "b")]
    known = namespaces(one={}, two={})

    assert where(decide([node("b"), node("a")], [known.applied(asks)], bound=there)) == {"p": "a"}


def test_running_pods_keep_others_of_selected_namespaces_away():
    keeper = namespaces(team={"stage": "test"}).applied(
        msgspec.structs.replace(pod("k", **apart(SELECTING)), node_name="a")
    )

    assert where(decide([node("a"), node("b")], [pod("p", labels={"app": "x"})], bound=[keeper])) == {
        "p": "b"
    }


def test_rules_and_a_required_level_hold_together():
    nodes = [node("a", rack="1"), node("b", rack="1"), node("c", rack="2")]
    gang = workers(2, 8, **apart(term(job="g")))

    found = decide(nodes, gang, group("g", 2, required_level="rack"), policy=Policy(levels=("rack",)))

    assert set(where(found).values()) == {"a", "b"}


def test_gpus_of_a_gang_with_rules_are_still_the_fastest_together():
    found = decide([node("a")], workers(4, 1, **near(term(job="g"))), group("g", 4))

    indices = sorted(int(u.rpartition("-")[2]) for b in found.bindings for _, us in b.gpus for u in us)
    assert indices in ([0, 1, 2, 3], [4, 5, 6, 7])


def test_what_ends_frees_neighbours_too():
    from gangline.placement.explanation import explain

    held = running("s", "a", app="store")
    gang = group("g", 1)
    found = explain(
        Snapshot(nodes=(node("a"),), pods=(held,)),
        workers(1, 1, **apart(term(app="store"))),
        "team/g",
        now=NOW,
        groups={gang.key: gang},
    )

    assert found is not None
    assert found.message == (
        f"must not share a {HOST} with pods with app=store (anti-affinity), which run wherever it fits"
    )
    assert found.fix == "fits when pod team/s ends"


@pytest.mark.parametrize("sign", ["podAffinity", "podAntiAffinity"])
def test_what_is_only_preferred_never_keeps_a_pod_waiting_and_decides_among_equals(sign: str):
    spec = {"affinity": {sign: {PREFERRED: [{"weight": 10, "podAffinityTerm": term(app="x")}]}}}
    groups: dict[str, Group] = {}
    snapshot = Snapshot(
        nodes=(node("a"), node("b")), pods=(running("s", "b", app="x"), running("t", "a", app="y"))
    )

    found = schedule(snapshot, [pod("p", **spec)], now=NOW, groups=groups)

    assert where(found) == {"p": "b" if sign == "podAffinity" else "a"}


def test_pods_are_found_by_terms_with_and_without_labels_as_they_come_and_go():
    any_of = Term(HOST, ("team",), (), (("app", "In", ("x", "y")),))
    terms = [Term(HOST, ("team",), (("app", "x"),)), any_of, Term(HOST, ("other",), (("app", "x"),))]
    pods = [running("p", "a", app="x"), running("q", "b", app="y"), running("r", "b", app="z")]
    held: list[PodView] = []
    found = AffinityIndex(held)

    for term in terms:
        assert found.matching(term) == {}
    for one in pods:
        held.append(one)
        found.add(one)

    assert [dict(found.matching(term)) for term in terms] == [{"p": "a"}, {"p": "a", "q": "b"}, {}]
    found.remove(pods[0])
    assert [dict(found.matching(term)) for term in terms] == [{}, {"q": "b"}, {}]


def test_more_terms_than_are_remembered_still_have_right_answers():
    held = [running("p", "a", app="x")]
    found = AffinityIndex(held)
    terms = [
        Term(HOST, ("team",), (("app", "x"),), (("n", "NotIn", (str(n),)),)) for n in range(TERMS_MAX + 5)
    ]

    for term in [*terms, *terms[:3]]:
        assert found.matching(term) == {"p": "a"}
    found.remove(held.pop())

    assert all(found.matching(term) == {} for term in terms)
