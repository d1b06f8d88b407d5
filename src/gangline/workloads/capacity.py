"""What pods ask for beside what nodes have: what can never be scheduled, alone or together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from gangline.units import format_bytes, parse_quantity
from gangline.workloads import requests
from gangline.workloads.kinds import find_kind
from gangline.workloads.requests import Amounts

Obj = dict[str, Any]


def gang_requests(obj: Obj) -> list[tuple[Amounts, int]]:
    """Return (requests of one pod, number of such pods) of what a job starts together; empty if nothing."""
    kind = find_kind(str(obj.get("kind")))
    if kind is None or not kind.starts_whole:
        return []
    policy = (kind.spec(obj).get("runPolicy") or {}).get("schedulingPolicy") or {}
    if policy.get("minAvailable") is not None:
        return []
    return [
        (pod_requests(replicas.template.get("spec") or {}), replicas.count) for replicas in kind.replicas(obj)
    ]


def gang_never_fits(pods: Sequence[tuple[Amounts, int]], nodes: Sequence[Obj]) -> str:
    """Return which amount the pods ask for together that all nodes do not have, in words; else nothing."""
    wanted: Amounts = {}
    for amounts, count in pods:
        for name, amount in amounts.items():
            wanted[name] = wanted.get(name, Decimal(0)) + amount * count
    has: Amounts = {}
    for node in nodes:
        for name, amount in ((node.get("status") or {}).get("allocatable") or {}).items():
            has[name] = has.get(name, Decimal(0)) + parse_quantity(amount)
    for name, amount in wanted.items():
        if amount > has.get(name, Decimal(0)):
            return (
                f"{name} {_amount(amount, name)}, all nodes have {_amount(has.get(name, Decimal(0)), name)}"
            )
    return ""


def pod_requests(spec: Obj) -> Amounts:
    """Return what one pod requests in all, per resource, and more than nothing."""
    return {
        name: amount for name, amount in requests.pod_requests(requests.read_spec(spec)).items() if amount > 0
    }


def never_fits(amounts: Amounts, nodes: Sequence[Obj]) -> str:
    """Return the first amount that no node has, in words; empty when some node has room for all of them."""
    has: list[Amounts] = []
    for node in nodes:
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        has.append({name: parse_quantity(amount) for name, amount in allocatable.items()})
    if any(all(node.get(name, Decimal(0)) >= amount for name, amount in amounts.items()) for node in has):
        return ""
    for name, amount in amounts.items():
        most = max((node.get(name, Decimal(0)) for node in has), default=Decimal(0))
        if most < amount:
            return f"{name} {_amount(amount, name)}, the largest node has {_amount(most, name)}"
    return "more in all than any one node has"


def _amount(amount: Decimal, name: str) -> str:
    if name in ("memory", "ephemeral-storage"):
        return format_bytes(int(amount))
    return f"{amount.normalize():f}"
