"""What every controller of pods asks about one, and how it makes one from its template. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from gangline.api.core import ObjectMeta, Pod, find_condition, is_true
from gangline.api.resources import PODS, Resource
from gangline.clock import parse_time

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def owner_reference(resource: Resource, owner: ObjectMeta) -> dict[str, Any]:
    """Return the reference by which an owner controls an object."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from(
    template: Mapping[str, Any], resource: Resource, owner: ObjectMeta, **metadata: Any
) -> dict[str, Any]:
    """Return a pod of a template; shares parts of it.

    Args:
        template: in wire form.
        resource: the owner's kind.
        owner: who controls the pod.
        metadata: further entries, ``generateName`` or ``name`` among them; maps are laid over the template's.
    """
    meta: dict[str, Any] = {
        "namespace": owner.namespace,
        "ownerReferences": [owner_reference(resource, owner)],
    }
    for field in ("labels", "annotations", "finalizers"):
        if value := (template.get("metadata") or {}).get(field):
            meta[field] = value
    for field, value in metadata.items():
        meta[field] = {**meta.get(field, {}), **value} if isinstance(value, dict) else value
    spec = template.get("spec") or {}
    return {"apiVersion": PODS.api_version, "kind": PODS.kind, "metadata": meta, "spec": spec}


def is_active(pod: Pod) -> bool:
    """Return whether a pod has neither ended nor is being deleted."""
    return not pod.is_finished and pod.metadata.deletion_timestamp is None


def is_ready(pod: Pod) -> bool:
    """Return whether the condition Ready is True."""
    return is_true(pod.status.conditions, "Ready")


def unavailable_s(pod: Pod, min_ready_s: float, now: datetime) -> float | None:
    """Return how long until a pod has been ready for long enough; None where it is not ready."""
    ready = find_condition(pod.status.conditions, "Ready")
    if ready is None or ready.status != "True":
        return None
    if not min_ready_s or not ready.last_transition_time:
        return 0.0
    return max(0.0, min_ready_s - (now - parse_time(ready.last_transition_time)).total_seconds())


def first_to_go(pods: Iterable[Pod]) -> list[Pod]:
    """Return pods in the order in which they are removed when there are too many.

    Unscheduled, pending, not ready, cheap by annotation, where most of them are on one node, restarted most,
    the newest. Source: pkg/controller, ActivePodsWithRanks.
    """
    found = list(pods)
    beside: dict[str, int] = {}
    for pod in found:
        beside[pod.spec.node_name] = beside.get(pod.spec.node_name, 0) + 1

    def rank(pod: Pod) -> tuple[Any, ...]:
        cost = pod.metadata.annotations.get(DELETION_COST) or "0"
        created = pod.metadata.creation_timestamp
        return (
            bool(pod.spec.node_name),
            ("Pending", "Unknown", "Running").index(pod.status.phase) if not pod.is_finished else -1,
            is_ready(pod),
            int(cost) if cost.lstrip("-").isdigit() else 0,
            -beside[pod.spec.node_name],
            -max((status.restart_count for status in pod.status.container_statuses), default=0),
            -parse_time(created).timestamp() if created else 0.0,
        )

    return sorted(found, key=rank)
