"""Cut-off aggregation: the GPUs that are left over on several nodes, taken together, and what that costs.

A pod that asks for more GPUs than any node has free would fit as several smaller pods. Which nodes these
would use, and how fast a step is there by the model, is worked out here; nothing is cut unasked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from gangline.placement.amounts import PODS
from gangline.placement.capacity import capacity
from gangline.placement.filters import NO_DOMAIN
from gangline.placement.fit import fewest, has_rules
from gangline.placement.free_resources import Ints
from gangline.placement.gangs import Gang
from gangline.placement.node_table import Bools, NodeTable
from gangline.placement.prediction import Outlook, Workload, outlook
from gangline.placement.snapshot import PodView
from gangline.workloads.requests import GPU


@dataclass(frozen=True, slots=True)
class LeftOver:
    """GPUs of several nodes for one gang.

    Attributes:
        shares: how many of which node, by its name.
        found: what is predicted for them; None where their links are not known.
    """

    shares: dict[str, int]
    found: Outlook | None

    @property
    def words(self) -> str:
        """For example ``4+4 over n1, n2``."""
        return f"{'+'.join(map(str, self.shares.values()))} over {', '.join(self.shares)}"


def left_over(table: NodeTable, gang: Gang, workload: Workload) -> LeftOver | None:
    """Return the GPUs that a gang would get as pods of one GPU each, with their part of all else it asks for.

    The narrowest domain that has enough is taken, and in it the fewest nodes. None where there are not
    enough, where it is cut up already, and where rules about neighbours would have to be thought of anew.
    """
    pod = max(gang.pods, key=lambda pod: pod.request.get(GPU, 0))
    if pod.request.get(GPU, 0) < 2 or has_rules(table, gang):
        return None
    counts = _counts(table, pod)
    for area in _areas(table, gang):
        inside = np.where(area, counts, 0)
        if int(inside.sum()) >= gang.gpus:
            shares = {row: count for row, count in sorted(fewest(inside, gang.gpus).items()) if count}
            return LeftOver(
                {table.names[row]: count for row, count in shares.items()},
                _predicted(table, shares, workload),
            )
    return None


def _counts(table: NodeTable, pod: PodView) -> Ints:
    """Return how many GPUs of each node are left with the pod's share of cpu, memory and all else."""
    each = pod.request[GPU]
    part = {name: -(-amount // each) for name, amount in pod.request.items() if name != PODS}
    small = msgspec.structs.replace(pod, request=part, shape=b"", host_ports=frozenset())
    counts = capacity(table, table.room, small)
    return np.where(table.room.free[:, table.column(PODS)] > 0, counts, 0)


def _areas(table: NodeTable, gang: Gang) -> Iterator[Bools]:
    """Yield the domains of every level from narrow to wide, those with fewest nodes first, then all."""
    required = table.level(gang.group.required_level)
    for level in range(len(table.levels) - 1, max(required, 0) - 1, -1):
        domains = table.domains[level]
        sizes = np.bincount(domains[domains != NO_DOMAIN])
        for domain in np.lexsort((np.arange(len(sizes)), sizes)):
            yield np.asarray(domains == domain)
    if required < 0 and not gang.group.required_level:
        yield np.ones(len(table), np.bool_)


def _predicted(table: NodeTable, shares: dict[int, int], workload: Workload) -> Outlook | None:
    chosen: dict[int, int] = {}
    for row, count in shares.items():
        tables = table.tables(row)
        if tables is None:
            return None
        chosen[row] = tables.choose(int(table.room.gpus[row]), count)
    return outlook(table, chosen, workload)
