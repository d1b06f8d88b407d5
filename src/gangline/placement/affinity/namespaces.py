"""Labels of namespaces: which pods a ``namespaceSelector`` of an affinity term is about.

Source: Kubernetes documentation, "Assigning Pods to Nodes", namespace selector. A term is about the pods of
the namespaces that it lists and of those that it selects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gangline.placement.affinity.terms import NEEDS_NAMESPACES, Relations, Term
from gangline.placement.snapshot import PodView

NAME_LABEL = "kubernetes.io/metadata.name"
"""Every namespace has it, with its name as value."""


class Namespaces:
    """All namespaces of a cluster.

    Attributes:
        is_known: all have been read; until then, and where nobody may read them, pods with a selector of a
            required term wait.
        labels: by name.
    """

    def __init__(self) -> None:
        self.is_known = False
        self.labels: dict[str, dict[str, str]] = {}

    def take(self, namespaces: Iterable[Mapping[str, Any]]) -> None:
        """Take all namespaces, in wire form; from now on all is known."""
        self.labels = {entry["metadata"]["name"]: labels_of(entry) for entry in namespaces}
        self.is_known = True

    def applied(self, pod: PodView) -> PodView:
        """Return a pod whose terms name the namespaces that they select now."""
        found = pod.relations
        if found is None or not found.selects_namespaces or not self.is_known:
            return pod
        named = Relations(
            near=tuple(map(self._named, found.near)),
            apart=tuple(map(self._named, found.apart)),
            even=found.even,
            preferred=tuple((weight, self._named(term)) for weight, term in found.preferred),
        )
        refusal = "" if pod.refusal == NEEDS_NAMESPACES else pod.refusal
        shape = pod.shape + msgspec.json.encode(named) if pod.shape else b""
        return msgspec.structs.replace(pod, relations=named, refusal=refusal, shape=shape)

    def _named(self, term: Term) -> Term:
        if not term.selector:
            return term
        chosen = {name for name, labels in self.labels.items() if term.selects(labels)}
        return msgspec.structs.replace(
            term, namespaces=tuple(sorted(chosen.union(term.namespaces))), selector=()
        )


def labels_of(namespace: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of a namespace in wire form; its name is one of them."""
    meta = namespace["metadata"]
    return {**(meta.get("labels") or {}), NAME_LABEL: str(meta["name"])}
