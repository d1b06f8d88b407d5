"""Find places for one gang, all of its pods or none.

The search goes from the narrowest domain to the widest: one node, then each level of the network, then the
whole table; a gang with devices looks among those of one model first. In each, the domain with the least room
that suffices is taken (best fit), so that large ones stay whole; inside a domain the fewest nodes. Where a
node can hold the whole gang, the one whose free GPUs are fastest together wins, and of these the one whose
other GPUs lose least. Pods without devices leave nodes that have some to others.

Pods without devices that form no gang are spread: fewest pods of the same job first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from gangline.placement.affinity.pod_affinity import assign
from gangline.placement.affinity.preferences import wishes
from gangline.placement.capacity import UNBOUNDED, Spot, capacity, node_scores, take
from gangline.placement.claims.serve import with_devices
from gangline.placement.filters import NO_DOMAIN
from gangline.placement.free_resources import FreeResources, Ints
from gangline.placement.gangs import Gang
from gangline.placement.multi_shape import mixes_on
from gangline.placement.node_table import Bools, Floats, NodeTable
from gangline.placement.snapshot import PodView
from gangline.workloads.requests import GPU, device_count

SPREAD_STEP = 1 << 20
"""Where pods are spread, one of the same role counts this much, another pod of the job 1."""

DOMAINS_TRIED_MAX = 8
"""Domains of one level in which a gang of several shapes is tried, the best ones first."""

NO_MODELS: Ints = np.zeros(0, np.int64)

MIXED_DOMAINS_MAX = 32
"""Domains of one level in which the shapes of a gang are packed together."""


def place_gang(
    table: NodeTable,
    room: FreeResources,
    gang: Gang,
    *,
    within: Bools | None = None,
    spread_counts: Ints | None = None,
) -> list[Spot] | None:
    """Return a spot for every pod of one group of pods, or None; nothing is taken.

    Args:
        table: the nodes.
        room: what is left on them.
        gang: its pods are placed whole; what must be equal for their nodes is a level of the table.
        within: nodes that may be used; None for all.
        spread_counts: for spreading, how many pods of the same job each node has.

    Cost: about 50 µs for a small gang on 5,000 nodes, once counts for its shape are known.
    """
    room = visible_room(table, room, gang)
    shapes = by_shape(gang.pods)
    if _is_required(table, gang):  # a node without the label lies in no domain
        inside = table.domains[table.level(gang.group.required_level)] != NO_DOMAIN
        within = inside if within is None else within & inside
    if has_rules(table, gang):
        assigned = assign(table, room, gang, shapes, within, spread_counts)
        return with_devices(table, room, _on_rows(table, room, assigned)) if assigned is not None else None
    counts = capacity(table, room, shapes[0][0])
    if within is not None:
        counts = np.where(within, counts, 0)
    if len(shapes) == 1 and not gang.packs:
        spread = _spread(shapes[0], counts, spread_counts)
        return with_devices(table, room, spread) if spread is not None else None
    for rows in _domains(table, room, gang, shapes[0], counts):
        spots = _place_in(table, room, shapes, rows, _around(table, gang, rows, within))
        if spots is not None:
            return spots
    mixed = _mixed(table, room, gang, shapes, within) if len(shapes) > 1 else None
    return with_devices(table, room, mixed) if mixed is not None else None


def visible_room(table: NodeTable, room: FreeResources, gang: Gang) -> FreeResources:
    """Return the room as a gang sees it whose pods may get certain GPUs alone; the same one for any other."""
    visible = next((pod.visible_gpus for pod in gang.pods if pod.visible_gpus is not None), None)
    if visible is None:
        return room
    seen = room.copy()
    for row, node in enumerate(table.views):
        if node.gpus is not None:
            seen.gpus[row] &= node.gpus.mask_of(visible)
    return seen


def has_rules(table: NodeTable, gang: Gang) -> bool:
    """Return whether neighbours matter: to pods of the gang, or pods that run to them."""
    if any(pod.relations is not None and pod.relations.is_required for pod in gang.pods):
        return True
    return table.affinity_index is not None and bool(table.affinity_index.keeping_away(gang.pods))


def _on_rows(table: NodeTable, room: FreeResources, assigned: list[list[tuple[PodView, int]]]) -> list[Spot]:
    """Return the spots of pods whose nodes are chosen, group by group; GPUs of a node are chosen together."""
    left = room.copy()
    spots: list[Spot] = []
    for group in assigned:
        by_row: dict[int, list[PodView]] = {}
        for pod, row in group:
            by_row.setdefault(row, []).append(pod)
        common = _common_gpus(table, left, by_row)
        for row, pods in by_row.items():
            found = _on_node(table, left, pods, row, common.get(row))
            take(table, left, found)
            spots += found
    return spots


def by_shape(pods: Sequence[PodView]) -> list[list[PodView]]:
    """Return the pods in groups of one shape: those with most devices first, then the larger groups.

    Of those with equally many GPUs the ones with claims of other devices go first.
    """
    groups: dict[bytes | str, list[PodView]] = {}
    for pod in pods:
        groups.setdefault(pod.shape or pod.key, []).append(pod)
    return sorted(groups.values(), key=_turn)


def _turn(alike: list[PodView]) -> tuple[int, bool, int]:
    return -device_count(alike[0].request), not alike[0].demands, -len(alike)


def _is_required(table: NodeTable, gang: Gang) -> bool:
    return bool(gang.group.required_level) and table.level(gang.group.required_level) >= 0


def _around(table: NodeTable, gang: Gang, rows: Ints, within: Bools | None) -> Bools | None:
    """Return where the other pods of a gang may be when these rows take the first ones; None for anywhere."""
    if not _is_required(table, gang):
        return within
    domains = table.domains[table.level(gang.group.required_level)]
    same = np.asarray(domains == domains[rows[0]])
    return same if within is None else within & same


def _domains(
    table: NodeTable, room: FreeResources, gang: Gang, pods: list[PodView], counts: Ints
) -> Iterator[Ints]:
    """Yield sets of rows in which the pods fit, the best first: nodes, then domains level by level."""
    wanted, preferred = len(pods), wishes(table, pods[0])
    rows = np.flatnonzero(counts >= wanted)
    if len(rows):
        scores = node_scores(table, room, pods[0], wanted, preferred)[rows]
        for position in _lowest(scores, DOMAINS_TRIED_MAX):
            yield rows[position : position + 1]
    if int(counts.sum()) >= wanted:
        models, count = table.models() if gang.devices else (NO_MODELS, 1)
        if count > 1:
            yield from _level_domains(table, gang, wanted, counts, preferred, models)
        yield from _level_domains(table, gang, wanted, counts, preferred)


def _level_domains(
    table: NodeTable,
    gang: Gang,
    wanted: int,
    counts: Ints,
    preferred: Ints | None,
    models: Ints | None = None,
) -> Iterator[Ints]:
    """Yield the rows of domains with room for the pods: narrow levels first, in each the least room.

    Domains are preferred by the mean of their nodes with room; that counts before how much room is left over.
    With models, the nodes of each are domains of their own.
    """
    required = table.level(gang.group.required_level)
    if gang.group.required_level and required < 0:
        return
    for level in range(len(table.levels) - 1, max(required, 0) - 1, -1):
        domains = table.domains[level]
        if models is not None:
            inside = domains != NO_DOMAIN
            domains = np.where(inside, domains * (int(models.max()) + 1) + models, NO_DOMAIN)
        totals = np.bincount(domains - NO_DOMAIN, weights=counts)[1:]  # the first are those of none
        fitting = np.flatnonzero(totals >= wanted)
        values = totals[fitting].astype(np.float64)
        if preferred is not None:
            has_room = (domains != NO_DOMAIN) & (counts > 0)
            sums = np.bincount(domains[has_room], weights=preferred[has_room], minlength=len(totals))
            means = sums[fitting] / np.bincount(domains[has_room], minlength=len(totals))[fitting]
            values = np.argsort(np.lexsort((values, -means))).astype(np.float64)
        # Of a required level every domain may be the only one that the other pods of the gang fit as well.
        is_last = level == required and gang.group.required_level
        for position in _lowest(values, len(fitting) if is_last else DOMAINS_TRIED_MAX):
            yield np.flatnonzero((domains == fitting[position]) & (counts > 0))
    if gang.group.required_level:
        return
    if models is None:
        yield np.flatnonzero(counts > 0)
        return
    of_models = np.bincount(models, weights=counts)
    for model in np.lexsort((np.arange(len(of_models)), of_models)):
        if of_models[model] >= wanted:
            yield np.flatnonzero((models == model) & (counts > 0))


def _lowest(values: Floats, count: int) -> Iterator[int]:
    """Yield the positions of the lowest values, ascending; ties by position. Mostly the first one will do."""
    if len(values) == 0:
        return
    first = int(values.argmin())
    yield first
    if count == 1 or len(values) == 1:
        return
    part = np.arange(len(values)) if len(values) <= count else np.argpartition(values, count)[:count]
    rest = [int(p) for p in part[np.lexsort((part, values[part]))] if p != first]
    yield from rest[: count - 1]


def _place_in(
    table: NodeTable,
    room: FreeResources,
    shapes: list[list[PodView]],
    rows: Ints,
    around: Bools | None,
) -> list[Spot] | None:
    """Place the first shape on these rows and the others on the same ones, else wherever they may be."""
    spots = _pack(table, room, shapes[0], rows)
    if spots is None or len(shapes) == 1:
        return spots
    left = room.copy()
    take(table, left, spots)
    for pods in shapes[1:]:
        counts = capacity(table, left, pods[0])
        near = np.zeros(len(table), np.bool_)
        near[rows] = True
        anywhere = around if around is not None else np.ones(len(table), np.bool_)
        areas = [near, anywhere]
        if device_count(pods[0].request):
            models, _ = table.models()
            areas.insert(1, anywhere & np.isin(models, models[rows]))
        for allowed in areas:
            found = np.flatnonzero(np.where(allowed, counts, 0) > 0)
            if int(counts[found].sum()) >= len(pods):
                more = _pack(table, left, pods, found)
                if more is None:
                    continue
                take(table, left, more)
                spots += more
                break
        else:
            return None
    return spots


def _mixed(
    table: NodeTable, room: FreeResources, gang: Gang, shapes: list[list[PodView]], within: Bools | None
) -> list[Spot] | None:
    """Place shapes together that do not fit one after the other: everywhere, and then as near as may be."""
    allowed = np.ones(len(table), np.bool_) if within is None else within
    required = table.level(gang.group.required_level)
    if gang.group.required_level and required < 0:
        return None
    found = None
    if not gang.group.required_level:
        found = mixes_on(table, room, shapes, np.flatnonzero(allowed))
        if found is None:
            return None
    counts = [np.where(allowed, capacity(table, room, pods[0]), 0) for pods in shapes]
    for level in range(len(table.levels) - 1, max(required, 0) - 1, -1):
        domains = table.domains[level]
        inside = domains != NO_DOMAIN
        totals = [np.bincount(domains[inside], weights=one[inside]) for one in counts]
        fitting = [total >= len(pods) for total, pods in zip(totals, shapes, strict=True)]
        for domain in np.flatnonzero(np.logical_and.reduce(fitting))[:MIXED_DOMAINS_MAX]:
            near = mixes_on(table, room, shapes, np.flatnonzero(allowed & (domains == domain)))
            if near is not None:
                return _spots_of(table, room, shapes, near)
    return _spots_of(table, room, shapes, found) if found is not None else None


def _spots_of(
    table: NodeTable,
    room: FreeResources,
    shapes: list[list[PodView]],
    found: list[tuple[int, tuple[int, ...]]],
) -> list[Spot]:
    """Return the spots of pods of which so many of each shape go to these rows; ranks by names of nodes."""
    left = room.copy()
    spots: list[Spot] = []
    found = sorted(found, key=lambda entry: table.names[entry[0]])
    for place, pods in enumerate(shapes):
        first = 0
        common = _common_gpus(table, left, [row for row, mix in found if mix[place]])
        for row, mix in found:
            mine = pods[first : first + mix[place]]
            here = _on_node(table, left, mine, row, common.get(row)) if mine else []
            take(table, left, here)
            spots += here
            first += mix[place]
    return spots


def _pack(table: NodeTable, room: FreeResources, pods: list[PodView], rows: Ints) -> list[Spot] | None:
    """Put pods of one shape on the fewest of these rows; their room must suffice, each for itself.

    Nodes are filled from the one with most room; the last one is the fullest that takes the rest. Ranks go to
    the nodes in the order of their names. Where nodes count on the same devices of claims, and these do not
    suffice, one pod goes after another, or there is no place for them.
    """
    preferred = wishes(table, pods[0])
    if preferred is not None:  # of nodes with equal room the first ones are taken
        rows = rows[np.lexsort((rows, -preferred[rows]))]
    counts = capacity(table, room, pods[0])[rows]
    shares = fewest(counts, len(pods))
    spots: list[Spot] = []
    first = 0
    common = _common_gpus(table, room, [int(rows[position]) for position in shares])
    for position in sorted(shares, key=lambda position: table.names[rows[position]]):
        count, row = shares[position], int(rows[position])
        spots += _on_node(table, room, pods[first : first + count], row, common.get(row))
        first += count
    found = with_devices(table, room, spots)
    return found if found is not None else _one_by_one(table, room, pods, rows)


def _one_by_one(table: NodeTable, room: FreeResources, pods: list[PodView], rows: Ints) -> list[Spot] | None:
    """Put each pod on the first of these rows that has devices for its claims beside those before it."""
    left, spots = room.copy(), []
    for pod in pods:
        counts = capacity(table, left, pod)[rows]
        if not counts.any():
            return None
        row = int(rows[np.argmax(counts > 0)])
        found = with_devices(table, left, _on_node(table, left, [pod], row))
        if found is None:
            return None
        take(table, left, found)
        spots += found
    return spots


def fewest(counts: Ints, wanted: int) -> dict[int, int]:
    """Return how many of the wanted pods go to which position: fewest positions, least left over.

    Example:
        >>> fewest(np.array([3, 3, 2, 1]), 7)
        {0: 3, 1: 3, 3: 1}
    """
    order = np.argsort(-counts, kind="stable")
    sums = counts[order].cumsum()
    full = int(sums.searchsorted(wanted))
    shares = {int(position): int(counts[position]) for position in order[:full]}
    rest = wanted - (int(sums[full - 1]) if full else 0)
    tail = order[full:]
    enough = tail[counts[tail] >= rest]
    smallest = enough[counts[enough] == counts[enough[-1]]]
    shares[int(smallest[0])] = rest
    return shares


def _common_gpus(table: NodeTable, room: FreeResources, rows: Collection[int]) -> dict[int, int]:
    """Return for each of the nodes that share a gang what is free on all of its kind; {} for one."""
    if len(rows) < 2:
        return {}
    common: dict[int, int] = {}
    for row in rows:
        kind = int(table.kind_of[row])
        common[kind] = common.get(kind, -1) & int(room.gpus[row])
    return {row: common[int(table.kind_of[row])] for row in rows}


def _on_node(
    table: NodeTable, room: FreeResources, pods: list[PodView], row: int, common: int | None = None
) -> list[Spot]:
    """Return the spots of pods on one node; ``common`` of :func:`_common_gpus` where others are elsewhere."""
    gpus = pods[0].request.get(GPU, 0)
    tables = table.tables(row)
    if not gpus or tables is None:
        return [Spot(pod, row) for pod in pods]
    free, count = int(room.gpus[row]), gpus * len(pods)
    mask = tables.choose(free, count) if common is None else tables.choose_cut(free, count, common)
    chosen = tables.ring(mask)
    return [Spot(pod, row, chosen[index * gpus : (index + 1) * gpus]) for index, pod in enumerate(pods)]


def _spread(pods: list[PodView], counts: Ints, spread_counts: Ints | None) -> list[Spot] | None:
    """Put pods on the nodes with the fewest of their job, the first by name of equal ones."""
    if int(counts.sum()) < len(pods):
        return None
    spread_counts = np.zeros(len(counts), np.int64) if spread_counts is None else spread_counts.copy()
    spread_counts[counts <= 0] = UNBOUNDED
    left = counts.copy()
    spots = []
    for pod in pods:
        row = int(np.argmin(spread_counts))
        spots.append(Spot(pod, row))
        left[row] -= 1
        spread_counts[row] = spread_counts[row] + SPREAD_STEP if left[row] > 0 else UNBOUNDED
    return spots
