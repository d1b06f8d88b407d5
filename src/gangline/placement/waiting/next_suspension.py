"""When others are suspended for a gang that waits, and whom. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from gangline.clock import parse_time
from gangline.placement.allocations import Allocations
from gangline.placement.cycle import SchedulingCycle
from gangline.placement.decisions import Suspension
from gangline.placement.gangs import Gang
from gangline.placement.node_table import NodeTable
from gangline.placement.policy import Policy
from gangline.placement.waiting.next_moment import suspension_moments

MOMENTS_MAX = 64
"""Moments that are looked at, the next ones."""


def next_suspension(
    table: NodeTable, allocations: Allocations, policy: Policy, gang: Gang, now: datetime
) -> tuple[datetime, tuple[str, ...]] | None:
    """Return when others will be suspended for a gang, and whom, if nothing else changes; None for never.

    Args:
        table: the nodes and what is left on them, where the gang does not fit.
        allocations: the pods that hold room.
        policy: as the scheduler's.
        gang: that waits, for which nobody is suspended now.
        now: the time.

    Cost: seven passes for this gang alone at most; nothing where no job can go on from a checkpoint.
    """
    alone = msgspec.structs.replace(policy, may_preempt=False)
    found: dict[datetime, tuple[Suspension, ...]] = {}

    def helps(moment: datetime) -> bool:
        decided = SchedulingCycle(table, allocations, alone, now=moment).run([gang])
        found[moment] = decided.suspensions
        allocations.leaving.difference_update(one.gang for one in decided.suspensions)
        return bool(decided.suspensions)

    moments = sorted(moment for moment in set(_moments(allocations, policy, gang, now)) if moment > now)
    moments = moments[:MOMENTS_MAX]
    if not moments or not helps(moments[-1]):
        return None
    first = moments[bisect_left(moments, True, key=helps)]  # later ones help as well: more have run for long
    return first, tuple(one.gang for one in found[first])


def _moments(allocations: Allocations, policy: Policy, gang: Gang, now: datetime) -> Iterator[datetime]:
    """Yield when somebody else may be suspended for the gang."""
    yield from suspension_moments(allocations, policy, now)
    if gang.created:
        yield parse_time(gang.created) + timedelta(seconds=policy.suspension.short_wait_s)
