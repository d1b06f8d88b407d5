"""Find places for a gang whose pods ask something of their neighbours, all of its pods or none.

Pods are placed one after another, each where the rules allow it beside what runs and those placed before. The
search goes from narrow to wide as for other gangs; where the pods must be near one another, over the domains
of that label, the tightest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from gangline.placement.affinity.preferences import wishes
from gangline.placement.affinity.terms import Relations, Spread, Term
from gangline.placement.capacity import Spot, capacity, node_scores, take
from gangline.placement.claims.serve import with_devices
from gangline.placement.filters import NO_DOMAIN
from gangline.placement.free_resources import FreeResources, Ints
from gangline.placement.gangs import Gang
from gangline.placement.node_table import Bools, Floats, NodeTable
from gangline.placement.snapshot import PodView
from gangline.topology import members
from gangline.workloads.requests import GPU

AREAS_TRIED_MAX = 8
"""Domains of one level in which a gang is tried, the tightest first."""

NO_RELATIONS = Relations()


class Rules:
    """The rules of one gang and of what runs, with counts by domain; changed while its pods are placed.

    Args:
        table: the nodes, and who is on them.
        room: says which pods are taken to be gone.
        pods: all pods of the gang.
    """

    def __init__(self, table: NodeTable, room: FreeResources, pods: Sequence[PodView]) -> None:
        self._table = table
        self._gone = room.gone
        asked = [pod.relations for pod in pods if pod.relations]
        own = {term for found in asked for term in (*found.near, *found.apart, *(s.term for s in found.even))}
        near = table.affinity_index
        self._counts = {term: self._by_domain(term, near.matching(term) if near else {}) for term in own}
        keeping = near.keeping_away(pods) if near else {}
        self._keeping = {term: self._by_domain(term, at) for term, at in keeping.items()}
        for term in {term for found in asked for term in found.apart} - self._keeping.keys():
            self._keeping[term] = self._by_domain(term, {})

    def _by_domain(self, term: Term, pods: Mapping[str, str]) -> Ints:
        domains, count = self._table.label_domains(term.key)
        counts = np.zeros(count, np.int64)
        for uid, node in pods.items():
            row = self._table.index(node)
            if row >= 0 and uid not in self._gone and domains[row] != NO_DOMAIN:
                counts[domains[row]] += 1
        return counts

    def copy(self) -> Rules:
        """Return rules of its own for a trial."""
        other = object.__new__(Rules)
        other._table, other._gone = self._table, self._gone
        other._counts = {term: counts.copy() for term, counts in self._counts.items()}
        other._keeping = {term: counts.copy() for term, counts in self._keeping.items()}
        return other

    def put(self, pod: PodView, row: int) -> None:
        """Count a pod of the gang on a node."""
        for term, counts in self._counts.items():
            domain = self._table.label_domains(term.key)[0][row]
            if domain != NO_DOMAIN and term.matches(pod.namespace, pod.labels):
                counts[domain] += 1
        for term in (pod.relations or NO_RELATIONS).apart:
            domain = self._table.label_domains(term.key)[0][row]
            if domain != NO_DOMAIN:
                self._keeping[term][domain] += 1

    def allowed(self, pod: PodView, eligible: Bools) -> Bools:
        """Return on which nodes the rules let a pod be, apart from room: bool (N,)."""
        found = pod.relations or NO_RELATIONS
        allowed = np.ones(len(self._table), np.bool_)
        for term in found.near:
            allowed &= self.near(term, pod)
        for term in found.apart:
            allowed &= ~self.together(term)
        for spread in found.even:
            allowed &= self.even(spread, pod, eligible)
        return allowed & self.let_in(pod)

    def near(self, term: Term, pod: PodView) -> Bools:
        """Return the nodes that are near enough; all with the label for the first of a group."""
        counts = self._counts[term]
        is_first = not counts.any() and term.matches(pod.namespace, pod.labels)
        return self._in(term, np.ones(len(counts), np.bool_) if is_first else counts > 0)

    def even(self, spread: Spread, pod: PodView, eligible: Bools) -> Bools:
        """Return the nodes of domains that have not too many; a domain needs a permitted node to count."""
        domains, _ = self._table.label_domains(spread.term.key)
        counts = self._counts[spread.term]
        there = np.unique(domains[eligible & (domains != NO_DOMAIN)])
        least = int(counts[there].min()) if len(there) >= max(spread.domains, 1) else 0
        own = int(spread.term.matches(pod.namespace, pod.labels))
        return self._in(spread.term, counts + own - least <= spread.skew)

    def together(self, term: Term) -> Bools:
        """Return the nodes in a domain that has pods of a term."""
        return self._in(term, self._counts[term] > 0)

    def pods_of(self, term: Term) -> int:
        """Return how many pods a term is about."""
        return int(self._counts[term].sum())

    def let_in(self, pod: PodView) -> Bools:
        """Return the nodes from which no pod that is there keeps this one away."""
        allowed = np.ones(len(self._table), np.bool_)
        for term, counts in self._keeping.items():
            if counts.any() and term.matches(pod.namespace, pod.labels):
                allowed &= ~self._in(term, counts > 0)
        return allowed

    def crowding(self, pod: PodView) -> Ints:
        """Return how many pods it shall be spread from are in the domain of each node: int64 (N,)."""
        total = np.zeros(len(self._table), np.int64)
        for spread in (pod.relations or NO_RELATIONS).even:
            domains, _ = self._table.label_domains(spread.term.key)
            counts = self._counts[spread.term]
            total += np.where(domains == NO_DOMAIN, 0, counts[domains] if len(counts) else 0)
        return total

    def about(self, pod: PodView) -> tuple[Term, ...]:
        """Return the terms that are about a pod."""
        terms = dict.fromkeys([*self._counts, *self._keeping])
        return tuple(term for term in terms if term.matches(pod.namespace, pod.labels))

    def is_alone(self, pod: PodView) -> bool:
        """Return whether a pod keeps others of its kind away."""
        found = pod.relations or NO_RELATIONS
        return any(term.matches(pod.namespace, pod.labels) for term in found.apart)

    def joined(self, pods: Iterable[PodView]) -> list[str]:
        """Return the labels in which all pods must agree because they ask for one another's nearness."""
        keys = []
        for pod in pods:
            for term in (pod.relations or NO_RELATIONS).near:
                if term.matches(pod.namespace, pod.labels) and not self._counts[term].any():
                    keys.append(term.key)
        return list(dict.fromkeys(keys))

    def _in(self, term: Term, chosen: Bools) -> Bools:
        """Return the nodes of some domains; those without the label are in none."""
        domains, count = self._table.label_domains(term.key)
        if not count:
            return np.zeros(len(domains), np.bool_)
        return np.asarray((domains != NO_DOMAIN) & chosen[domains])


