"""Which devices claims get on one node: the first by order that all requests and constraints allow. Pure.

The search is exhaustive: it says that nothing fits only if nothing does. Of devices that are alike in all
that the claims ask about one is tried, so that as a rule it takes as many steps as devices are wanted.
Source: kube-scheduler 1.37, whose first fit is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from gangline.placement.claims.demands import Choice, ClaimDemand, Constraint
from gangline.placement.claims.devices import Device, Pool
from gangline.workloads.cel import NoValue

RESULTS_MAX = 32
"""Devices of one claim. Source: ``AllocationResultsMaxSize`` of ``resource.k8s.io/v1``."""

STEPS_MAX = 20_000
"""Devices that are tried for the claims of a pod on one node, before it is given up: 0.2 s."""


class GivenDevice(msgspec.Struct, frozen=True, gc=False):
    """A device for a request."""

    choice: Choice
    device: Device


class Unusable(Exception):
    """A node cannot serve claims for another reason than that too few devices are left; the text says why."""


def allocate(
    demands: Sequence[ClaimDemand], pools: Sequence[Pool], is_taken: Callable[[Device], bool]
) -> tuple[tuple[GivenDevice, ...], ...] | None:
    """Return the devices of each claim, or None where there are not enough; nothing is taken.

    Args:
        demands: claims of one pod, which are served together.
        pools: that the node may use.
        is_taken: whether another claim holds a device.

    Raises:
        Unusable: a selector has no value for a device, all of a pool are asked for that is being updated, or
            the search takes too long.

    Cost: 10 µs for each device that is tried.
    """
    search = _Search(demands, pools, is_taken)
    return tuple(map(tuple, search.found)) if search.claim(0) else None


class _Search:
    """The state of a search: what each claim has been given so far."""

    def __init__(
        self, demands: Sequence[ClaimDemand], pools: Sequence[Pool], is_taken: Callable[[Device], bool]
    ) -> None:
        self._demands = demands
        self._pools = pools
        self._is_taken = is_taken
        self.found: list[list[GivenDevice]] = [[] for _ in demands]
        self._users: dict[Device, list[int]] = {}
        self._values: list[list[list[tuple[str, Any]]]] = [[[] for _ in one.constraints] for one in demands]
        self._attributes = sorted({one.attribute for demand in demands for one in demand.constraints})
        self._choices = [
            choice for demand in demands for request in demand.requests for choice in request.choices
        ]
        self._alike: dict[Device, tuple[Any, ...]] = {}
        self._steps = 0

    def claim(self, index: int) -> bool:
        """Serve a claim and all after it."""
        return index == len(self._demands) or self._request(index, 0)

    def _request(self, index: int, number: int) -> bool:
        """Serve a request, by the first of its choices that can be, and all after it."""
        requests = self._demands[index].requests
        if number == len(requests):
            return self.claim(index + 1)
        return any(
            self._some(index, number, choice, choice.count, 0)
            if choice.count
            else self._all(index, number, choice)
            for choice in requests[number].choices
        )

    def _all(self, index: int, number: int, choice: Choice) -> bool:
        """Give a request all devices that match, none of which may be in use."""
        if flawed := next((pool for pool in self._pools if pool.flaw), None):
            pool = f"resource pool {flawed.driver}/{flawed.name}"
            raise Unusable(f"{pool}, all of which is asked for, {flawed.flaw}")
        wanted = [device for _, device in self._devices(0) if self._matches(choice, device)]
        before = len(self.found[index])
        is_served = 0 < len(wanted) <= RESULTS_MAX - before
        is_served = is_served and all(self._give(index, choice, device) for device in wanted)
        is_served = is_served and self._request(index, number + 1)
        while not is_served and len(self.found[index]) > before:
            self._take_back(index)
        return is_served

    def _some(self, index: int, number: int, choice: Choice, left: int, first: int) -> bool:
        """Give a request so many more devices, from a place in the order on."""
        if not left:
            return self._request(index, number + 1)
        if len(self.found[index]) + left > RESULTS_MAX:
            return False
        tried = set()
        for place, device in self._devices(first):
            self._steps += 1
            if self._steps > STEPS_MAX:
                raise Unusable(f"no answer after {STEPS_MAX} devices were tried for its claims")
            if self._is_in_use(index, choice, device) or not self._matches(choice, device):
                continue
            if (alike := self._likeness(device)) in tried:
                continue
            if self._give(index, choice, device):
                if self._some(index, number, choice, left - 1, place + 1):
                    return True
                self._take_back(index)
            tried.add(alike)
        return False

    def _devices(self, first: int) -> Iterator[tuple[int, Device]]:
        place = 0
        for pool in self._pools:
            if place + len(pool.devices) > first:
                start = max(first - place, 0)
                yield from enumerate(pool.devices[start:], place + start)
            place += len(pool.devices)

    def _likeness(self, device: Device) -> tuple[Any, ...]:
        """Return what two devices have in common of which one may stand for the other."""
        known = self._alike.get(device)
        if known is None:
            matching = tuple(self._verdict(choice, device) for choice in self._choices)
            values = tuple(device.attributes.get(name) for name in self._attributes)
            known = self._alike[device] = matching, values, self._is_taken(device), bool(device.unserved)
        return *known, *self._users.get(device, ())

    def _verdict(self, choice: Choice, device: Device) -> bool | None:
        try:
            return device.matches(choice.rules) and all(map(choice.tolerates, device.taints))
        except NoValue:
            return None

    def _matches(self, choice: Choice, device: Device) -> bool:
        try:
            return device.matches(choice.rules)
        except NoValue as error:
            name = f"{device.id.name} of pool {device.id.driver}/{device.id.pool}"
            text = f"selectors of request {choice.name} have no value for device {name}: {error}"
            raise Unusable(text) from None

    def _is_in_use(self, index: int, choice: Choice, device: Device) -> bool:
        users = self._users.get(device, ())
        return index in users if choice.is_admin else bool(users) or self._is_taken(device)

    def _give(self, index: int, choice: Choice, device: Device) -> bool:
        """Give a request a device, if it is free and the taints and constraints allow it."""
        if self._is_in_use(index, choice, device) or device.unserved:
            return False
        if not all(map(choice.tolerates, device.taints)):
            return False
        constraints = self._demands[index].constraints
        about = [place for place, one in enumerate(constraints) if one.is_about(choice.name)]
        if not all(_allows(constraints[place], self._values[index][place], device) for place in about):
            return False
        for place in about:
            self._values[index][place].append(device.attributes[constraints[place].attribute])
        self._users.setdefault(device, []).append(index)
        self.found[index].append(GivenDevice(choice, device))
        return True

    def _take_back(self, index: int) -> None:
        """Undo the last gift to a claim."""
        given = self.found[index].pop()
        self._users[given.device].remove(index)
        for place, one in enumerate(self._demands[index].constraints):
            if one.is_about(given.choice.name):
                self._values[index][place].pop()


def _allows(constraint: Constraint, values: Sequence[tuple[str, Any]], device: Device) -> bool:
    """Return whether a device may join those of these values."""
    value = device.attributes.get(constraint.attribute)
    if value is None or isinstance(value[1], list):  # attributes that are lists are not compared
        return False
    if constraint.is_distinct:
        return value not in values
    return not values or value == values[0]
