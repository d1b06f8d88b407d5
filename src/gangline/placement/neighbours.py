"""Which nodes have pods that others ask to be near to, or apart from. Changed one pod at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gangline.placement.affinity import Term
from gangline.placement.snapshot import PodView

TERMS_MAX = 256
"""Terms whose pods are remembered; the oldest is forgotten first."""


class Neighbours:
    """The pods that hold room, by the terms that are about them.

    Args:
        pods: all of them, whenever they are looked through.

    Cost: nothing as long as no pod asks anything of its neighbours.
    """

    def __init__(self, pods: Iterable[PodView]) -> None:
        self._pods = pods
        self._known: dict[Term, dict[str, str]] = {}
        self._keeping: dict[Term, dict[str, str]] = {}

    @property
    def keeping(self) -> Mapping[Term, Mapping[str, str]]:
        """Terms that pods which hold room want to be apart from, each with these pods: uid -> node."""
        return self._keeping

    def add(self, pod: PodView) -> None:
        """Take a pod that holds room now."""
        for term, found in self._known.items():
            if term.matches(pod.namespace, pod.labels):
                found[pod.uid] = pod.node_name
        for term in pod.relations.apart if pod.relations else ():
            self._keeping.setdefault(term, {})[pod.uid] = pod.node_name

    def remove(self, pod: PodView) -> None:
        """Forget a pod."""
        for found in self._known.values():
            found.pop(pod.uid, None)
        for term in pod.relations.apart if pod.relations else ():
            self._keeping[term].pop(pod.uid, None)
            if not self._keeping[term]:
                del self._keeping[term]

    def matching(self, term: Term) -> Mapping[str, str]:
        """Return the pods that a term is about: uid -> node. Cost: 1 µs a pod the first time."""
        if term not in self._known:
            while len(self._known) >= TERMS_MAX:
                del self._known[next(iter(self._known))]
            self._known[term] = {
                pod.uid: pod.node_name for pod in self._pods if term.matches(pod.namespace, pod.labels)
            }
        return self._known[term]
