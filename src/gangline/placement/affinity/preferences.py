"""What pods would like of their nodes without needing it: preferred affinity, as weights by node.

Source of the weights: Kubernetes documentation, "Assigning Pods to Nodes" (1 to 100; a preferred
anti-affinity counts negatively). Here they are added up, and decide between nodes that are equally fast.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gangline.placement.filters import NO_DOMAIN, term_holds
from gangline.placement.free_resources import Ints
from gangline.placement.node_table import NodeTable
from gangline.placement.snapshot import PodView
from gangline.workloads.requests import GPU

AWAY_FROM_DEVICES = 1 << 20
"""What is asked for counts this much; a device that nobody asked for on the node counts 1 against it."""


def wishes(table: NodeTable, pod: PodView) -> Ints | None:
    """Return :func:`preferences`, and after them that a pod without GPUs leaves devices to others.

    Cost: as for preferences; 1 µs for each node once for a shape that asks for no GPU.
    """
    preferred = preferences(table, pod)
    if pod.request.get(GPU):
        return preferred
    others = table.of_nodes(
        b"devices" + pod.shape if pod.shape else b"", lambda: _others_devices(table, pod.request)
    )
    if preferred is None:
        return -others if others.any() and (others != others[0]).any() else None
    return preferred * AWAY_FROM_DEVICES - others


def preferences(table: NodeTable, pod: PodView) -> Ints | None:
    """Return how much a pod preferences each node: int64 (N,); None where it does not care.

    Cost: nothing for pods without preferences; 1 µs for each node once for a shape, and 1 µs for each pod
    that holds room once for a rule about pods.
    """
    about_pods = pod.relations.preferred if pod.relations else ()
    if not pod.node_preferences and not about_pods:
        return None
    total = table.of_nodes(pod.shape, lambda: _of_nodes(table, pod)).copy()
    near = table.affinity_index
    if near is None:
        return total
    for weight, term in about_pods:
        domains, _ = table.label_domains(term.key)
        rows = [row for node in near.matching(term).values() if (row := table.index(node)) >= 0]
        there = np.setdiff1d(domains[rows], [NO_DOMAIN])
        total[np.isin(domains, there)] += weight
    return total


def _others_devices(table: NodeTable, request: Mapping[str, int]) -> Ints:
    counts = (
        sum(amount for name, amount in view.allocatable.items() if "/" in name and name not in request)
        for view in table.views
    )
    return np.fromiter(counts, np.int64, len(table))


def _of_nodes(table: NodeTable, pod: PodView) -> Ints:
    weights = (
        sum(weight for weight, term in pod.node_preferences if term_holds(term, node)) for node in table.views
    )
    return np.fromiter(weights, np.int64, len(table))
