"""Objects of one kind that is served under two names: each is stored once and shown as either asks.

Source: the conversions of Kubernetes between core/v1 and events.k8s.io/v1 Events, and between autoscaling/v1
and autoscaling/v2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

Fields = dict[str, Any]

_EVENT_NAMES = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
"""Names of events.k8s.io/v1, and the same fields in core/v1."""
_METRICS = "autoscaling.alpha.kubernetes.io/metrics"
_BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"


def convert(obj: Fields, api_version: str) -> Fields:
    """Return the object in the shape of another version; its ``apiVersion`` is the caller's to set.

    Kinds that look alike in all their versions, custom ones among them, come back as they are.
    """
    function = _BETWEEN.get((obj.get("apiVersion"), api_version, obj.get("kind")))
    return function(obj) if function is not None else obj


def selected_field(api_version: str, field: str) -> str:
    """Return the name that a selectable field has in the stored version."""
    if api_version != "events.k8s.io/v1":
        return field
    head, dot, rest = field.partition(".")
    return f"{_EVENT_NAMES.get(head, head)}{dot}{rest}"


def _renamed(names: dict[str, str]) -> Callable[[Fields], Fields]:
    return lambda obj: {names.get(key, key): value for key, value in obj.items()}


def _scaler_to_v1(obj: Fields) -> Fields:
    spec = {**(obj.get("spec") or {})}
    metrics, behavior = spec.pop("metrics", None) or [], spec.pop("behavior", None)
    annotations = {**((obj.get("metadata") or {}).get("annotations") or {})}
    others = []
    for metric in metrics:
        resource = metric.get("resource") or {}
        target = resource.get("target") or {}
        is_cpu = resource.get("name") == "cpu" and target.get("averageUtilization") is not None
        if is_cpu and "targetCPUUtilizationPercentage" not in spec:
            spec["targetCPUUtilizationPercentage"] = target["averageUtilization"]
        else:
            others.append(metric)
    for key, value in ((_METRICS, others), (_BEHAVIOR, behavior)):
        if value:
            annotations[key] = msgspec.json.encode(value).decode()
    return _scaler(obj, spec, annotations, ("currentMetrics", "conditions"))


def _scaler_to_v2(obj: Fields) -> Fields:
    spec = {**(obj.get("spec") or {})}
    annotations = {**((obj.get("metadata") or {}).get("annotations") or {})}
    percent = spec.pop("targetCPUUtilizationPercentage", None)
    metrics: list[Any] = []
    if percent is not None:
        target = {"type": "Utilization", "averageUtilization": percent}
        metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    metrics += _kept(annotations, _METRICS, list)
    if metrics:
        spec["metrics"] = metrics
    if behavior := _kept(annotations, _BEHAVIOR, dict):
        spec["behavior"] = behavior
    return _scaler(obj, spec, annotations, ("currentCPUUtilizationPercentage",))


def _kept(annotations: dict[str, str], key: str, type_: type[Any]) -> Any:
    """Take from the annotations what version 1 has no field for; one that cannot be read stays."""
    try:
        value = msgspec.json.decode(annotations.get(key, ""), type=type_)
    except msgspec.DecodeError:
        return type_()
    del annotations[key]
    return value


def _scaler(obj: Fields, spec: Fields, annotations: Fields, gone: tuple[str, ...]) -> Fields:
    metadata = {key: value for key, value in (obj.get("metadata") or {}).items() if key != "annotations"}
    if annotations:
        metadata["annotations"] = annotations
    status = {key: value for key, value in (obj.get("status") or {}).items() if key not in gone}
    result = {**obj, "metadata": metadata, "spec": spec}
    return {**result, "status": status} if "status" in obj else result


_BETWEEN: dict[tuple[Any, str, Any], Callable[[Fields], Fields]] = {
    ("events.k8s.io/v1", "v1", "Event"): _renamed(_EVENT_NAMES),
    ("v1", "events.k8s.io/v1", "Event"): _renamed({value: key for key, value in _EVENT_NAMES.items()}),
    ("autoscaling/v2", "autoscaling/v1", "HorizontalPodAutoscaler"): _scaler_to_v1,
    ("autoscaling/v1", "autoscaling/v2", "HorizontalPodAutoscaler"): _scaler_to_v2,
}
