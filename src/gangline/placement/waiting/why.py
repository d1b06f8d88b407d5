"""Why something does not fit: the first binding reason and the shortfall, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from gangline.placement.affinity.why_rules import rule_refusals, rule_shortfall
from gangline.placement.amounts import PODS
from gangline.placement.capacity import capacity
from gangline.placement.claims.serve import why_not
from gangline.placement.filters import NO_DOMAIN, filter_reason
from gangline.placement.fit import visible_room
from gangline.placement.free_resources import FreeResources
from gangline.placement.gangs import Gang
from gangline.placement.groups.domains import domain_name, domains_of
from gangline.placement.node_table import NodeTable
from gangline.placement.place import place
from gangline.placement.snapshot import NodeView, PodView
from gangline.workloads.requests import GPU

NO_NODES = "no nodes available to schedule pods"
NO_FREE_PORTS = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS = "Too many pods"


def pod_message(table: NodeTable, pod: PodView) -> str:
    """Return why a pod of no gang fits nowhere, in the wording of Kubernetes: reasons counted and sorted.

    Example: ``0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable.``
    """
    if pod.refusal:
        return f"0/{len(table)} nodes are available: {pod.refusal}."
    if not len(table):
        return NO_NODES
    reasons: Counter[str] = Counter()
    eligible = table.eligible(pod)
    apart = rule_refusals(table, table.room, pod)
    for row in range(len(table)):
        if not eligible[row]:
            reasons[filter_reason(table.views[row], pod)] += 1
            continue
        reasons.update(_shortfalls(table, row, pod) or ([apart[row]] if row in apart else []))
    counted = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{len(table)} nodes are available: {', '.join(counted)}."


def _shortfalls(table: NodeTable, row: int, pod: PodView) -> list[str]:
    room = table.room
    if pod.host_ports and not room.ports.get(row, frozenset()).isdisjoint(pod.host_ports):
        return [NO_FREE_PORTS]
    found = [
        TOO_MANY_PODS if name == PODS else f"Insufficient {name}"
        for name, amount in pod.request.items()
        if amount > room.free[row, table.column(name)]
    ]
    gpus = pod.request.get(GPU, 0)
    if not found and gpus and table.kind_of[row] >= 0 and int(room.gpus[row]).bit_count() < gpus:
        found = [f"Insufficient healthy {GPU}"]
    if not found and pod.demands and (short := why_not(table, room, pod, row)):
        found = [short]
    return found


def shortfall(table: NodeTable, room: FreeResources, gang: Gang) -> tuple[str, str]:
    """Return (reason, message) of a gang that does not fit: ``NoNode`` or ``NoRoom``.

    Example: ``needs 8 nvidia.com/gpu on one node; best node n3 has 6 free``.
    """
    room = visible_room(table, room, gang)
    pod = max(gang.pods, key=lambda pod: (pod.request.get(GPU, 0), sum(pod.request.values())))
    alike = [other for other in gang.pods if other.shape == pod.shape]
    eligible = table.eligible(pod)
    if not eligible.any():
        return "NoNode", pod_message(table, pod)
    counts = capacity(table, room, pod)
    if found := rule_shortfall(table, room, gang):
        return "NoRoom", found
    if len(gang.pods) > 1 and (found := _domain_shortfall(table, gang, len(alike), counts)):
        return "NoRoom", found
    fitting = int(counts.sum())
    if pod.host_ports and fitting < len(alike) and (found := _ports_shortfall(table, room, pod, len(alike))):
        return "NoRoom", found
    if fitting == 0 or len(gang.pods) == 1:
        return "NoRoom", _one_pod(table, room, pod, eligible)
    if fitting >= len(alike):
        others = [other for other in gang.pods if other.shape != pod.shape]
        if others and place(table, room, gang.only(*others)) is None:
            return shortfall(table, room, gang.only(*others))
        return "NoRoom", f"there is room for {len(alike)} of its pods, but not for all {len(gang.pods)}"
    gpus = pod.request.get(GPU, 0)
    each = f" of {gpus} {GPU}" if gpus else " with the devices of their claims" if pod.demands else ""
    return "NoRoom", f"needs room for {len(alike)} pods{each} at once; there is room for {fitting}"


def _ports_shortfall(table: NodeTable, room: FreeResources, pod: PodView, wanted: int) -> str:
    """Return what is short where only ports of the nodes are."""
    free = msgspec.structs.replace(pod, host_ports=frozenset(), shape=b"")
    if int((capacity(table, room, free) > 0).sum()) < wanted:
        return ""
    ports = ", ".join(f"{port}/{protocol}" for protocol, port in sorted(pod.host_ports))
    nodes = int(capacity(table, room, pod).sum())
    return f"needs host port {ports} on {wanted} nodes, one for each pod; {nodes} with room have it free"


def _domain_shortfall(
    table: NodeTable, gang: Gang, wanted: int, counts: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> str:
    if not gang.group.required_level:
        return ""
    domains, _ = domains_of(table, gang.group.required_level)
    inside = domains != NO_DOMAIN
    if not inside.any():
        return f"must lie within one {gang.group.required_level}, and no node has that label"
    totals = np.bincount(domains[inside], weights=counts[inside])
    best = int(np.argmax(totals))
    if totals[best] >= wanted:
        return ""
    name = domain_name(table, gang.group.required_level, int(np.argmax(domains == best)))
    return (
        f"must lie within one {gang.group.required_level}; needs room for {wanted} pods, best is {name} with "
        f"room for {int(totals[best])}"
    )


def _one_pod(
    table: NodeTable, room: FreeResources, pod: PodView, eligible: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> str:
    """Return the resource that a single pod lacks most widely, and the node that is nearest to having it."""
    rows = np.flatnonzero(eligible)
    asked = list(pod.request.items())
    columns = [table.column(name) for name, _ in asked]
    free = room.free[rows[:, None], columns]
    if GPU in pod.request:
        place, is_known = list(pod.request).index(GPU), table.kind_of[rows] >= 0
        ids = np.bitwise_count(room.gpus[rows].astype(np.uint64)).astype(np.int64)
        free[:, place] = np.where(is_known, np.minimum(free[:, place], ids), free[:, place])
    shorts = (free < [amount for _, amount in asked]).sum(axis=0).tolist()
    if not any(shorts):
        return pod_message(table, pod)
    place = max(range(len(asked)), key=lambda place: (shorts[place], asked[place][0]))
    best, (name, amount) = int(np.argmax(free[:, place])), asked[place]
    node, free_there = table.names[rows[best]], max(int(free[best, place]), 0)
    if free_there >= amount:
        return f"needs {_shown(name, amount)} and all else on one node; no node has both"
    there = _shown(name, free_there, bare=True)
    return f"needs {_shown(name, amount)} on one node; best node {node} has {there} free"


def _shown(name: str, amount: int, *, bare: bool = False) -> str:
    if name == "cpu":
        text, unit = f"{amount / 1000:g}", "cpu"
    elif name in ("memory", "ephemeral-storage"):
        text, unit = f"{amount / 2**30:.4g}Gi", name
    else:
        text, unit = str(amount), name
    return text if bare else f"{text} {unit}"


def with_simulated(text: str, nodes: Iterable[NodeView]) -> str:
    """Return a message that says of GPUs that they are simulated, where those of the nodes are.

    Example: ``needs 8 simulated nvidia.com/gpu on one node; best node n3 has 6 free``.
    """
    if GPU not in text:
        return text
    source = next((node.gpus.source for node in nodes if node.gpus is not None), "")
    return text.replace(f" {GPU}", f" simulated {GPU}") if source == "simulated" else text
