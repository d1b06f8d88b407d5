"""LimitRanges: what containers of a namespace get that say nothing, and between which bounds they stay.

Source: plugin/pkg/admission/limitranger of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from gangline.cluster.server.quota.usage import pod_limits
from gangline.units import format_quantity, parse_quantity
from gangline.workloads.requests import pod_requests, read_spec

Obj = Mapping[str, Any]
ANNOTATION = "kubernetes.io/limit-ranger"
_CONTAINERS = (("containers", "container"), ("initContainers", "init container"))


def item_defaults(item: dict[str, Any]) -> dict[str, Any]:
    """Return one item of a LimitRange with what follows from its bounds."""
    if item.get("type") != "Container":
        return item
    limits = {**(item.get("max") or {}), **(item.get("default") or {})}
    requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
    found = {"default": limits, "defaultRequest": requests}
    return {**item, **{key: value for key, value in found.items() if value}}


def filled_pod(pod: dict[str, Any], ranges: Iterable[Obj]) -> dict[str, Any]:
    """Return a new pod with the defaults of its namespace's ranges, and an annotation that tells them."""
    spec = dict(pod.get("spec") or {})
    told: list[str] = []
    for item in _items(ranges, "Container"):
        for key, word in _CONTAINERS:
            if spec.get(key):
                spec[key] = [_filled(container, item, word, told) for container in spec[key]]
    if not told:
        return pod
    meta = pod["metadata"]
    note = {ANNOTATION: f"LimitRanger plugin set: {'; '.join(told)}"}
    return {
        **pod,
        "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), **note}},
        "spec": spec,
    }


def _filled(container: Obj, item: Obj, word: str, told: list[str]) -> dict[str, Any]:
    resources = dict(container.get("resources") or {})
    for key, default, single in (("requests", "defaultRequest", "request"), ("limits", "default", "limit")):
        given = resources.get(key) or {}
        added = {name: amount for name, amount in (item.get(default) or {}).items() if name not in given}
        if added:
            resources[key] = {**given, **added}
            told.append(f"{', '.join(sorted(added))} {single} for {word} {container.get('name')}")
    return {**container, "resources": resources} if resources else dict(container)


def broken_by_pod(spec: Obj, ranges: Iterable[Obj]) -> list[str]:
    """Return every bound that a pod or one of its containers breaks, in words."""
    ranges = list(ranges)
    found: list[str] = []
    for item in _items(ranges, "Container"):
        for key, _ in _CONTAINERS:
            for container in spec.get(key) or ():
                resources = container.get("resources") or {}
                found += _broken(item, _parsed(resources.get("requests")), _parsed(resources.get("limits")))
    for item in _items(ranges, "Pod"):
        found += _broken(item, pod_requests(read_spec(spec), as_written=True), pod_limits(spec))
    return found


def broken_by_claim(spec: Obj, ranges: Iterable[Obj]) -> list[str]:
    """Return every bound that a claim breaks, in words."""
    requests = _parsed((spec.get("resources") or {}).get("requests"))
    return [
        text
        for item in _items(ranges, "PersistentVolumeClaim")
        for text in _broken(item, requests, requests, "request")
    ]


def _items(ranges: Iterable[Obj], type_: str) -> Iterator[Obj]:
    for found in ranges:
        yield from (i for i in (found.get("spec") or {}).get("limits") or () if i.get("type") == type_)


def _parsed(quantities: Obj | None) -> dict[str, Decimal]:
    return {name: parse_quantity(text) for name, text in (quantities or {}).items()}


def _broken(
    item: Obj, requests: Mapping[str, Decimal], limits: Mapping[str, Decimal], most: str = "limit"
) -> Iterator[str]:
    """Yield the bounds that amounts break; ``most`` is what the upper ones are told of."""
    type_ = item.get("type")
    for name, text in (item.get("min") or {}).items():
        bound, head = parse_quantity(text), f"minimum {name} usage per {type_} is {text}"
        if name not in requests:
            yield f"{head}.  No request is specified"
        elif requests[name] < bound:
            yield f"{head}, but request is {_short(requests[name])}"
        elif limits.get(name, bound) < bound:
            yield f"{head}, but limit is {_short(limits[name])}"
    for name, text in (item.get("max") or {}).items():
        bound, head = parse_quantity(text), f"maximum {name} usage per {type_} is {text}"
        if name not in limits:
            yield f"{head}.  No {most} is specified"
        elif limits[name] > bound:
            yield f"{head}, but {most} is {_short(limits[name])}"
        elif requests.get(name, bound) > bound:
            yield f"{head}, but request is {_short(requests[name])}"
    for name, text in (item.get("maxLimitRequestRatio") or {}).items():
        head = f"{name} max limit to request ratio per {type_} is {text}"
        if not requests.get(name):
            yield f"{head}, but no request is specified or request is 0"
        elif not limits.get(name):
            yield f"{head}, but no limit is specified or limit is 0"
        elif limits[name] / requests[name] > parse_quantity(text):
            yield f"{head}, but provided ratio is {limits[name] / requests[name]:f}"


def _short(amount: Decimal) -> str:
    return format_quantity(amount, binary=amount >= 1024)
