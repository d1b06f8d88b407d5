"""Find places for a gang, of one group or of several that are decided together: for all of it or for nothing.

What one domain must hold is tried domain by domain, the one with the least room that suffices first. Groups
that ask for domains of their own are placed one after another on the same room, and given up together.
"""

from __future__ import annotations

import numpy as np

from gangline.placement.capacity import Spot, capacity, take
from gangline.placement.fit import by_shape, place_gang
from gangline.placement.gangs import Gang
from gangline.placement.groups.domains import domains_of
from gangline.placement.node_table import Bools, FreeResources, Ints, NodeTable


def place(
    table: NodeTable,
    room: FreeResources,
    gang: Gang,
    *,
    within: Bools | None = None,
    spread_counts: Ints | None = None,
) -> list[Spot] | None:
    """Return a spot for every pod of the gang, or None; nothing is taken.

    Args:
        table: the nodes.
        room: what is left on them.
        gang: its pods are placed whole.
        within: nodes that may be used; None for all.
        spread_counts: for spreading, how many pods of the same job each node has.

    Cost: that of :func:`gangline.placement.fit.place_gang`, for a label that is no level of the table or
    for several groups up to that much for each domain.
    """
    label = gang.group.required_level
    if label and (gang.has_levels or table.level(label) < 0):
        return _in_one_domain(table, room, gang, within)
    if not gang.has_levels:
        return place_gang(table, room, gang, within=within, spread_counts=spread_counts)
    left, spots = room.copy(), []
    for part in gang.parts:
        allowed = part.within if within is None else within if part.within is None else within & part.within
        found = place(table, left, part, within=allowed)
        if found is None:
            return None
        take(table, left, found)
        spots += found
    return spots


def _in_one_domain(
    table: NodeTable, room: FreeResources, gang: Gang, within: Bools | None
) -> list[Spot] | None:
    domains, count = domains_of(table, gang.group.required_level)
    inside = domains >= 0 if within is None else (domains >= 0) & within
    pods, anywhere = by_shape(gang.pods)[0], gang.anywhere()
    totals = np.bincount(domains[inside], weights=capacity(table, room, pods[0])[inside], minlength=count)
    for domain in np.lexsort((np.arange(count), totals)):
        if totals[domain] < len(pods):
            continue
        spots = place(table, room, anywhere, within=inside & (domains == domain))
        if spots is not None:
            return spots
    return None
