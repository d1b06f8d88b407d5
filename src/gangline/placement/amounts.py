"""Amounts of resources as integers: what nodes offer and pods ask for.

Units by name: ``cpu`` in millicores, ``memory`` and ``ephemeral-storage`` in bytes, ``pods`` and every
extended resource (``nvidia.com/gpu``) as a count. Requests are rounded up and capacities down, so that
sums never lie in a pod's favour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_FLOOR
from functools import lru_cache

from gangline.api.core import Container, PodSpec
from gangline.units import parse_quantity, quantity_ceil

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
GPU = "nvidia.com/gpu"
GPU_ALIASES = ("aliyun.com/gpu",)
"""Other names by which pods ask for the same GPUs."""

MILLI = 1000


@lru_cache(maxsize=4096)
def _ceil(name: str, text: str | int | float) -> int:
    return quantity_ceil(text, scale=MILLI if name == CPU else 1)


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


def request_amounts(container: Container) -> dict[str, int]:
    """Return what one container asks for, rounded up; a limit without a request counts as the request.

    Raises:
        ValueError: a quantity cannot be parsed.
    """
    wanted = {**container.resources.limits, **container.resources.requests}
    amounts = {name: _ceil(name, text) for name, text in wanted.items()}
    for alias in GPU_ALIASES:
        if alias in amounts:
            amounts[GPU] = amounts.get(GPU, 0) + amounts.pop(alias)
    return amounts


def add_amounts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of amounts, name by name."""
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def pod_request(spec: PodSpec) -> dict[str, int]:
    """Return what a pod reserves on its node, one ``pods`` included.

    The containers run together, so their requests add up. An init container runs alone, except for the
    sidecars (init containers with ``restartPolicy: Always``) started before it, which also run beside the
    containers.

    Raises:
        ValueError: a quantity cannot be parsed.

    Source: Kubernetes documentation, "Resource sharing within containers".
    """
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers:
        step = add_amounts([sidecars, request_amounts(container)])
        peak = {name: max(step.get(name, 0), peak.get(name, 0)) for name in step.keys() | peak.keys()}
        if container.restart_policy == "Always":
            sidecars = step
    running = add_amounts([sidecars, *(request_amounts(container) for container in spec.containers)])
    total = {name: max(running.get(name, 0), peak.get(name, 0)) for name in running.keys() | peak.keys()}
    total[PODS] = 1
    return {name: amount for name, amount in sorted(total.items()) if amount}
