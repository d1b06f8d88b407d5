"""What kubectl shows of a pod: STATUS, READY and RESTARTS, read once from phase, conditions and containers.

The server's tables and the command line both show these, so they cannot disagree.
Source: the printer of pods in kube-apiserver (``pkg/printers/internalversion``); see also the reference of
``kubectl get``; the order of the rules decides and is kept.
"""

from __future__ import annotations

from typing import Any

import msgspec

_NODE_LOST = "NodeLost"


class PodState(msgspec.Struct):
    """What the columns STATUS, READY and RESTARTS are made of.

    Attributes:
        status: ``Running``, ``Init:0/1``, ``CrashLoopBackOff``, ``ExitCode:3`` and so on.
        total: containers and sidecars, of which ``ready`` are ready.
        last_restart: when a container that was started again had ended, RFC 3339; empty when none was.
    """

    status: str
    total: int
    ready: int = 0
    restarts: int = 0
    last_restart: str = ""

    def count_restarts(self, container: dict[str, Any]) -> None:
        """Add a container's restarts, given its status."""
        self.restarts += container.get("restartCount") or 0
        finished = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        # RFC 3339 in whole seconds and UTC orders as text.
        self.last_restart = max(self.last_restart, finished)


def disruption_of(pod: dict[str, Any]) -> str:
    """Return why a pod was taken away through no fault of its own, empty when it was not.

    Source: Kubernetes, Pod disruption conditions.
    """
    conditions = (pod.get("status") or {}).get("conditions") or []
    found: dict[str, Any] = next((one for one in conditions if one.get("type") == "DisruptionTarget"), {})
    return str(found.get("message") or found.get("reason")) if found.get("status") == "True" else ""


def read_pod_state(pod: dict[str, Any]) -> PodState:
    """Return what kubectl would show of a pod. Cost: O(containers)."""
    metadata, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
    phase = status.get("phase") or ""
    shown = PodState(status.get("reason") or phase, len(spec.get("containers") or []))
    conditions = {entry.get("type"): entry for entry in status.get("conditions") or []}
    if (conditions.get("PodScheduled") or {}).get("reason") == "SchedulingGated":
        shown.status = "SchedulingGated"
    sidecars = {
        container.get("name")
        for container in spec.get("initContainers") or []
        if container.get("restartPolicy") == "Always"
    }
    shown.total += len(sidecars)
    of_sidecars = PodState("", 0)
    initializing = _read_init(shown, of_sidecars, spec, status, sidecars)
    if not initializing or (conditions.get("Initialized") or {}).get("status") == "True":
        shown.restarts, shown.last_restart = of_sidecars.restarts, of_sidecars.last_restart
        has_running = _read_containers(shown, status)
        if shown.status == "Completed" and has_running:
            ready = (conditions.get("Ready") or {}).get("status") == "True"
            shown.status = "Running" if ready else "NotReady"
    if metadata.get("deletionTimestamp"):
        if status.get("reason") == _NODE_LOST:
            shown.status = "Unknown"
        elif phase not in ("Succeeded", "Failed"):
            shown.status = "Terminating"
    return shown


def _read_init(
    shown: PodState, of_sidecars: PodState, spec: dict[str, Any], status: dict[str, Any], sidecars: set[str]
) -> bool:
    """Read the init containers up to the first that is not done; return whether there is such a one."""
    for index, container in enumerate(status.get("initContainerStatuses") or []):
        shown.count_restarts(container)
        is_sidecar = container.get("name") in sidecars
        if is_sidecar:
            of_sidecars.count_restarts(container)
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if is_sidecar and container.get("started"):
            shown.ready += bool(container.get("ready"))
            continue
        waiting = (state.get("waiting") or {}).get("reason") or ""
        if terminated is not None:
            shown.status = f"Init:{_termination(terminated)}"
        elif waiting and waiting != "PodInitializing":
            shown.status = f"Init:{waiting}"
        else:
            shown.status = f"Init:{index}/{len(spec.get('initContainers') or [])}"
        return True
    return False


def _read_containers(shown: PodState, status: dict[str, Any]) -> bool:
    """Read the containers, last first, so that the first one's reason wins; return whether one runs and is
    ready.
    """
    has_running = False
    for container in reversed(status.get("containerStatuses") or []):
        shown.count_restarts(container)
        state = container.get("state") or {}
        waiting = (state.get("waiting") or {}).get("reason")
        if waiting:
            shown.status = waiting
        elif state.get("terminated") is not None:
            shown.status = _termination(state["terminated"])
        elif container.get("ready") and state.get("running") is not None:
            has_running = True
            shown.ready += 1
    return has_running


def _termination(terminated: dict[str, Any]) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode') or 0}"
