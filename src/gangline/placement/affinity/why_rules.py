"""Why rules about neighbours keep pods from nodes: which rule, which pods, what is short."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from gangline.placement.affinity.pod_affinity import NO_RELATIONS, Rules
from gangline.placement.affinity.terms import Relations, Term
from gangline.placement.capacity import capacity
from gangline.placement.fit import has_rules
from gangline.placement.free_resources import FreeResources
from gangline.placement.gangs import Gang
from gangline.placement.node_table import NodeTable
from gangline.placement.place import place
from gangline.placement.snapshot import PodView

NOT_NEAR = "node(s) didn't match pod affinity rules"
NOT_APART = "node(s) didn't match pod anti-affinity rules"
KEPT_AWAY = "node(s) didn't satisfy existing pods anti-affinity rules"
NOT_EVEN = "node(s) didn't match pod topology spread constraints"
"""Wording of Kubernetes."""


def rule_refusals(table: NodeTable, room: FreeResources, pod: PodView) -> dict[int, str]:
    """Return the rows from which rules keep one pod, each with the reason in the wording of Kubernetes."""
    gang = Gang(pod.key, [pod])
    if not has_rules(table, gang):
        return {}
    rules, eligible = Rules(table, room, gang.pods), table.eligible(pod)
    asked = pod.relations or NO_RELATIONS
    checks = [(~rules.let_in(pod), KEPT_AWAY)]
    checks += [(~rules.even(spread, pod, eligible), NOT_EVEN) for spread in asked.even]
    checks += [(rules.together(term), NOT_APART) for term in asked.apart]
    checks += [(~rules.near(term, pod), NOT_NEAR) for term in asked.near]
    found: dict[int, str] = {}
    for refused, reason in checks:
        found |= {int(row): reason for row in np.flatnonzero(refused)}
    return found


def rule_shortfall(table: NodeTable, room: FreeResources, gang: Gang) -> str:
    """Return which rule about neighbours keeps a gang waiting; empty where it would wait without any too.

    Example: ``its pods must be apart from pods with job=a by rack: needs 4 values of it, 3 have room``.
    """
    if not has_rules(table, gang) or place(table, room, without_rules(gang), within=None) is None:
        return ""
    kept = _kept_away(table, room, gang)
    if kept:
        return kept
    for kind, say in (("apart", _apart), ("even", _even), ("near", _near)):
        less = _without(gang, kind)
        if less is not None and place(table, room, less) is not None:
            return say(table, room, gang)
    return (
        "its rules about neighbours (affinity, anti-affinity, spread) cannot all hold at once on these nodes"
    )


def without_rules(gang: Gang) -> Gang:
    """Return the gang as if its pods, and the pods that run, asked nothing of their neighbours."""
    return _changed(gang, [msgspec.structs.replace(pod, relations=None, labels={}) for pod in gang.pods])


def _without(gang: Gang, kind: str) -> Gang | None:
    """Return the gang without one kind of rule; None where it has none of it."""
    if not any(getattr(pod.relations or NO_RELATIONS, kind) for pod in gang.pods):
        return None
    pods = []
    for pod in gang.pods:
        asked = pod.relations or Relations()
        pods.append(msgspec.structs.replace(pod, relations=msgspec.structs.replace(asked, **{kind: ()})))
    return _changed(gang, pods)


def _changed(gang: Gang, pods: Sequence[PodView]) -> Gang:
    return Gang(gang.key, pods, gang.group, placed=gang.placed, is_known=gang.is_known)


def _kept_away(table: NodeTable, room: FreeResources, gang: Gang) -> str:
    """Return which running pods keep the gang away, where it would fit but for them."""
    near = table.affinity_index
    for term, pods in (near.keeping_away(gang.pods) if near is not None else {}).items():
        there = [uid for uid in pods if uid not in room.gone]
        if there:
            left = room.copy()
            left.gone = left.gone | frozenset(there)
            if place(table, left, gang) is not None:
                who = "1 running pod keeps" if len(there) == 1 else f"{len(there)} running pods keep"
                return f"{who} pods with {term} out of their {term.key} (anti-affinity)"
    return ""


def _apart(table: NodeTable, room: FreeResources, gang: Gang) -> str:
    pod, term = next((pod, term) for pod in gang.pods for term in (pod.relations or NO_RELATIONS).apart)
    own = [other for other in gang.pods if term.matches(other.namespace, other.labels)]
    if len(own) < 2:
        return (
            f"must not share a {term.key} with pods with {term} (anti-affinity), which run wherever it fits"
        )
    return (
        f"needs room in {len(own)} different {term.key}, one for each pod with {term} (anti-affinity); there "
        f"is room in {_domains_with_room(table, room, gang, pod, term)}"
    )


def _domains_with_room(table: NodeTable, room: FreeResources, gang: Gang, pod: PodView, term: Term) -> int:
    """Return in how many domains one such pod could be."""
    rules = Rules(table, room, gang.pods)
    rows = np.flatnonzero((capacity(table, room, pod) > 0) & rules.allowed(pod, table.eligible(pod)))
    domains = table.label_domains(term.key)[0][rows]
    return len(np.unique(domains[domains >= 0])) + int((domains < 0).sum())


def _even(table: NodeTable, room: FreeResources, gang: Gang) -> str:
    spread = next(spread for pod in gang.pods for spread in (pod.relations or NO_RELATIONS).even)
    return (
        f"its pods with {spread.term} must be spread over {spread.term.key}, none with more than "
        f"{spread.skew} above the fewest (topologySpreadConstraints); there is room only less evenly"
    )


def _near(table: NodeTable, room: FreeResources, gang: Gang) -> str:
    pod, term = next((pod, term) for pod in gang.pods for term in (pod.relations or NO_RELATIONS).near)
    counts = Rules(table, room, gang.pods).pods_of(term)
    if counts:
        return (
            f"must run in the {term.key} of pods with {term} (affinity), and there is not enough room there"
        )
    if term.matches(pod.namespace, pod.labels):
        return f"all of its pods with {term} must share one {term.key} (affinity), and none has enough room"
    return f"must run in the {term.key} of pods with {term} (affinity), and no such pod runs"
