"""What an object takes of a ResourceQuota, and which quotas count it.

Source: pkg/quota/v1/evaluator/core of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from gangline.api.resources import Resource
from gangline.cluster.server.rules.pod_defaults import qos_class
from gangline.units import format_quantity, parse_quantity
from gangline.workloads.requests import Amounts, pod_requests, read_spec

Obj = Mapping[str, Any]

_ONE = Decimal(1)
_COUNTED = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
    }
)
"""Plurals that are names of resources of a quota, too."""
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_NEEDED = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
"""Every container must say how much of these it takes where a quota bounds them."""
_STORAGE_CLASS = ".storageclass.storage.k8s.io/"
_BYTES = ("memory", "storage", "hugepages-")


def usage(resource: Resource, obj: Obj) -> Amounts:
    """Return what one object takes, by name of a quota's resource.

    Raises:
        ValueError: a quantity cannot be parsed.
    """
    counted = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    amounts = {f"count/{counted}": _ONE}
    if resource.group:
        return amounts
    spec = obj.get("spec") or {}
    if resource.plural in _COUNTED:
        amounts[resource.plural] = _ONE
    if resource.plural == "pods" and (obj.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
        amounts |= pod_usage(spec)
    elif resource.plural == "services":
        amounts |= _service_usage(spec)
    elif resource.plural == "persistentvolumeclaims":
        amounts |= _claim_usage(spec)
    return amounts


def pod_usage(spec: Obj) -> Amounts:
    """Return what a pod takes until it has ended: itself, and its containers' requests and limits."""
    amounts = {"pods": _ONE}
    for name, amount in pod_requests(read_spec(spec), as_written=True).items():
        if name in _COMPUTE or name.startswith("hugepages-"):
            amounts[name] = amount
        amounts[f"requests.{name}"] = amount
    for name, amount in pod_limits(spec).items():
        if name in _COMPUTE:
            amounts[f"limits.{name}"] = amount
    return amounts


def pod_limits(spec: Obj) -> Amounts:
    """Return the bounds of a pod's containers together, counted as their requests are."""
    lists = {
        key: [_limits_only(container) for container in spec.get(key) or ()]
        for key in ("containers", "initContainers")
    }
    return pod_requests(read_spec({**_limits_only(spec), **lists}), as_written=True)


def _limits_only(item: Obj) -> dict[str, Any]:
    return {**item, "resources": {"limits": (item.get("resources") or {}).get("limits") or {}}}


def _service_usage(spec: Obj) -> Amounts:
    kind, ports = spec.get("type"), spec.get("ports") or ()
    own = sum(1 for port in ports if port.get("nodePort"))
    allocates = kind == "NodePort" or spec.get("allocateLoadBalancerNodePorts") is not False
    return {
        "services.loadbalancers": Decimal(kind == "LoadBalancer"),
        "services.nodeports": Decimal(
            0 if kind not in ("NodePort", "LoadBalancer") else len(ports) if allocates else own
        ),
    }


def _claim_usage(spec: Obj) -> Amounts:
    requests = (spec.get("resources") or {}).get("requests") or {}
    amounts = {"persistentvolumeclaims": _ONE}
    if "storage" in requests:
        amounts["requests.storage"] = parse_quantity(requests["storage"])
    if class_name := spec.get("storageClassName"):
        amounts |= {f"{class_name}{_STORAGE_CLASS}{name}": amount for name, amount in amounts.items()}
    return amounts


def counted_kind(name: str) -> tuple[str, str]:
    """Return group and plural of the objects that take of a quota's resource."""
    if name.startswith("count/"):
        plural, _, group = name.removeprefix("count/").partition(".")
        return group, plural
    if _STORAGE_CLASS in name or name == "requests.storage":
        return "", "persistentvolumeclaims"
    plural = name.partition(".")[0]
    return "", plural if plural in _COUNTED else "pods"


def is_in_scope(quota: Obj, resource: Resource, obj: Obj) -> bool:
    """Whether a quota's scopes let it count an object; scopes are of pods only."""
    return all(
        resource.group == "" and resource.plural == "pods" and _has_scope(scope, obj.get("spec") or {})
        for scope in _scopes(quota.get("spec") or {})
    )


def _scopes(spec: Obj) -> Iterator[Obj]:
    for name in spec.get("scopes") or ():
        yield {"scopeName": name, "operator": "Exists"}
    yield from (spec.get("scopeSelector") or {}).get("matchExpressions") or ()


def _has_scope(scope: Obj, spec: Obj) -> bool:
    name = scope.get("scopeName")
    is_ending, is_best_effort = (
        spec.get("activeDeadlineSeconds") is not None,
        qos_class(dict(spec)) == "BestEffort",
    )
    if name == "PriorityClass":
        found, values = spec.get("priorityClassName") or "", scope.get("values") or ()
        answers = {"In": found in values, "NotIn": found not in values, "DoesNotExist": not found}
        return answers.get(str(scope.get("operator")), bool(found))
    return {
        "Terminating": is_ending,
        "NotTerminating": not is_ending,
        "BestEffort": is_best_effort,
        "NotBestEffort": not is_best_effort,
    }.get(str(name), False)


def unsaid(names: Iterable[str], spec: Obj) -> str:
    """Return what containers of a pod must say and do not: ``limits.cpu for: a,b; ...``, or nothing."""
    missing: dict[str, list[str]] = {}
    whole = pod_usage({"resources": spec.get("resources") or {}, "containers": []})
    for name in sorted(_NEEDED.intersection(names) - whole.keys()):
        for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
            if name not in pod_usage({"containers": [container]}):
                missing.setdefault(name, []).append(str(container.get("name")))
    return "; ".join(f"{name} for: {','.join(sorted(found))}" for name, found in missing.items())


def shown(name: str, amount: Decimal) -> str:
    """Return an amount as a quota shows it."""
    return format_quantity(amount, binary=any(part in name for part in _BYTES))
