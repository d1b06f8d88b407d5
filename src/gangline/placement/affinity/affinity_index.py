"""Which nodes have pods that others ask to be near to, or apart from. Changed one pod at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gangline.placement.affinity.terms import Term
from gangline.placement.snapshot import PodView

TERMS_MAX = 256
"""Terms whose pods are remembered; the oldest is forgotten first."""


class TermIndex:
    """Terms by a label that each asks for, so that for one pod only few are looked at."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], dict[Term, None]] = {}
        self._others: dict[Term, None] = {}

    def __bool__(self) -> bool:
        return bool(self._by_label or self._others)

    def add(self, term: Term) -> None:
        """Take a term."""
        table = self._by_label.setdefault(term.labels[0], {}) if term.labels else self._others
        table[term] = None

    def remove(self, term: Term) -> None:
        """Forget a term."""
        if not term.labels:
            del self._others[term]
            return
        table = self._by_label[term.labels[0]]
        del table[term]
        if not table:
            del self._by_label[term.labels[0]]

    def about(self, pod: PodView) -> Iterator[Term]:
        """Yield the terms that are about a pod. Cost: a look-up for each of its labels."""
        tables = [self._by_label[item] for item in pod.labels.items() if item in self._by_label]
        for table in [self._others, *tables]:
            for term in table:
                if term.matches(pod.namespace, pod.labels):
                    yield term


class AffinityIndex:
    """The pods that hold room, by the terms that are about them.

    Args:
        pods: all of them, whenever they are looked through.

    Cost: nothing as long as no pod asks anything of its neighbours.
    """

    def __init__(self, pods: Iterable[PodView]) -> None:
        self._pods = pods
        self._known: dict[Term, dict[str, str]] = {}
        self._known_terms = TermIndex()
        self._keeping: dict[Term, dict[str, str]] = {}
        self._keeping_terms = TermIndex()

    def add(self, pod: PodView) -> None:
        """Take a pod that holds room now."""
        if self._known_terms:
            for term in self._known_terms.about(pod):
                self._known[term][pod.uid] = pod.node_name
        if pod.relations is None:
            return
        for term in pod.relations.apart:
            self._keeping.setdefault(term, {})[pod.uid] = pod.node_name
            self._keeping_terms.add(term)

    def remove(self, pod: PodView) -> None:
        """Forget a pod."""
        if self._known_terms:
            for term in self._known_terms.about(pod):
                self._known[term].pop(pod.uid, None)
        for term in pod.relations.apart if pod.relations else ():
            self._keeping[term].pop(pod.uid, None)
            if not self._keeping[term]:
                del self._keeping[term]
                self._keeping_terms.remove(term)

    def keeping_away(self, pods: Iterable[PodView]) -> dict[Term, Mapping[str, str]]:
        """Return the terms by which pods that hold room keep one of these away, each with such pods."""
        if not self._keeping_terms:
            return {}
        return {term: self._keeping[term] for pod in pods for term in self._keeping_terms.about(pod)}

    def matching(self, term: Term) -> Mapping[str, str]:
        """Return the pods that a term is about: uid -> node. Cost: 1 µs a pod the first time."""
        if term not in self._known:
            while len(self._known) >= TERMS_MAX:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self._known_terms.remove(oldest)
            self._known_terms.add(term)
            self._known[term] = {
                pod.uid: pod.node_name for pod in self._pods if term.matches(pod.namespace, pod.labels)
            }
        return self._known[term]
