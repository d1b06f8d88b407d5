"""Nodes that others would have to open: cordoned, not ready, or with GPUs that are unhealthy. Pure."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from gangline.placement.allocations import Allocations
from gangline.placement.gangs import Gang
from gangline.placement.node_table import NodeTable
from gangline.placement.place import place
from gangline.placement.snapshot import NOT_READY_TAINT, UNREACHABLE_TAINT, NodeView
from gangline.workloads.requests import GPU

NODES_TRIED_MAX = 4
"""Closed nodes of which it is tried whether one alone is enough."""

NODES_NAMED_MAX = 3
AWAY = (NOT_READY_TAINT, UNREACHABLE_TAINT)


def when_opened(table: NodeTable, allocations: Allocations, gang: Gang) -> str:
    """Return which nodes would have to open so that a gang fits, such as ``when node n1 is uncordoned``.

    One node if that is enough, else all of them; empty where that would not help.

    Args:
        table: the nodes.
        allocations: the pods that hold room.
        gang: what must start together.

    Cost: nothing where no node is closed; else the arrays are built anew for each trial, 10 µs a node.
    """
    words = {view.name: text for view in table.views if (text := _needs(view))}
    if not words:
        return ""
    names = list(words)
    tried = [[name] for name in names[:NODES_TRIED_MAX]] + ([names] if len(names) > 1 else [])
    for chosen in tried:
        if not _fits(table, allocations, gang, set(chosen)):
            continue
        if len(chosen) > NODES_NAMED_MAX:
            return f"when {len(chosen)} nodes that are closed to it open"
        return f"when {' and '.join(words[name] for name in chosen)}"
    return ""


def is_away(view: NodeView) -> bool:
    """Return whether a node does not answer, or says that it is not ready."""
    return any(taint.key in AWAY for taint in view.taints)


def _needs(view: NodeView) -> str:
    """Return what opens a node; empty for one that is open."""
    if view.unschedulable:
        return f"node {view.name} is uncordoned"
    if is_away(view):
        return f"node {view.name} is ready again"
    if view.gpus is not None and (sick := _sick(view)):
        which = f"GPU {sick[0]}" if len(sick) == 1 else f"GPUs {', '.join(map(str, sick))}"
        return f"{which} of node {view.name} {'is' if len(sick) == 1 else 'are'} healthy again"
    return ""


def _sick(view: NodeView) -> list[int]:
    gpus = view.gpus
    if gpus is None:
        return []
    return [index for position, index in enumerate(gpus.indices) if not gpus.healthy >> position & 1]


def _opened(view: NodeView) -> NodeView:
    """Return the node as it is once it is open."""
    taints = tuple(taint for taint in view.taints if taint.key not in AWAY)
    view = msgspec.structs.replace(view, unschedulable=False, taints=taints)
    if view.gpus is None or not _sick(view):
        return view
    count = len(view.gpus.uuids)
    gpus = replace(view.gpus, healthy=(1 << count) - 1)
    return msgspec.structs.replace(view, gpus=gpus, allocatable={**view.allocatable, GPU: count})


def _fits(table: NodeTable, allocations: Allocations, gang: Gang, names: set[str]) -> bool:
    views = [_opened(view) if view.name in names else view for view in table.views]
    opened = NodeTable.of(views, allocations, table.levels, claimed=table.claimed)
    opened.affinity_index = allocations.affinity_index
    return place(opened, opened.room, gang) is not None
