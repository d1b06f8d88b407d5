"""Moments from which on time alone may change what a pass decides. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from gangline.clock import parse_time
from gangline.placement.allocations import Allocations
from gangline.placement.gangs import Gang
from gangline.placement.policy import Policy
from gangline.placement.preemption.victims import running_gang

FAR_S: Final = 100 * 365 * 86_400.0


def next_moment(
    gangs: Iterable[Gang], allocations: Allocations, policy: Policy, now: datetime
) -> datetime | None:
    """Return when a pass may decide otherwise about gangs that wait, if nothing else changes; None for never.

    Cost: 5 µs for each gang, and 10 µs for each that can go on from a checkpoint.
    """
    moments = chain(
        suspension_moments(allocations, policy, now), *(_moments_of(gang, policy) for gang in gangs)
    )
    return min((moment for moment in moments if moment > now), default=None)


def suspension_moments(allocations: Allocations, policy: Policy, now: datetime) -> Iterator[datetime]:
    """Yield when running gangs may be suspended at the earliest, and for more of those that wait."""
    bounds = policy.suspension
    if not bounds.long_after_device_s:
        return
    for key, service in allocations.services.items():
        pods = list(allocations.by_gang.get(key, {}).values())
        if not service.is_resumable or not pods or service.suspensions >= bounds.suspensions_max:
            continue
        running = running_gang(key, pods, allocations, now)
        began = now - timedelta(seconds=running.ran_s)
        until_long_s = (bounds.long_after_device_s - service.device_s) / running.devices
        yield _after(began, bounds.min_run_s)
        yield _after(began, max(until_long_s, bounds.min_run_s))


def _moments_of(gang: Gang, policy: Policy) -> Iterator[datetime]:
    """Yield when a gang that waits has others suspended, may be cut, and is overdue."""
    if gang.created:
        created, devices = parse_time(gang.created), gang.devices
        for after_s in (policy.suspension.short_wait_s, policy.whole_s(devices), policy.overdue_s(devices)):
            yield _after(created, after_s)


def _after(moment: datetime, seconds: float) -> datetime:
    """Return a later moment, of bounds that are meant for never too."""
    return moment + timedelta(seconds=min(seconds, FAR_S))
