"""Nodes that are alike are looked at once, and the answer is that of looking at each."""

from typing import Any

import msgspec
from drawn_scenes import HOST, Draws, drawn, many, node, nodes
from gang_scenes import pod
from hypothesis import given

from gangline.api.core import Taint, Toleration
from gangline.placement.filters import filter_reason
from gangline.placement.node_table import NodeTable
from gangline.placement.snapshot import NodeView, PodView

TAINT = Taint(key="team", value="a", effect="NoSchedule")
KEYS = ("pool", "zone", "rack", HOST)
VALUES = ("a", "b", "1", "7")


def changed(draws: Draws, found: NodeView) -> NodeView:
    labels = {**found.labels, **{key: draws.one_of(VALUES) for key in draws.some(KEYS, 2)}}
    return msgspec.structs.replace(
        found,
        labels=labels,
        taints=(TAINT,) if draws.rarely(3) else (),
        unschedulable=draws.rarely(4),
        by_claim=draws.rarely(4),
    )


def rule(draws: Draws) -> dict[str, Any]:
    operator = draws.one_of(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
    key = draws.one_of(KEYS)
    return {
        "key": key,
        "operator": operator,
        "values": draws.some(VALUES, 2 if operator in ("In", "NotIn") else 1),
    }


def term(draws: Draws) -> dict[str, Any]:
    fields = [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}] if draws.rarely(5) else []
    return {"matchExpressions": [rule(draws) for _ in range(draws.below(3))], "matchFields": fields}


def asking(draws: Draws, name: str) -> PodView:
    return pod(
        name,
        draws.below(2),
        node_selector={key: draws.one_of(VALUES) for key in draws.some(KEYS, 2)},
        node_terms=tuple(term(draws) for _ in range(draws.below(3))) if draws.rarely(2) else None,
        volume_terms=((term(draws),),) if draws.rarely(4) else (),
        tolerations=(Toleration(operator="Exists"),) if draws.rarely(2) else (),
        shape=name.encode(),
    )


@many
@given(drawn(lambda draws: draws))
def test_the_nodes_that_a_pod_may_use_are_those_that_its_rules_permit(draws: Draws) -> None:
    table = NodeTable.of([changed(draws, found) for found in nodes(draws, 8)])
    asked = [asking(draws, f"p-{index}") for index in range(4)]

    def check() -> None:
        for one in asked:
            wanted = [not filter_reason(view, one) for view in table.views]
            assert table.eligible(one).tolist() == wanted
            assert table.eligible(msgspec.structs.replace(one, shape=b"")).tolist() == wanted

    check()
    for name in draws.some(table.names, 2):
        table.set_node(changed(draws, table.views[table.index(name)]), ())
        check()
    for name in draws.some(table.names, 1):
        table.drop_node(name)
        check()
    table.set_node(changed(draws, node(draws, "m")), ())
    check()
