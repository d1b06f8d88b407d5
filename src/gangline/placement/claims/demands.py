"""What a claim asks for: requests with their alternatives, and constraints. From wire form to values. Pure.

Source: Kubernetes, ``resource.k8s.io/v1``, ResourceClaim and DeviceClass.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from gangline.workloads.cel import Expression, NotServed, compile_rule

Obj = dict[str, Any]

EXACT, ALL = "ExactCount", "All"
UNSERVED = ("capacity", "derivedAttributes")
"""Fields of requests that are beyond this scheduler: shares of devices, attributes that are computed."""


class ClaimRefused(Exception):
    """A pod waits for a claim, or asks for what is not served; the text says what for."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One way to serve a request.

    Attributes:
        name: of the request, with that of the alternative: ``gpu`` or ``gpu/large``.
        device_class: its name.
        config: of the class, in wire form.
        selectors: CEL, all of which must hold, those of the class first.
        count: devices; 0 for all that match.
        is_admin: it may use devices that others hold, and keeps them from nobody.
        tolerations: taints of devices that it puts up with, in wire form.
    """

    name: str
    device_class: str
    config: tuple[Obj, ...] = ()
    selectors: tuple[str, ...] = ()
    count: int = 1
    is_admin: bool = False
    tolerations: tuple[Obj, ...] = ()

    @property
    def rules(self) -> tuple[tuple[str, Expression], ...]:
        """The selectors with their functions."""
        return _rules(self.selectors)

    def tolerates(self, taint: Obj) -> bool:
        """Return whether a taint of a device does not keep it away."""
        return any(_tolerates(one, taint) for one in self.tolerations)


class Request(msgspec.Struct, frozen=True):
    """One request: the first of its choices that can be had."""

    name: str
    choices: tuple[Choice, ...]


class Constraint(msgspec.Struct, frozen=True):
    """What the devices of some requests, or of all, have in common, or have each for itself.

    Attributes:
        attribute: its name with domain.
        requests: names of requests or of their alternatives; empty for all.
        is_distinct: the values differ; else they are the same.
    """

    attribute: str
    requests: frozenset[str] = frozenset()
    is_distinct: bool = False

    def is_about(self, choice: str) -> bool:
        """Return whether it holds for the devices of a choice."""
        return not self.requests or choice in self.requests or choice.partition("/")[0] in self.requests


class ClaimDemand(msgspec.Struct, frozen=True):
    """What a claim asks for.

    Attributes:
        requests: all of which are served, or none.
        constraints: that hold for all devices together.
        config: of the claim, in wire form.
    """

    requests: tuple[Request, ...]
    constraints: tuple[Constraint, ...] = ()
    config: tuple[Obj, ...] = ()


@lru_cache(maxsize=4096)
def compiled(selector: str) -> Expression:
    """Return the function of a selector over ``device``; raises :class:`NotServed`."""
    return compile_rule(selector, ("device",))


@lru_cache(maxsize=4096)
def _rules(selectors: tuple[str, ...]) -> tuple[tuple[str, Expression], ...]:
    return tuple((text, compiled(text)) for text in selectors)


def read_demand(name: str, spec: Obj, classes: Mapping[str, Obj]) -> ClaimDemand:
    """Return what a claim asks for. Cost: 10 µs.

    Args:
        name: of the claim, for messages.
        spec: of the claim, in wire form.
        classes: device classes in wire form, by name.

    Raises:
        ClaimRefused: it asks for what is not served, or names a class that does not exist.
    """
    devices = spec.get("devices") or {}
    requests = []
    for asked in devices.get("requests") or ():
        what = f"request {asked['name']} of claim {name}"
        if first := asked.get("firstAvailable"):
            choices = [_choice(what, f"{asked['name']}/{one['name']}", one, classes) for one in first]
        elif exactly := asked.get("exactly"):
            choices = [_choice(what, asked["name"], exactly, classes)]
        else:
            raise ClaimRefused(f"{what}: it has neither exactly nor firstAvailable, others are not served")
        requests.append(Request(asked["name"], tuple(choices)))
    if not requests:
        raise ClaimRefused(f"claim {name} has no requests")
    constraints = tuple(_constraint(name, one) for one in devices.get("constraints") or ())
    return ClaimDemand(tuple(requests), constraints, tuple(devices.get("config") or ()))


def _choice(what: str, name: str, asked: Obj, classes: Mapping[str, Obj]) -> Choice:
    if beyond := next((field for field in UNSERVED if asked.get(field)), ""):
        raise ClaimRefused(f"{what}: {beyond} is not served here")
    mode = asked.get("allocationMode") or EXACT
    if mode not in (EXACT, ALL):
        raise ClaimRefused(f"{what}: allocationMode {mode} is not served here")
    device_class = asked.get("deviceClassName", "")
    known = classes.get(device_class)
    if known is None:
        raise ClaimRefused(f"{what}: device class {device_class} does not exist")
    said = [*(known["spec"].get("selectors") or ()), *(asked.get("selectors") or ())]
    if not all(one.get("cel") for one in said):
        raise ClaimRefused(f"{what}: selectors other than cel are not served here")
    selectors = tuple(one["cel"]["expression"] for one in said)
    for text in selectors:
        try:
            compiled(text)
        except NotServed as error:
            said_by = f"this part of its selectors is not served here: {error} in `{text}`"
            raise ClaimRefused(f"{what}: {said_by}") from None
    return Choice(
        name=name,
        device_class=device_class,
        config=tuple(known["spec"].get("config") or ()),
        selectors=selectors,
        count=int(asked.get("count") or 1) if mode == EXACT else 0,
        is_admin=bool(asked.get("adminAccess")),
        tolerations=tuple(asked.get("tolerations") or ()),
    )


def _constraint(name: str, said: Obj) -> Constraint:
    attribute = said.get("matchAttribute") or said.get("distinctAttribute")
    if not attribute:
        raise ClaimRefused(f"claim {name}: of constraints matchAttribute and distinctAttribute are served")
    return Constraint(attribute, frozenset(said.get("requests") or ()), not said.get("matchAttribute"))


def _tolerates(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") not in (None, "", taint.get("key")):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return (toleration.get("value") or "") == (taint.get("value") or "")
