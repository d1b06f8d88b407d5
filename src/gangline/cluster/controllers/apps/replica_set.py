"""What a ReplicaSet or ReplicationController wants next: as many pods as it says. Pure.

Source: Kubernetes documentation, "ReplicaSet"; pkg/controller/replicaset.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gangline.api.core import Pod
from gangline.api.resources import PODS, Resource
from gangline.cluster.controllers.apps.plan import (
    CREATED_MAX,
    ApiWrite,
    Seen,
    WorkloadObject,
    WorkloadPlan,
    claim,
    soonest,
    with_condition,
)
from gangline.cluster.controllers.pod_rules import first_to_go, is_active, is_ready, pod_from, unavailable_s


def plan_replica_set(resource: Resource, owner: WorkloadObject, seen: Seen, now: datetime) -> WorkloadPlan:
    """Decide what a ReplicaSet or ReplicationController (``resource``) needs."""
    pods, steps = claim(resource, owner.metadata, owner.spec.get("selector"), PODS, seen.children[PODS])
    active = [pod for pod in pods if is_active(pod)]
    if not owner.is_deleted:
        steps += _to_count(resource, owner, active)
    waits = [unavailable_s(pod, owner.min_ready_s, now) for pod in active]
    status = _status(owner, active, waits, pods, seen, now)
    requeue = (
        0.0 if owner.replicas - len(active) > CREATED_MAX else soonest(*(wait for wait in waits if wait))
    )
    return WorkloadPlan(steps=tuple(steps), status=status, requeue_after_s=requeue)


def _to_count(resource: Resource, owner: WorkloadObject, active: list[Pod]) -> list[ApiWrite]:
    missing = owner.replicas - len(active)
    if missing > 0:
        template = owner.template
        pod = pod_from(template, resource, owner.metadata, generateName=f"{owner.metadata.name}-")
        step = ApiWrite(
            verb="create", resource=PODS, body=pod, reason="SuccessfulCreate", message="Created pod: {name}"
        )
        return [step] * min(missing, CREATED_MAX)
    surplus = first_to_go(active)[:-missing] if missing else []
    return [
        ApiWrite(
            verb="delete",
            resource=PODS,
            meta=pod.metadata,
            reason="SuccessfulDelete",
            message="Deleted pod: {name}",
        )
        for pod in surplus
    ]


def _status(
    owner: WorkloadObject,
    active: list[Pod],
    waits: list[float | None],
    pods: list[Pod],
    seen: Seen,
    now: datetime,
) -> dict[str, Any]:
    labels = (owner.template.get("metadata") or {}).get("labels") or {}
    status: dict[str, Any] = {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(labels.items() <= pod.metadata.labels.items() for pod in active),
        "readyReplicas": sum(is_ready(pod) for pod in active),
        "availableReplicas": sum(wait == 0.0 for wait in waits),
        "terminatingReplicas": sum(
            pod.metadata.deletion_timestamp is not None and not pod.is_finished for pod in pods
        ),
        "observedGeneration": owner.metadata.generation,
    }
    conditions = [c for c in owner.status.get("conditions") or [] if c["type"] != "ReplicaFailure"]
    if seen.failure.reason:
        found = owner.status.get("conditions") or []
        conditions = with_condition(
            found, now, "ReplicaFailure", "True", "FailedCreate", seen.failure.message
        )
    zero = {key for key, value in status.items() if not value and key != "replicas"}
    return {key: value for key, value in status.items() if key not in zero} | (
        {"conditions": conditions} if conditions else {}
    )
