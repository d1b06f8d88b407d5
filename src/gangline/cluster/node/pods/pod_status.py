"""From what was observed to the ``status`` of a pod. Pure.

Source: Kubernetes API reference (PodStatus) and "Pod lifecycle": phases, conditions and their reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gangline.api.core import Condition, Container, Pod, all_containers, find_condition
from gangline.clock import format_time
from gangline.cluster.node.pods.observed_containers import AttemptEnd, ObservedContainer
from gangline.cluster.node.pods.restart_policy import fails_pod, initialized, is_sidecar, restarts
from gangline.workloads.removed_writes import CONDITION, REASON

FINAL_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class PodFacets:
    """What there is to say about a pod beyond its containers.

    Attributes:
        pod_ip, host_ip: empty while there is none.
        started_at_s: when the agent saw the pod first, seconds since 1970.
        sandbox: whether its namespaces and address exist.
        stopping: it is being deleted, or has outlived its deadline.
        failed_reason, failed_message: set when the agent ends the pod itself (``DeadlineExceeded``).
        backing_off: container name -> back-off in seconds.
        removed_writes: what it wrote that goes with it, in words; empty for nothing of weight.
    """

    pod_ip: str
    host_ip: str
    started_at_s: float
    sandbox: bool
    stopping: bool = False
    failed_reason: str = ""
    failed_message: str = ""
    backing_off: Mapping[str, float] | None = None
    removed_writes: str = ""


def phase_of(pod: Pod, observed: Mapping[str, ObservedContainer], view: PodFacets) -> str:
    """Return the phase. A final phase is never left."""
    if pod.status.phase in FINAL_PHASES:
        return pod.status.phase
    mains = [observed.get(container.name) for container in pod.spec.containers]
    everyone = [observed.get(c.name) for c in all_containers(pod.spec)]
    if any(known is not None and known.state == "running" for known in everyone):
        begun = any(k is not None and (k.state != "waiting" or k.before) for k in mains)
        return "Running" if begun and initialized(pod, observed) else "Pending"
    if view.failed_reason:
        return "Failed"
    ends = [known.ended if known else None for known in mains]
    if view.stopping:
        return "Succeeded" if ends and all(end and end.exit_code == 0 for end in ends) else "Failed"
    if _init_failed(pod, observed):
        return "Failed"
    if not initialized(pod, observed) or all(k is None for k in mains):
        return "Pending"
    final = [
        end
        for container, end in zip(pod.spec.containers, ends, strict=True)
        if end and not restarts(pod, container, end.exit_code)
    ]
    if len(final) == len(mains):
        return "Failed" if any(end.exit_code for end in final) else "Succeeded"
    begun = any(k is not None and (k.state != "waiting" or k.before) for k in mains)
    return "Running" if begun else "Pending"


def _init_failed(pod: Pod, observed: Mapping[str, ObservedContainer]) -> bool:
    for container in pod.spec.init_containers:
        known = observed.get(container.name)
        if not known or not known.ended or is_sidecar(container):
            continue
        if fails_pod(pod, container, known.ended.exit_code):
            return True
    return False


def same_status(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two statuses differ in nothing but the time of a condition's last change."""
    return _without_times(one) == _without_times(other)


def _without_times(status: dict[str, Any]) -> dict[str, Any]:
    conditions = [{**item, "lastTransitionTime": ""} for item in status["conditions"]]
    return status | {"conditions": conditions}


