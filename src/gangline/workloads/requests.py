"""What a pod asks for: computed here alone, for the scheduler, the node agent, the operator and the commands.

Source: Kubernetes' ``PodRequests`` (k8s.io/component-helpers/resource). An init container runs alone, but for
the sidecars (init containers with ``restartPolicy: Always``) before it; sidecars run beside the containers.
Amounts of the pod as a whole stand in place of the sum, and the overhead of its runtime comes on top.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any

from gangline.api.core import Container, PodSpec, ResourceRequirements
from gangline.units import parse_quantity

Amounts = dict[str, Decimal]
"""Exact amounts by resource, in its unit: cores, bytes, devices."""

GPU = "nvidia.com/gpu"
GPU_ALIASES = ("aliyun.com/gpu",)
"""Other names by which pods ask for the same GPUs, and count as :data:`GPU`."""

WHOLE_GPUS = frozenset([GPU, "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"])
"""By the names of their makers' device plugins."""

_GPU_SLICE = re.compile(r"nvidia\.com/mig-.+|amd\.com/[a-z]px_nps\d")
"""``nvidia.com/mig-1g.10gb``; ``amd.com/cpx_nps4``, as AMD's plugin calls partitions if told to."""

RDMA = "rdma/hca"
"""A host channel adapter, as Mellanox' plugin for shared devices calls it and arena asks for it."""

POD_LEVEL = ("cpu", "memory", "hugepages-")
"""What ``spec.resources`` of a pod may say, or how it begins; all else is asked for by containers alone."""

_parse = lru_cache(maxsize=4096)(parse_quantity)


def container_requests(container: Container, *, as_written: bool = False) -> Amounts:
    """Return what one container asks for; a limit without a request counts as the request.

    Args:
        container: of the pod.
        as_written: keep other names of GPUs, for somebody who knows no aliases.

    Raises:
        ValueError: a quantity cannot be parsed.
    """
    amounts = _requested(container.resources)
    for alias in () if as_written else GPU_ALIASES:
        if alias in amounts:
            amounts[GPU] = amounts.get(GPU, Decimal(0)) + amounts.pop(alias)
    return amounts


def pod_requests(spec: PodSpec, *, as_written: bool = False) -> Amounts:
    """Return what a pod reserves on its node. Cost: 5 µs for one container.

    Args:
        spec: of the pod.
        as_written: as for :func:`container_requests`.

    Raises:
        ValueError: a quantity cannot be parsed.
    """
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers:
        step = add_amounts([sidecars, container_requests(container, as_written=as_written)])
        peak = _larger(peak, step)
        if container.restart_policy == "Always":
            sidecars = step
    parts = [container_requests(container, as_written=as_written) for container in spec.containers]
    total = _larger(peak, add_amounts([sidecars, *parts]))
    whole = _requested(spec.resources)
    total |= {name: amount for name, amount in whole.items() if name.startswith(POD_LEVEL)}
    overhead = {name: _parse(text) for name, text in spec.overhead.items()}
    return add_amounts([total, overhead]) if overhead else total


def read_spec(spec: Any) -> PodSpec:
    """Return a pod's spec in wire form as far as it counts here; what has another type counts as absent."""
    found = _object(spec)
    return PodSpec(
        init_containers=_containers(found.get("initContainers")),
        containers=_containers(found.get("containers")),
        resources=_resources(found.get("resources")),
        overhead=_quantities(found.get("overhead")),
    )


def gpu_count(amounts: Mapping[str, Decimal | int]) -> int:
    """Return how many GPUs there are in amounts, whoever made them; a slice counts as one.

    Example:
        >>> gpu_count({"nvidia.com/gpu": Decimal(2), "amd.com/gpu": Decimal(1), "cpu": Decimal(4)})
        3
    """
    return sum(round_up(amount) for name, amount in amounts.items() if counts_as_gpu(name))


@lru_cache(maxsize=256)
def counts_as_gpu(name: str) -> bool:
    """Return whether a resource is GPUs, or slices of some, by the name of a maker's device plugin.

    Example:
        >>> [counts_as_gpu(name) for name in ("amd.com/gpu", "nvidia.com/mig-1g.10gb", "rdma/hca")]
        [True, True, False]
    """
    return name in WHOLE_GPUS or _GPU_SLICE.fullmatch(name) is not None


def device_count(amounts: Mapping[str, Decimal | int]) -> int:
    """Return how many devices of any kind there are in amounts: GPUs, slices of them, TPUs, network cards.

    Kubernetes calls them extended resources: what has a domain in its name.

    Example:
        >>> device_count({"amd.com/gpu": 2, "nvidia.com/mig-1g.10gb": 1, "cpu": 4000})
        3
    """
    return sum(round_up(amount) for name, amount in amounts.items() if "/" in name)


def read_gpu_count(quantities: Mapping[str, str | int | float]) -> int:
    """Return how many GPUs there are in amounts as written, for example what a node has."""
    return gpu_count({name: _parse(text) for name, text in quantities.items() if counts_as_gpu(name)})


def pod_gpus(spec: Any) -> int:
    """Return how many GPUs a pod's spec in wire form asks for.

    Raises:
        ValueError: a quantity cannot be parsed.
    """
    return gpu_count(pod_requests(read_spec(spec)))


def add_amounts(parts: Iterable[Mapping[str, Decimal]]) -> Amounts:
    """Return the sum of amounts, name by name."""
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def round_up(amount: Decimal | int) -> int:
    """Return the next whole number."""
    return amount if isinstance(amount, int) else int(amount.to_integral_value(rounding=ROUND_CEILING))


def _requested(resources: ResourceRequirements) -> Amounts:
    return {name: _parse(text) for name, text in {**resources.limits, **resources.requests}.items()}


def _larger(one: Amounts, other: Amounts) -> Amounts:
    if not one:
        return other
    return other | {name: max(amount, other.get(name, amount)) for name, amount in one.items()}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _quantities(value: Any) -> dict[str, str | int | float]:
    return {name: text for name, text in _object(value).items() if isinstance(text, str | int | float)}


def _resources(value: Any) -> ResourceRequirements:
    found = _object(value)
    requests, limits = _quantities(found.get("requests")), _quantities(found.get("limits"))
    return ResourceRequirements(requests=requests, limits=limits)


def _containers(value: Any) -> list[Container]:
    found = [_object(entry) for entry in value] if isinstance(value, list) else []
    return [
        Container(
            name=str(one.get("name") or ""),
            restart_policy=str(one.get("restartPolicy") or ""),
            resources=_resources(one.get("resources")),
        )
        for one in found
    ]
