"""What is written into the status of a claim that has been given devices, in wire form. Pure.

Source: kube-scheduler 1.37, which writes the same for the same devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gangline.placement.claims.allocate import GivenDevice
from gangline.placement.claims.demands import Choice, ClaimDemand
from gangline.placement.claims.devices import DeviceId
from gangline.workloads.device_class import DRIVER

Obj = dict[str, Any]


def allocation_of(demand: ClaimDemand, given: Sequence[GivenDevice]) -> Obj:
    """Return ``status.allocation`` of a claim with its devices, in the order of its requests."""
    devices: Obj = {"results": [_result(one) for one in given]}
    if config := _config(demand, given):
        devices["config"] = config
    found: Obj = {"devices": devices}
    if terms := nodes_of(given):
        found["nodeSelector"] = {"nodeSelectorTerms": terms}
    return found


def nodes_of(given: Sequence[GivenDevice]) -> list[Obj]:
    """Return the terms of nodes on which devices can be used together; none for all nodes."""
    node = next((one.device.place.node for one in given if one.device.place.node), "")
    if node:
        return [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    term: Obj = {}
    for one in given:
        for part, rules in (one.device.place.term or {}).items():
            known = term.setdefault(part, [])
            known += [rule for rule in rules if rule not in known]
    return [term] if term else []


def held_devices(claim: Obj | None) -> list[DeviceId]:
    """Return the devices that a claim keeps from others."""
    allocation = ((claim or {}).get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return [
        DeviceId(one["driver"], one["pool"], one["device"]) for one in results if not one.get("adminAccess")
    ]


def given_gpus(given: Sequence[Sequence[GivenDevice]]) -> tuple[str, ...]:
    """Return the GPUs of ours among devices of a pod's claims, by UUID."""
    found = (one for some in given for one in some if one.device.id.driver == DRIVER)
    return tuple(one.device.uuid for one in found if not one.choice.is_admin)


def _result(given: GivenDevice) -> Obj:
    driver, pool, device = given.device.id
    found: Obj = {"request": given.choice.name, "driver": driver, "pool": pool, "device": device}
    if given.choice.is_admin:
        found["adminAccess"] = True
    if given.choice.tolerations:
        found["tolerations"] = list(given.choice.tolerations)
    return found


def _config(demand: ClaimDemand, given: Sequence[GivenDevice]) -> list[Obj]:
    """Return the configuration of the classes, each once, then that of the claim, as far as they apply."""
    chosen = {one.choice.name.partition("/")[0]: one.choice for one in given}
    found: list[Obj] = []
    of_class: dict[str, list[Obj]] = {}
    for request in demand.requests:
        choice = chosen[request.name]
        if choice.device_class not in of_class:
            of_class[choice.device_class] = [
                {"source": "FromClass", "requests": [], **one} for one in choice.config
            ]
            found += of_class[choice.device_class]
        for one in of_class[choice.device_class]:
            one["requests"].append(choice.name)
    for one in demand.config:
        asked = one.get("requests") or ()
        if not asked or any(_is_named(choice, asked) for choice in chosen.values()):
            found.append({"source": "FromClaim", **one})
    for one in found:  # what applies to all requests names none
        if one.get("requests") and all(_is_named(choice, one["requests"]) for choice in chosen.values()):
            del one["requests"]
    return found


def _is_named(choice: Choice, requests: Sequence[str]) -> bool:
    return choice.name in requests or choice.name.partition("/")[0] in requests