def assign(
    table: NodeTable,
    room: FreeResources,
    gang: Gang,
    shapes: list[list[PodView]],
    within: Bools | None,
    spread_counts: Ints | None,
) -> list[list[tuple[PodView, int]]] | None:
    """Return the row of a node for every pod of a gang with rules, or None; nothing is taken.

    Args:
        table: the nodes.
        room: what is left on them.
        gang: its pods are placed whole.
        shapes: its pods by shape, those that ask for most first.
        within: nodes that may be used; None for all.
        spread_counts: for spreading pods without GPUs, how many pods of the same job each node has.

    Returns:
        (pod, row) by groups of pods that can stand for one another, in the order of their ranks.

    Cost: some 0.2 ms a pod on 10,000 nodes, for each set of nodes that is tried.
    """
    rules = Rules(table, room, gang.pods)
    if not gang.devices:  # those that must be together first: they are the hardest to place
        shapes = sorted(shapes, key=lambda pods: not rules.joined(pods))
    allowed = np.ones(len(table), np.bool_) if within is None else within
    counts = np.where(allowed, capacity(table, room, shapes[0][0]), 0)
    first = shapes[0][0]
    for term in (first.relations or NO_RELATIONS).apart:
        if term.matches(first.namespace, first.labels):
            counts = _one_each(counts, table.label_domains(term.key)[0])
    for area in _areas(table, gang, rules, counts, allowed, len(shapes[0])):
        inside = _required_domain(table, gang, area)
        areas = area, allowed & inside, inside
        found = _assign_in(table, room, gang, shapes, rules.copy(), areas, spread_counts)
        if found is not None:
            return _by_rank(table, rules, found)
    return None


def _required_domain(table: NodeTable, gang: Gang, area: Bools) -> Bools:
    """Return the nodes that the gang may use at all if it uses these: spread counts no others."""
    if not gang.group.required_level:
        return np.ones(len(table), np.bool_)
    domains = table.domains[table.level(gang.group.required_level)]
    return np.asarray(domains == domains[int(np.argmax(area))])


def _by_rank(
    table: NodeTable, rules: Rules, found: list[tuple[PodView, int]]
) -> list[list[tuple[PodView, int]]]:
    """Return the rows by groups of pods for which the same rules hold; ranks go to nodes by name."""
    name = table.names.__getitem__
    alike: dict[object, list[tuple[PodView, int]]] = {}
    for pod, row in found:
        alike.setdefault((pod.shape or pod.key, rules.about(pod)), []).append((pod, row))
    return [
        list(zip((pod for pod, _ in group), sorted((row for _, row in group), key=name), strict=True))
        for group in alike.values()
    ]


