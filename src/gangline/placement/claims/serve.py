"""Claims of devices on the nodes of a table: what the pods of a gang get, and why one gets nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from gangline.placement.capacity import Spot, serve, take
from gangline.placement.claims.allocate import Unusable, allocate
from gangline.placement.claims.demands import Choice
from gangline.placement.claims.devices import Device
from gangline.placement.free_resources import FreeResources
from gangline.placement.node_table import NodeTable
from gangline.placement.snapshot import PodView


def with_devices(table: NodeTable, room: FreeResources, spots: Sequence[Spot]) -> list[Spot] | None:
    """Return spots with the devices of their pods' claims, or None where there are not enough for all."""
    if not any(spot.pod.demands for spot in spots):
        return list(spots)
    left, found = room.copy(), []
    for spot in spots:
        if spot.pod.demands and not spot.given:
            given = serve(table, spot.pod, spot.node, partial(table.is_taken, left, spot.node))
            if given is None:
                return None
            spot = replace(spot, given=given)
        found.append(spot)
        take(table, left, [spot])
    return found


def why_not(table: NodeTable, room: FreeResources, pod: PodView, row: int) -> str:
    """Return why a node cannot serve the claims of a pod, empty where it can."""
    pools, is_taken = table.views[row].pools, partial(table.is_taken, room, row)
    demands = [demand for _, demand in pod.demands]
    try:
        if allocate(demands, pools, is_taken) is not None:
            return ""
    except Unusable as error:
        return f"node(s) are not usable for claims: {error}"
    devices = [device for pool in pools for device in pool.devices]
    flaws = [f"resource pool {pool.driver}/{pool.name} {pool.flaw}" for pool in pools if pool.flaw]
    for request in (request for demand in demands for request in demand.requests):
        shorts = [_short(choice, devices, is_taken) for choice in request.choices]
        if all(shorts):
            return "; ".join([f"node(s) had {' and '.join(shorts)}", *flaws])
    return "; ".join(["node(s) had devices for each request of the claims, but not for all together", *flaws])


def _short(choice: Choice, devices: Sequence[Device], is_taken: Callable[[Device], bool]) -> str:
    """Return what is short for a choice alone, empty where nothing is."""
    what = f"of class {choice.device_class} for request {choice.name}"
    matching = [device for device in devices if device.matches(choice.rules)]
    served = [device for device in matching if not device.unserved]
    if not served:
        beyond = sorted({device.unserved for device in matching})
        reason = f", apart from those with {' or '.join(beyond)}, which are not served here" if beyond else ""
        return f"no device {what}{reason}"
    allowed = [device for device in served if all(map(choice.tolerates, device.taints))]
    if len(allowed) < (choice.count or len(matching)):
        tainted = len(allowed) < len(served)
        return f"too few devices {what}{', others have taints that it does not tolerate' if tainted else ''}"
    free = sum(choice.is_admin or not is_taken(device) for device in allowed)
    return f"too few free devices {what}" if free < (choice.count or len(matching)) else ""
