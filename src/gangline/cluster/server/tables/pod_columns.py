"""The row of a pod as ``kubectl get pods`` shows it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gangline.clock import parse_time
from gangline.units import format_age
from gangline.workloads.pod_state import read_pod_state

NONE = "<none>"
UNKNOWN = "<unknown>"


def age(timestamp: str | None, now: datetime) -> str:
    """Return the age of a timestamp, ``<unknown>`` without one."""
    if not timestamp:
        return UNKNOWN
    try:
        return format_age((now - parse_time(timestamp)).total_seconds())
    except ValueError:
        return "<invalid>"


def pod_cells(pod: dict[str, Any], now: datetime) -> list[Any]:
    """Return NAME READY STATUS RESTARTS AGE IP NODE NOMINATED-NODE READINESS-GATES. Cost: O(containers)."""
    metadata, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
    state = read_pod_state(pod)
    restarts = str(state.restarts)
    if state.restarts and state.last_restart:
        restarts = f"{state.restarts} ({age(state.last_restart, now)} ago)"
    return [
        metadata.get("name", ""),
        f"{state.ready}/{state.total}",
        state.status,
        restarts,
        age(metadata.get("creationTimestamp"), now),
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _readiness_gates(spec, status),
    ]


def _readiness_gates(spec: dict[str, Any], status: dict[str, Any]) -> str:
    gates = spec.get("readinessGates") or []
    if not gates:
        return NONE
    true = {entry.get("type") for entry in status.get("conditions") or [] if entry.get("status") == "True"}
    return f"{sum(gate.get('conditionType') in true for gate in gates)}/{len(gates)}"
