"""Find places for a gang, of one group or of several that are decided together: for all of it or for nothing.

What one domain must hold is tried domain by domain, the one with the least room that suffices first. Groups
that ask for domains of their own are placed one after another on the same room, and given up together.
"""

from __future__ import annotations

import numpy as np

from gangline.placement.capacity import Spot, capacity, take
from gangline.placement.claims.devices import DeviceId
from gangline.placement.claims.serve import with_devices
from gangline.placement.claims.sharing import only_claim, shared_claims, with_claim, without_claim
from gangline.placement.fit import by_shape, place_gang
from gangline.placement.free_resources import FreeResources, Ints
from gangline.placement.gangs import Gang
from gangline.placement.groups.domains import domains_of
from gangline.placement.node_table import Bools, NodeTable

SHARED_TRIED_MAX = 64
"""Sets of devices that are tried for a claim which pods of a gang share."""


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
    if shared := shared_claims(gang):
        return _sharing(table, room, gang, shared[0], within, spread_counts)
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


def _sharing(
    table: NodeTable,
    room: FreeResources,
    gang: Gang,
    claim: str,
    within: Bools | None,
    spread_counts: Ints | None,
) -> list[Spot] | None:
    """Place pods that share a claim: its devices first, then the pods where these can be used."""
    first = next(pod for pod in gang.pods if claim in dict(pod.demands))
    alone = only_claim(first, claim)
    fitting = capacity(table, room, alone) > 0
    tried: set[frozenset[DeviceId]] = set()
    for row in np.flatnonzero(fitting if within is None else fitting & within):
        (lead,) = with_devices(table, room, [Spot(alone, int(row))]) or [Spot(alone, int(row))]
        if lead.devices in tried or len(tried) >= SHARED_TRIED_MAX:
            continue
        tried.add(lead.devices)
        left = room.copy()
        left.take(int(row), (), table.gpus_among(int(row), lead.devices), devices=lead.devices)
        spots = place(
            table, left, without_claim(gang, claim, lead), within=within, spread_counts=spread_counts
        )
        if spots is not None:
            return with_claim(gang, claim, lead, spots)
    return None


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
