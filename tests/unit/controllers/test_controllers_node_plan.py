"""When a node counts as alive."""

from typing import Any

import msgspec
import pytest

from gangline.api.core import Node, Pod
from gangline.cluster.controllers.node_plan import Health, is_own, judge_node, stay_s

WHEN = "2026-01-01T00:00:00Z"


def node(ready: str | None = "True", reason: str = "KubeletReady", **labels: str) -> Node:
    conditions = [{"type": "Ready", "status": ready, "reason": reason}] if ready else []
    return msgspec.convert(
        {"metadata": {"name": "a", "labels": labels}, "status": {"conditions": conditions}}, Node
    )


def written(health: Health) -> tuple[Any, Any] | None:
    return (health.condition["status"], health.condition["reason"]) if health.condition else None


def test_a_node_with_a_fresh_lease_is_looked_at_again_when_the_grace_is_over():
    assert judge_node(node(), silent_s=10.0, when=WHEN) == Health(None, 30.0)


def test_a_silent_node_becomes_unknown_once():
    assert written(judge_node(node(), silent_s=40.0, when=WHEN)) == ("Unknown", "NodeStatusUnknown")
    assert judge_node(node("Unknown", "NodeStatusUnknown"), silent_s=99.0, when=WHEN) == Health()


def test_a_silent_node_that_said_it_is_not_ready_becomes_unknown_too():
    assert written(judge_node(node("False"), silent_s=41.0, when=WHEN)) == ("Unknown", "NodeStatusUnknown")


def test_a_node_that_never_came_up_stays_as_it_is():
    assert judge_node(node(None), silent_s=99.0, when=WHEN) == Health()


def test_a_node_that_renews_its_lease_again_is_back():
    assert written(judge_node(node("Unknown", "NodeStatusUnknown"), silent_s=0.0, when=WHEN)) == (
        "True",
        "KubeletReady",
    )
    assert written(judge_node(node("Unknown", "Other"), silent_s=0.0, when=WHEN)) is None


def test_only_nodes_of_our_own_agent_are_judged():
    assert is_own(node(**{"gangline.dev/agent": "local"}))
    assert not is_own(node())


TAINT = {"key": "maintenance", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("taints", "tolerations", "want"),
    [
        ((), (), None),
        (({"key": "k", "effect": "NoSchedule"},), (), None),
        ((TAINT,), (), 0.0),
        ((TAINT,), ({"key": "maintenance", "operator": "Exists"},), None),
        ((TAINT,), ({"key": "maintenance", "operator": "Exists", "tolerationSeconds": 30},), 30.0),
        (
            (TAINT, {"key": "fire", "effect": "NoExecute"}),
            (
                {"operator": "Exists", "tolerationSeconds": 30},
                {"key": "fire", "operator": "Exists", "tolerationSeconds": 5},
            ),
            5.0,
        ),
    ],
)
def test_a_pod_stays_on_a_tainted_node_as_long_as_it_tolerates_all_of_its_taints(taints, tolerations, want):
    tainted = msgspec.convert({"metadata": {"name": "a"}, "spec": {"taints": list(taints)}}, Node)
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": {"tolerations": list(tolerations)}}, Pod)

    assert stay_s(tainted, pod) == want
