"""The row of a pod as ``kubectl get pods`` shows it; STATUS is computed from phase, conditions and
containers.

Source: the printer of pods in kube-apiserver (pkg/printers/internalversion), described in the reference of
``kubectl get``; the order of the rules decides and is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gangline.clock import parse_time
from gangline.units import format_age

NONE = "<none>"
UNKNOWN = "<unknown>"
_NODE_LOST = "NodeLost"


@dataclass(slots=True)
class _Summary:
    """What the columns READY, STATUS and RESTARTS show."""

    reason: str
    total: int
    ready: int = 0
    restarts: int = 0
    last_restart: str = ""

    def count_restarts(self, status: dict[str, Any]) -> None:
        self.restarts += status.get("restartCount") or 0
        finished = ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        # RFC 3339 in whole seconds and UTC orders as text.
        self.last_restart = max(self.last_restart, finished)


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
    found = _summarize(metadata, spec, status)
    restarts = str(found.restarts)
    if found.restarts and found.last_restart:
        restarts = f"{found.restarts} ({age(found.last_restart, now)} ago)"
    return [
        metadata.get("name", ""),
        f"{found.ready}/{found.total}",
        found.reason,
        restarts,
        age(metadata.get("creationTimestamp"), now),
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _readiness_gates(spec, status),
    ]


def pod_status(pod: dict[str, Any]) -> str:
    """Return the STATUS column alone: ``Running``, ``Init:0/1``, ``CrashLoopBackOff``, ``ExitCode:3`` and so
    on.
    """
    return _summarize(pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}).reason


def _summarize(metadata: dict[str, Any], spec: dict[str, Any], status: dict[str, Any]) -> _Summary:
    phase = status.get("phase") or ""
    found = _Summary(status.get("reason") or phase, len(spec.get("containers") or []))
    conditions = {entry.get("type"): entry for entry in status.get("conditions") or []}
    if (conditions.get("PodScheduled") or {}).get("reason") == "SchedulingGated":
        found.reason = "SchedulingGated"
    sidecars = {
        container.get("name")
        for container in spec.get("initContainers") or []
        if container.get("restartPolicy") == "Always"
    }
    found.total += len(sidecars)
    of_sidecars = _Summary("", 0)
    initializing = _read_init(found, of_sidecars, spec, status, sidecars)
    if not initializing or (conditions.get("Initialized") or {}).get("status") == "True":
        found.restarts, found.last_restart = of_sidecars.restarts, of_sidecars.last_restart
        has_running = _read_containers(found, status)
        if found.reason == "Completed" and has_running:
            ready = (conditions.get("Ready") or {}).get("status") == "True"
            found.reason = "Running" if ready else "NotReady"
    if metadata.get("deletionTimestamp"):
        if status.get("reason") == _NODE_LOST:
            found.reason = "Unknown"
        elif phase not in ("Succeeded", "Failed"):
            found.reason = "Terminating"
    return found


def _read_init(
    found: _Summary, of_sidecars: _Summary, spec: dict[str, Any], status: dict[str, Any], sidecars: set[str]
) -> bool:
    """Read the init containers up to the first that is not done; return whether there is such a one."""
    for index, container in enumerate(status.get("initContainerStatuses") or []):
        found.count_restarts(container)
        is_sidecar = container.get("name") in sidecars
        if is_sidecar:
            of_sidecars.count_restarts(container)
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if is_sidecar and container.get("started"):
            found.ready += bool(container.get("ready"))
            continue
        waiting = (state.get("waiting") or {}).get("reason") or ""
        if terminated is not None:
            found.reason = f"Init:{_termination(terminated)}"
        elif waiting and waiting != "PodInitializing":
            found.reason = f"Init:{waiting}"
        else:
            found.reason = f"Init:{index}/{len(spec.get('initContainers') or [])}"
        return True
    return False


def _read_containers(found: _Summary, status: dict[str, Any]) -> bool:
    """Read the containers, last first, so that the first one's reason wins; return whether one runs and is
    ready.
    """
    has_running = False
    for container in reversed(status.get("containerStatuses") or []):
        found.count_restarts(container)
        state = container.get("state") or {}
        waiting = (state.get("waiting") or {}).get("reason")
        if waiting:
            found.reason = waiting
        elif state.get("terminated") is not None:
            found.reason = _termination(state["terminated"])
        elif container.get("ready") and state.get("running") is not None:
            has_running = True
            found.ready += 1
    return has_running


def _termination(terminated: dict[str, Any]) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode') or 0}"


def _readiness_gates(spec: dict[str, Any], status: dict[str, Any]) -> str:
    gates = spec.get("readinessGates") or []
    if not gates:
        return NONE
    true = {entry.get("type") for entry in status.get("conditions") or [] if entry.get("status") == "True"}
    return f"{sum(gate.get('conditionType') in true for gate in gates)}/{len(gates)}"
