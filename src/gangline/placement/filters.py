"""Which nodes a pod may use, apart from room: taints, selectors, required node affinity.

Source: Kubernetes documentation, "Taints and Tolerations" and "Assigning Pods to Nodes".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gangline.api.core import Taint, Toleration
from gangline.workloads.requests import GPU

if TYPE_CHECKING:
    from gangline.placement.snapshot import NodeView, PodView

Ints = npt.NDArray[np.int64]

LABELS_MAX = 256
"""Sets of labels for which it is remembered which nodes are alike."""

UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def filter_reason(node: NodeView, pod: PodView) -> str:
    """Return why the pod may not use the node, or an empty text. Cost: 1 µs without rules."""
    if node.unschedulable and not is_tolerated(UNSCHEDULABLE_TAINT, pod.tolerations):
        return "node(s) were unschedulable"
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not is_tolerated(taint, pod.tolerations):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    if pod.claim_shares and not node.by_claim:
        return "node(s) publish no GPUs for resource claims"
    if node.by_claim and not pod.device_claims and pod.request.get(GPU):
        return "node(s) give their GPUs to resource claims alone"
    if not matches_node(node, pod):
        return "node(s) didn't match Pod's node affinity/selector"
    if not all(any(term_holds(term, node) for term in terms) for terms in pod.volume_terms):
        return "node(s) had volume node affinity conflict"
    return ""


def rule_labels(pod: PodView) -> frozenset[str] | None:
    """Return the labels of nodes that :func:`filter_reason` reads for a pod; None where it reads names."""
    terms = [*(pod.node_terms or ()), *(term for terms in pod.volume_terms for term in terms)]
    if any(term.get("matchFields") for term in terms):
        return None
    rules = (rule for term in terms for rule in term.get("matchExpressions") or [])
    return frozenset([*pod.node_selector, *(rule.get("key", "") for rule in rules)])


class LikeNodes:
    """Which nodes are alike in what the rules of pods read of them, so that a rule is looked at once for all.

    Args:
        count: rows to begin with.
    """

    def __init__(self, count: int = 0) -> None:
        self._class_of = np.zeros(count, np.int64)  # by all that is read but labels
        self._classes: dict[object, int] = {}
        self._found: dict[frozenset[str], tuple[Sequence[int], Ints]] = {}

    def put(self, row: int, node: NodeView) -> None:
        """Take the node of a row as it is now."""
        rules = node.taints, node.unschedulable, node.by_claim
        self._class_of[row] = self._classes.setdefault(rules, len(self._classes))

    def forget(self) -> None:
        """Forget which are alike: a node has changed, come or gone."""
        self._found.clear()

    def insert(self, row: int) -> None:
        """Make room for a row."""
        self._class_of = np.insert(self._class_of, row, 0)

    def delete(self, row: int) -> None:
        """Forget a row."""
        self._class_of = np.delete(self._class_of, row)

    def by(
        self, labels: frozenset[str], domains_of: Callable[[str], tuple[Ints, int]]
    ) -> tuple[Sequence[int], Ints]:
        """Return the first node of each kind in these labels, and the kind of each node: int64 (N,).

        Cost: 0.1 µs a node for each label the first time after a node has changed, then nothing.
        """
        known = self._found.get(labels)
        if known is None:
            codes = self._class_of
            for key in sorted(labels):
                domains, count = domains_of(key)
                _, codes = np.unique(codes * (count + 1) + domains + 1, return_inverse=True)
            _, first, kinds = np.unique(codes, return_index=True, return_inverse=True)
            if len(self._found) >= LABELS_MAX:
                self._found.clear()
            known = self._found[labels] = (first.tolist(), kinds)
        return known


def is_tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Return whether one of the tolerations covers the taint.

    An empty key with ``Exists`` covers every taint, an empty effect every effect.
    """
    for toleration in tolerations:
        if toleration.effect and toleration.effect != taint.effect:
            continue
        if toleration.key and toleration.key != taint.key:
            continue
        if toleration.operator == "Exists":
            return True
        if toleration.key and toleration.operator in ("", "Equal") and toleration.value == taint.value:
            return True
    return False


def matches_node(node: NodeView, pod: PodView) -> bool:
    """Return whether the node's labels satisfy the selector and the required affinity: terms are ORed."""
    if any(node.labels.get(name) != value for name, value in pod.node_selector.items()):
        return False
    return pod.node_terms is None or any(term_holds(term, node) for term in pod.node_terms)


def term_holds(term: dict[str, Any], node: NodeView) -> bool:
    """Return whether all expressions of a term hold; a term without any matches nothing."""
    expressions = term.get("matchExpressions") or []
    fields = term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(_holds(rule, node.labels.get(rule.get("key", ""))) for rule in expressions) and all(
        rule.get("key") == "metadata.name" and _holds(rule, node.name) for rule in fields
    )


def _holds(rule: dict[str, Any], value: str | None) -> bool:
    return holds(rule.get("operator", ""), rule.get("values") or [], value)


def holds(operator: str, values: Sequence[str], value: str | None) -> bool:
    """Return whether a rule of a selector holds for the value of a label; None where there is none."""
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt") and value is not None and len(values) == 1:
        try:
            found, bound = int(value), int(values[0])
        except ValueError:
            return False
        return found > bound if operator == "Gt" else found < bound
    return False
