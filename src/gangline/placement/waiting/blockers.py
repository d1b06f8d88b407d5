"""Who is in the way of a gang that waits, and who may start before it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf

from gangline.clock import format_time, parse_time
from gangline.placement.allocations import Allocations
from gangline.placement.decisions import Wait
from gangline.placement.gangs import Gang
from gangline.placement.policy import Policy
from gangline.placement.quota import queue_of
from gangline.placement.reserve import Reservation

BLOCKERS_MAX = 3
NODES_NAMED_MAX = 4


@dataclass(frozen=True, slots=True)
class Blocker:
    """Who is in the way: a gang that waits before another one, or one that holds the room that it needs.

    Attributes:
        key: of the gang.
        is_running: whether it holds room.
        priority: of it.
        since: when it came, or started, RFC 3339; empty where nobody says.
    """

    key: str
    is_running: bool
    priority: int
    since: str


def waits_before(
    wait: Wait, kept: Reservation | None, waits: Sequence[Wait], gangs: Mapping[str, Gang]
) -> tuple[Blocker, ...]:
    """Return for whom room is kept, or who is first in the strict queue of a gang that waits."""
    first = ""
    if wait.reason == "Reserved" and kept is not None:
        first = kept.gang
    elif wait.reason == "Behind":
        queue = queue_of(gangs[wait.gang])
        first = next((one.gang for one in waits if queue_of(gangs[one.gang]) == queue), "")
    if first not in gangs or first == wait.gang:
        return ()
    return (Blocker(first, is_running=False, priority=gangs[first].priority, since=gangs[first].created),)


def holds_room(keys: Sequence[str], allocations: Allocations) -> tuple[Blocker, ...]:
    """Return what is known of running gangs, of the first three."""
    found = []
    for key in keys[:BLOCKERS_MAX]:
        pods = list(allocations.by_gang[key].values())
        since = min((pod.started for pod in pods if pod.started), default="")
        priority = max(allocations.priority_of(pod) for pod in pods)
        found.append(Blocker(key, is_running=True, priority=priority, since=since))
    return tuple(found)


def may_pass(gang: Gang, kept: Reservation | None, policy: Policy, now: datetime) -> str:
    """Say who may start before a gang that waits for room, and until when."""
    queue = policy.queues.get(queue_of(gang))
    apart = "nobody of its queue, which is strict; of other queues " if queue and queue.is_strict else ""
    if kept is not None and kept.gang == gang.key:
        if not policy.may_backfill:
            return "nobody"
        if kept.at is not None and kept.at > now:
            return f"{apart}those that end by {format_time(kept.at)}, and those that use other room"
        rest = len(kept.nodes) - NODES_NAMED_MAX
        named = ", ".join(kept.nodes[:NODES_NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")
        return f"{apart}those that use other room than that of {named}, which is kept for it"
    if kept is not None:
        return f"{apart}all that fit beside the room that is kept for {kept.gang}"
    bound_s = max(policy.overdue_after_s, policy.overdue_s(gang.devices))
    if not gang.created or bound_s == inf:
        return f"{apart}all that fit"
    until = format_time(parse_time(gang.created) + timedelta(seconds=bound_s))
    return f"{apart}all that fit, until {until}; then room is kept for it before others of its priority"
