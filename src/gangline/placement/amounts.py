"""Amounts of resources as integers: what nodes offer and pods ask for.

Units by name: ``cpu`` in millicores, ``memory`` and ``ephemeral-storage`` in bytes, ``pods`` and every
extended resource (``nvidia.com/gpu``) as a count. Requests are rounded up and capacities down, so that
sums never lie in a pod's favour.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_FLOOR
from functools import lru_cache

from gangline.api.core import PodSpec
from gangline.units import parse_quantity
from gangline.workloads.requests import pod_requests, round_up

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
MILLI = 1000


@lru_cache(maxsize=4096)
def _floor(name: str, text: str | int | float) -> int:
    scaled = parse_quantity(text) * (MILLI if name == CPU else 1)
    return int(scaled.to_integral_value(rounding=ROUND_FLOOR))


def capacity_amounts(quantities: Mapping[str, str | int]) -> dict[str, int]:
    """Return ``status.allocatable`` of a node as integers, rounded down.

    Raises:
        ValueError: a quantity cannot be parsed.
    """
    return {name: _floor(name, text) for name, text in quantities.items()}


def pod_request(spec: PodSpec) -> dict[str, int]:
    """Return what a pod reserves on its node, rounded up, one ``pods`` included; zeros are left out.

    Raises:
        ValueError: a quantity cannot be parsed.
    """
    amounts = pod_requests(spec)
    total = {name: round_up(amount * MILLI if name == CPU else amount) for name, amount in amounts.items()}
    total[PODS] = 1
    return {name: amount for name, amount in sorted(total.items()) if amount}
