"""Where pods go, and the reasons when they go nowhere. Capacity properties are in tests/property."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gangline.api.core import Node, Pod
from gangline.placement.cycle import schedule
from gangline.placement.decisions import Decisions
from gangline.placement.snapshot import NodeView, PodView, Snapshot

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def node(
    name: str, *, ready: bool | str = True, spec: Any = None, labels: Any = None, **amounts: Any
) -> NodeView:
    status = {True: "True", False: "False"}.get(ready, ready)
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110", **amounts}
    return NodeView.from_node(
        msgspec.convert(
            {
                "metadata": {"name": name, "labels": labels or {}},
                "spec": spec or {},
                "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": status}]},
            },
            Node,
        )
    )


def pod(name: str, *, labels: Any = None, ports: Any = None, created: str = "", **spec: Any) -> PodView:
    requests = spec.pop("requests", {})
    container = {"name": "c", "resources": {"requests": requests}, "ports": ports or []}
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "labels": labels or {}}
    if created:
        metadata["creationTimestamp"] = created
    return PodView.from_pod(
        msgspec.convert({"metadata": metadata, "spec": {"containers": [container], **spec}}, Pod)
    )


def place(nodes: list[NodeView], pods: list[PodView], bound: list[PodView] | None = None) -> Decisions:
    return schedule(Snapshot(nodes=tuple(nodes), pods=tuple(bound or [])), pods, now=NOW)


def where(decisions: Decisions) -> dict[str, str]:
    return {binding.pod.removeprefix("team/"): binding.node for binding in decisions.bindings}


def why(decisions: Decisions) -> str:
    assert not decisions.bindings
    return decisions.unschedulable[0].message


WORKER = {"training.kubeflow.org/job-name": "pi", "training.kubeflow.org/job-role": "worker"}
LAUNCHER = {"training.kubeflow.org/job-name": "pi", "training.kubeflow.org/job-role": "launcher"}


def test_four_workers_on_two_nodes_are_two_and_two_wherever_the_launcher_is():
    workers = [pod(f"pi-worker-{index}", labels=WORKER) for index in range(4)]

    assert where(place([node("b"), node("a")], [*workers, pod("pi-launcher", labels=LAUNCHER)])) == {
        "pi-launcher": "a",
        "pi-worker-0": "b",
        "pi-worker-1": "a",
        "pi-worker-2": "b",
        "pi-worker-3": "a",
    }


@pytest.mark.parametrize(
    "spec",
    [
        {"requests": {"cpu": "1"}, "overhead": {"cpu": "1500m"}},
        {"requests": {"cpu": "1"}, "resources": {"requests": {"cpu": "2500m"}}},
        {"resources": {"requests": {"cpu": "1"}}, "overhead": {"cpu": "1500m"}},
    ],
    ids=["overhead of its runtime", "amounts of the pod as a whole", "both"],
)
def test_whatever_a_pod_asks_for_beside_its_containers_must_be_free_too(spec: dict[str, Any]) -> None:
    assert why(place([node("a", cpu="2")], [pod("one", **spec)])) == (
        "0/1 nodes are available: 1 Insufficient cpu."
    )
    assert where(place([node("a", cpu="2500m")], [pod("one", **spec)])) == {"one": "a"}


def test_a_pod_of_no_job_goes_to_the_first_node_with_room():
    assert where(
        place(
            [node("a", cpu="1"), node("b")],
            [pod("one", requests={"cpu": "1"}), pod("two", requests={"cpu": "1"}), pod("free")],
        )
    ) == {"free": "a", "one": "a", "two": "b"}


def test_older_pods_and_higher_priorities_go_first():
    decisions = place(
        [node("a", cpu="2")],
        [
            pod("young", requests={"cpu": "1"}, created="2026-01-01T00:00:02Z"),
            pod("old", requests={"cpu": "1"}, created="2026-01-01T00:00:01Z"),
            pod("urgent", requests={"cpu": "1"}, created="2026-01-01T00:00:03Z", priority=10),
        ],
    )

    assert [binding.pod for binding in decisions.bindings] == ["team/urgent", "team/old"]


def test_bound_pods_hold_their_room():
    holder = pod("holder", requests={"cpu": "3"}, nodeName="a")

    assert where(place([node("a"), node("b")], [pod("new", requests={"cpu": "2"})], [holder])) == {"new": "b"}


def test_gated_pods_are_not_considered():
    assert place([node("a")], [pod("gated", schedulingGates=[{"name": "hold"}])]) == Decisions()


def test_the_reasons_of_all_nodes_are_counted_in_the_wording_of_kubernetes():
    nodes = [
        node("a", cpu="1", memory="1Gi"),
        node("b", cpu="1"),
        node("c", spec={"taints": [{"key": "team", "value": "vision", "effect": "NoSchedule"}]}),
        node("d", spec={"unschedulable": True}),
    ]

    assert why(place(nodes, [pod("big", requests={"cpu": "2", "memory": "2Gi"})])) == (
        "0/4 nodes are available: 1 Insufficient memory, 1 node(s) had untolerated taint {team: vision}, "
        "1 node(s) were unschedulable, 2 Insufficient cpu."
    )


def test_no_node_at_all_has_a_message_of_its_own():
    assert why(place([], [pod("lost")])) == "no nodes available to schedule pods"


@pytest.mark.parametrize(
    ("kwargs", "spec", "want"),
    [
        pytest.param({"pods": "0"}, {}, "1 Too many pods", id="the node's pod count"),
        pytest.param({}, {"requests": {"nvidia.com/gpu": 1}}, "1 Insufficient nvidia.com/gpu", id="extended"),
        pytest.param(
            {"ready": False},
            {},
            "1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }",
            id="not ready",
        ),
        pytest.param(
            {"ready": "Unknown"},
            {},
            "1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }",
            id="the node's agent is silent",
        ),
        pytest.param(
            {},
            {"nodeSelector": {"disk": "ssd"}},
            "1 node(s) didn't match Pod's node affinity/selector",
            id="node selector",
        ),
    ],
)
def test_a_pod_that_fits_nowhere_says_why(kwargs: Any, spec: Any, want: str):
    assert why(place([node("a", **kwargs)], [pod("p", **spec)])) == f"0/1 nodes are available: {want}."


def test_two_pods_with_one_host_port_do_not_share_a_node():
    ports = [{"containerPort": 80, "hostPort": 8080}]
    holder = pod("holder", ports=ports, nodeName="a")

    assert why(place([node("a")], [pod("p", ports=ports)], [holder])) == (
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    )


TAINTED = {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        pytest.param({"key": "gpu", "operator": "Exists"}, True, id="key exists"),
        pytest.param({"operator": "Exists"}, True, id="every taint"),
        pytest.param({"key": "gpu", "value": "yes"}, True, id="equal by default"),
        pytest.param({"key": "gpu", "value": "no"}, False, id="other value"),
        pytest.param({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False, id="other effect"),
    ],
)
def test_tolerations(toleration: Any, fits: bool):
    decisions = place([node("a", spec=TAINTED)], [pod("p", tolerations=[toleration])])

    assert bool(decisions.bindings) is fits


def affinity(*terms: Any) -> Any:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def label_rule(operator: str, *values: str) -> Any:
    return {"matchExpressions": [{"key": "gen", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        pytest.param([label_rule("In", "6", "7")], True, id="In"),
        pytest.param([label_rule("NotIn", "7")], False, id="NotIn"),
        pytest.param([label_rule("Exists")], True, id="Exists"),
        pytest.param([label_rule("DoesNotExist")], False, id="DoesNotExist"),
        pytest.param([label_rule("Gt", "6")], True, id="Gt"),
        pytest.param([label_rule("Lt", "6")], False, id="Lt"),
        pytest.param([label_rule("In", "1"), label_rule("In", "7")], True, id="terms are ORed"),
        pytest.param([{}], False, id="an empty term matches nothing"),
        pytest.param(
            [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}],
            True,
            id="by name",
        ),
    ],
)
def test_required_node_affinity(terms: Any, fits: bool):
    decisions = place([node("a", labels={"gen": "7"})], [pod("p", affinity=affinity(*terms))])

    assert bool(decisions.bindings) is fits


def test_seeds_choose_among_equal_nodes_and_zero_the_first_by_name():
    nodes = [node(f"node-{index}") for index in range(4)]
    snapshot = Snapshot(nodes=tuple(nodes))
    chosen = {seed: where(schedule(snapshot, [pod("a")], now=NOW, seed=seed))["a"] for seed in range(20)}

    assert chosen[0] == "node-0"
    assert set(chosen.values()) == {one.name for one in nodes}


def test_ranks_go_to_nodes_by_name_whatever_the_seed():
    nodes = [node(f"node-{index}", **{"nvidia.com/gpu": "1"}) for index in range(4)]
    gang = {"scheduling.x-k8s.io/pod-group": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "4"}
    workers = [pod(f"w-{rank}", labels=gang, requests={"nvidia.com/gpu": "1"}) for rank in range(4)]
    for seed in range(5):
        found = where(schedule(Snapshot(nodes=tuple(nodes)), workers, now=NOW, seed=seed))
        assert found == {f"w-{rank}": f"node-{rank}" for rank in range(4)}