def pod_status(
    pod: Pod, observed: Mapping[str, ObservedContainer], view: PodFacets, now_s: float
) -> dict[str, Any]:
    """Return the status to write, whole except for conditions of other writers (merged by type)."""
    phase = phase_of(pod, observed, view)
    status: dict[str, Any] = {
        "phase": phase,
        "observedGeneration": pod.metadata.generation,
        "startTime": pod.status.start_time or _time(view.started_at_s),
        "conditions": _conditions(pod, observed, view, phase, now_s),
        "containerStatuses": [_container_status(pod, c, observed, view, phase) for c in pod.spec.containers],
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [
            _container_status(pod, c, observed, view, phase) for c in pod.spec.init_containers
        ]
    if pod.spec.ephemeral_containers:
        status["ephemeralContainerStatuses"] = [
            _container_status(pod, c, observed, view, phase) | {"ready": False}
            for c in pod.spec.ephemeral_containers
        ]
    if view.host_ip:
        status["hostIP"] = view.host_ip
        status["hostIPs"] = [{"ip": view.host_ip}]
    if view.pod_ip:
        status["podIP"] = view.pod_ip
        status["podIPs"] = [{"ip": view.pod_ip}]
    if view.failed_reason:
        status["reason"] = view.failed_reason
        status["message"] = view.failed_message
    return status


def _conditions(
    pod: Pod, observed: Mapping[str, ObservedContainer], view: PodFacets, phase: str, now_s: float
) -> list[dict[str, Any]]:
    final = phase in FINAL_PHASES
    unready = [c.name for c in pod.spec.containers if not (k := observed.get(c.name)) or not k.ready]
    is_initialized = phase == "Succeeded" or initialized(pod, observed)
    reason = message = ""
    if final:
        reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
    elif unready:
        reason, message = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    ready_reason = (reason, message) if not view.stopping or final else ("PodTerminating", "")
    ready = all_ready = not final and not unready and is_initialized
    for gate in (gate.get("conditionType", "") for gate in pod.spec.readiness_gates):
        known = find_condition(pod.status.conditions, gate)
        if ready and (known is None or known.status != "True"):
            ready = False
            text = f'the condition "{gate}" of a readiness gate is not True'
            ready_reason = ("ReadinessGatesNotReady", text)
    waiting_for = [
        c.name
        for c in pod.spec.init_containers
        if not (k := observed.get(c.name)) or not (_ended_well(k) or (k.started and is_sidecar(c)))
    ]
    not_initialized = (
        ("", "")
        if is_initialized
        else ("ContainersNotInitialized", f"containers with incomplete status: [{' '.join(waiting_for)}]")
    )
    completed = ("PodCompleted", "") if phase == "Succeeded" else ("", "")
    rows = [
        ("PodReadyToStartContainers", view.sandbox and not final, "", ""),
        ("Initialized", is_initialized, *(completed if is_initialized else not_initialized)),
        ("Ready", ready and not view.stopping, *ready_reason),
        ("ContainersReady", all_ready, reason, message),
    ]
    if find_condition(pod.status.conditions, "PodScheduled") is None:
        rows.append(("PodScheduled", True, "", ""))
    if view.removed_writes:
        rows.append((CONDITION, True, REASON, view.removed_writes))
    moment = _time(now_s)
    return [_condition(pod.status.conditions, *row, moment) for row in rows]


def _condition(
    before: list[Condition], type_: str, value: bool, reason: str, message: str, moment: str
) -> dict[str, Any]:
    status = "True" if value else "False"
    known = find_condition(before, type_)
    kept = known is not None and known.status == status and known.last_transition_time
    condition: dict[str, Any] = {
        "type": type_,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": known.last_transition_time if known and kept else moment,
    }
    # An empty text takes away what a merge would otherwise keep.
    had = known is not None and bool(known.reason or known.message)
    if reason or had:
        condition["reason"] = reason or None
        condition["message"] = message or None
    return condition


def _container_status(
    pod: Pod, container: Container, observed: Mapping[str, ObservedContainer], view: PodFacets, phase: str
) -> dict[str, Any]:
    known = observed.get(container.name) or _not_begun(pod, container)
    status: dict[str, Any] = {
        "name": container.name,
        "image": container.image,
        "imageID": f"gangline.dev/local/{container.image}" if container.image else "",
        "ready": known.ready or (container in pod.spec.init_containers and _ended_well(known)),
        "started": known.started,
        "restartCount": known.attempt,
        "state": _state(pod, known, view, phase),
        "lastState": _terminated(pod, known.before) if known.before else {},
    }
    if known.state != "waiting" or known.before:
        status["containerID"] = _container_id(pod, known.name, known.attempt)
    if "waiting" in status["state"] and known.ended is not None:
        status["lastState"] = _terminated(pod, known.ended)
    return status


def _ended_well(known: ObservedContainer) -> bool:
    return known.ended is not None and not known.ended.exit_code


def _not_begun(pod: Pod, container: Container) -> ObservedContainer:
    reason = "PodInitializing" if pod.spec.init_containers else "ContainerCreating"
    return ObservedContainer(container.name, waiting_reason=reason)


def _state(pod: Pod, known: ObservedContainer, view: PodFacets, phase: str) -> dict[str, Any]:
    if known.state == "running":
        return {"running": {"startedAt": _time(known.started_at)}}
    if known.state == "exited" and known.ended is not None:
        pause_s = (view.backing_off or {}).get(known.name)
        if pause_s is None or phase in FINAL_PHASES or view.stopping:
            return _terminated(pod, known.ended)
        place = f"pod={pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid})"
        text = f"back-off {_duration(pause_s)} restarting failed container={known.name} {place}"
        return {"waiting": {"reason": "CrashLoopBackOff", "message": text}}
    waiting: dict[str, Any] = {"reason": known.waiting_reason}
    if known.waiting_message:
        waiting["message"] = known.waiting_message
    return {"waiting": waiting}


def _terminated(pod: Pod, ended: AttemptEnd) -> dict[str, Any]:
    state: dict[str, Any] = {
        "exitCode": ended.exit_code,
        "reason": ended.reason,
        "startedAt": _time(ended.started_at or ended.finished_at),
        "finishedAt": _time(ended.finished_at),
    }
    if ended.signal:
        state["signal"] = ended.signal
    if ended.message:
        state["message"] = ended.message
    return {"terminated": state}


def _container_id(pod: Pod, name: str, attempt: int) -> str:
    return f"gangline://{pod.metadata.uid}/{name}/{attempt}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _time(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))