def _areas(
    table: NodeTable, gang: Gang, rules: Rules, counts: Ints, allowed: Bools, wanted: int
) -> Iterator[Bools]:
    """Yield sets of nodes to try: narrow levels inside the domains in which all must be, these, then all.

    Gangs with devices are tried on those of one model before.

    Args:
        table: the nodes.
        gang: what is placed.
        rules: of the gang.
        counts: how many pods of the first shape each node takes.
        allowed: nodes that may be used.
        wanted: how many pods of the first shape there are.
    """
    keys = rules.joined(gang.pods)
    models, count = table.models()
    cuts: list[list[Ints]] = [[models], []] if gang.devices and count > 1 else [[]]
    if gang.group.required_level and table.level(gang.group.required_level) < 0:
        return
    labels = [table.label_domains(key)[0] for key in keys]
    if gang.group.required_level:
        labels.append(table.domains[table.level(gang.group.required_level)])
    for cut in cuts:
        for level in range(len(table.levels) - 1, -1, -1):
            found = _by_room([*labels, *cut, table.domains[level]], counts, allowed, wanted)
            yield from islice(found, AREAS_TRIED_MAX)
        if labels or cut:
            yield from _by_room([*labels, *cut], counts, allowed, wanted)
    if not gang.group.required_level:
        yield allowed


def _one_each(counts: Ints, domains: Ints) -> Ints:
    """Return the counts of pods of which no two may share a domain: one, at its first node with room."""
    found = np.zeros_like(counts)
    rows = np.flatnonzero(counts > 0)
    _, first = np.unique(domains[rows], return_index=True)
    found[rows[first]] = 1
    alone = rows[domains[rows] == NO_DOMAIN]
    found[alone] = counts[alone]
    return found


def _by_room(labels: list[Ints], counts: Ints, allowed: Bools, wanted: int) -> Iterator[Bools]:
    """Yield the sets of nodes that agree in all labels and have room enough, those with least room first."""
    stacked = np.stack(labels)
    inside = allowed & (stacked != NO_DOMAIN).all(axis=0)
    if not inside.any():
        return
    _, group = np.unique(stacked[:, inside], axis=1, return_inverse=True)
    group = group.reshape(-1)
    rows = np.flatnonzero(inside)
    totals = np.bincount(group, weights=counts[rows])
    for number in np.lexsort((np.arange(len(totals)), totals)):
        if totals[number] >= wanted:
            area = np.zeros(len(allowed), np.bool_)
            area[rows[group == number]] = True
            yield area


def _assign_in(
    table: NodeTable,
    room: FreeResources,
    gang: Gang,
    shapes: list[list[PodView]],
    rules: Rules,
    areas: tuple[Bools, Bools, Bools],
    spread_counts: Ints | None,
) -> list[tuple[PodView, int]] | None:
    """Place pods one by one, or return None: in the first area, further shapes else in the second.

    The third area says which nodes count where pods must be spread evenly.
    """
    left = room.copy()
    used = np.zeros(len(table), np.int64)
    found: list[tuple[PodView, int]] = []
    for shape in shapes:
        for number, pod in enumerate(shape):
            counts = capacity(table, left, pod)
            fitting = (counts > 0) & rules.allowed(pod, table.eligible(pod) & areas[2])
            rows = np.flatnonzero(fitting & areas[0])
            if not len(rows) and shape is not shapes[0]:
                rows = np.flatnonzero(fitting & areas[1])
            if not len(rows):
                return None
            busy = rules.crowding(pod)
            keys: list[Floats | Ints]
            if gang.packs:
                most = 1 if rules.is_alone(pod) else len(shape) - number
                scores = node_scores(table, left, pod, 1, wishes(table, pod))[rows]
                keys = [rows, scores, -np.minimum(counts[rows], most), -used[rows], busy[rows]]
            elif spread_counts is not None:
                keys = [rows, used[rows] + spread_counts[rows], busy[rows]]
            else:
                keys = [rows, used[rows], busy[rows]]
            row = int(rows[np.lexsort(keys)[0]])
            gpus, tables = pod.request.get(GPU, 0), table.tables(row)
            chosen = tables.choose(int(left.gpus[row]), gpus) if gpus and tables else 0
            spot = Spot(pod, row, members(chosen))
            take(table, left, with_devices(table, left, [spot]) or [spot])
            rules.put(pod, row)
            used[row] += 1
            found.append((pod, row))
    return found
