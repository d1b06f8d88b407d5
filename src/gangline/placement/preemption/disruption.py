"""PodDisruptionBudgets among victims: best effort, as kube-scheduler has it.

A gang whose end would break a budget gives way only where no other set of gangs is enough, and then the set
with the fewest pods beyond their budgets. Source: Kubernetes documentation, "Pod Priority and Preemption",
"PodDisruptionBudget is supported, but not guaranteed"; kube-scheduler, ``FilterVictimsWithPDBViolation``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gangline.placement.affinity.terms import Term, pods_of

Guarded = tuple[tuple["DisruptionBudget", ...], ...]
"""Of a gang: the budgets of each of its pods that any budget counts."""


class DisruptionBudget(msgspec.Struct, frozen=True, kw_only=True):
    """One PodDisruptionBudget.

    Attributes:
        key: ``NAMESPACE/NAME``.
        pods: that it counts.
        allowed: how many of them may go now.
        disrupted: names of pods that are on their way out and counted already.
    """

    key: str
    pods: Term
    allowed: int = 0
    disrupted: frozenset[str] = frozenset()

    @classmethod
    def from_object(cls, obj: Mapping[str, Any]) -> DisruptionBudget | None:
        """Return what an object in wire form says; None for one without a selector, which counts no pod."""
        meta, status = obj["metadata"], obj.get("status") or {}
        selector = (obj.get("spec") or {}).get("selector") or {}
        if not (selector.get("matchLabels") or selector.get("matchExpressions")):
            return None
        return cls(
            key=f"{meta['namespace']}/{meta['name']}",
            pods=pods_of(selector, meta["namespace"]),
            allowed=int(status.get("disruptionsAllowed") or 0),
            disrupted=frozenset(status.get("disruptedPods") or ()),
        )

    def counts(self, namespace: str, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the end of a pod would use the budget."""
        return bool(labels) and name not in self.disrupted and self.pods.matches(namespace, labels)


def violations(gangs: Iterable[Guarded]) -> list[int]:
    """Return how many pods of each gang would go beyond a budget, if the gangs ended in this order."""
    left: dict[str, int] = {}
    counts = []
    for pods in gangs:
        count = 0
        for budgets in pods:
            for budget in budgets:
                left[budget.key] = left.get(budget.key, budget.allowed) - 1
                if left[budget.key] < 0:
                    count += 1
                    break
        counts.append(count)
    return counts
