"""How close the pods of a gang lie to one another, or could lie: on one node, in one domain, anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gangline.placement.capacity import capacity
from gangline.placement.filters import NO_DOMAIN
from gangline.placement.free_resources import FreeResources, Ints
from gangline.placement.node_table import NodeTable
from gangline.placement.snapshot import PodView

EVERYWHERE = -1
"""In place of a level: over all nodes."""


class Closeness(NamedTuple):
    """How close pods of a gang lie or could lie; the greater the closer.

    Attributes:
        is_one_model: whether their devices are of one model.
        level: place in ``table.levels`` of the narrowest level in one domain of which all lie,
            ``len(table.levels)`` for one node, :data:`EVERYWHERE` for none.
    """

    is_one_model: bool
    level: int


def closeness(table: NodeTable, rows: Sequence[int]) -> Closeness:
    """Return how close pods on these rows lie."""
    chosen = np.array(rows, np.int64)
    models, _ = table.models()
    is_one_model = bool((models[chosen] == models[chosen[0]]).all())
    if len(rows) == 1:
        return Closeness(is_one_model, len(table.levels))
    for level in range(len(table.levels) - 1, -1, -1):
        domains = table.domains[level][chosen]
        if domains[0] != NO_DOMAIN and bool((domains == domains[0]).all()):
            return Closeness(is_one_model, level)
    return Closeness(is_one_model, EVERYWHERE)


def closest(table: NodeTable, room: FreeResources, pods: Sequence[PodView]) -> Closeness:
    """Return how close pods of one shape could lie in a room that takes them all."""
    counts, wanted = capacity(table, room, pods[0]), len(pods)
    models, count = table.models()
    if count > 1:
        own = [np.where(models == model, counts, 0) for model in range(count)]
        levels = [_narrowest(table, one, wanted) for one in own if int(one.sum()) >= wanted]
        if levels:
            return Closeness(is_one_model=True, level=max(levels))
    return Closeness(count == 1, _narrowest(table, counts, wanted))


def _narrowest(table: NodeTable, counts: Ints, wanted: int) -> int:
    """Return the narrowest level of which one domain has room for so many."""
    if int(counts.max(initial=0)) >= wanted:
        return len(table.levels)
    for level in range(len(table.levels) - 1, -1, -1):
        inside = table.domains[level] != NO_DOMAIN
        if np.bincount(table.domains[level][inside], weights=counts[inside]).max(initial=0) >= wanted:
            return level
    return EVERYWHERE
