"""What a StatefulSet wants next: pods with names of their own, in order. Pure.

Source: Kubernetes documentation, "StatefulSets"; pkg/controller/statefulset/stateful_set_control.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from gangline.api.core import ObjectMeta, Pod
from gangline.api.resources import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from gangline.cluster.controllers.apps.plan import (
    ApiWrite,
    Seen,
    WorkloadObject,
    WorkloadPlan,
    claim,
    soonest,
)
from gangline.cluster.controllers.apps.revisions import HASH_LABEL, Revisions, plan_revisions
from gangline.cluster.controllers.pod_rules import (
    is_active,
    is_ready,
    owner_reference,
    pod_from,
    unavailable_s,
)

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"


def plan_stateful_set(owner: WorkloadObject, seen: Seen, now: datetime) -> WorkloadPlan:
    """Decide what a StatefulSet needs."""
    pods, steps = claim(STATEFUL_SETS, owner.metadata, owner.spec.get("selector"), PODS, seen.children[PODS])
    by_ordinal = {ordinal: pod for pod in pods if (ordinal := ordinal_of(owner, pod)) is not None}
    current = owner.status.get("currentRevision", "")
    in_use = {current, *(pod.metadata.labels.get(HASH_LABEL, "") for pod in pods)}
    found = [one for one in seen.children[CONTROLLER_REVISIONS] if one.metadata.controller is not None]
    revisions = plan_revisions(STATEFUL_SETS, owner, found, in_use)
    work = _Pass(owner, by_ordinal, revisions, now)
    if not owner.is_deleted:
        steps = [*steps, *revisions.steps, *work.steps()]
    return WorkloadPlan(steps=tuple(steps), status=work.status(), requeue_after_s=work.requeue_after_s)


def ordinal_of(owner: WorkloadObject, pod: Pod) -> int | None:
    """Return the number at the end of a pod's name, None where the name is not of the set."""
    base, _, text = pod.metadata.name.rpartition("-")
    return int(text) if base == owner.metadata.name and text.isdigit() and text == str(int(text)) else None


class _Pass:
    """One decision about a StatefulSet."""

    def __init__(
        self, owner: WorkloadObject, pods: dict[int, Pod], revisions: Revisions, now: datetime
    ) -> None:
        self.owner, self.pods, self.revisions, self.now = owner, pods, revisions, now
        self.start: int = (owner.spec.get("ordinals") or {}).get("start") or 0
        self.ordinals = range(self.start, self.start + owner.replicas)
        self.is_ordered = owner.spec.get("podManagementPolicy") != "Parallel"
        self.update: str = revisions.update.metadata.name
        self.current: str = owner.status.get("currentRevision") or self.update
        self.strategy: dict[str, Any] = owner.spec.get("updateStrategy") or {}
        self.requeue_after_s: float | None = None

    @property
    def partition(self) -> int:
        return (self.strategy.get("rollingUpdate") or {}).get("partition") or 0

    def steps(self) -> list[ApiWrite]:
        """Return what comes next: with ordered pods one at a time."""
        steps: list[ApiWrite] = []
        for ordinal in self.ordinals:
            pod = self.pods.get(ordinal)
            if pod is None:
                steps += self._create(ordinal)
            elif pod.is_finished and pod.metadata.deletion_timestamp is None:
                steps.append(self._delete(pod, "RecreatingFailedPod" if pod.status.phase == "Failed" else ""))
            elif self._is_healthy(pod):
                continue
            if self.is_ordered:
                return steps
        surplus = sorted((number for number in self.pods if number not in self.ordinals), reverse=True)
        unhealthy = [number for number in surplus if not self._is_healthy(self.pods[number])]
        for ordinal in surplus:
            pod = self.pods[ordinal]
            if self.is_ordered and ordinal in unhealthy[:-1]:
                return steps  # only the first unhealthy one goes; behind it the set waits for it
            if pod.metadata.deletion_timestamp is None:
                steps.append(self._delete(pod))
            if self.is_ordered:
                return steps
        return steps if steps and self.is_ordered else [*steps, *self._roll()]

    def _roll(self) -> Iterable[ApiWrite]:
        """Replace the pods of another revision, the last first, each once those behind it are healthy."""
        if self.strategy.get("type") == "OnDelete":
            return
        for ordinal in reversed(self.ordinals):
            pod = self.pods.get(ordinal)
            if ordinal < self.start + self.partition or pod is None:
                return
            if pod.metadata.labels.get(HASH_LABEL) != self.update and pod.metadata.deletion_timestamp is None:
                yield self._delete(pod)
                return
            if not self._is_healthy(pod):
                return

    def _is_healthy(self, pod: Pod) -> bool:
        """Return whether a pod runs and has been ready for long enough."""
        if not is_active(pod):
            return False
        wait_s = unavailable_s(pod, self.owner.min_ready_s, self.now)
        self.requeue_after_s = soonest(self.requeue_after_s, wait_s or None)
        return wait_s == 0.0

    def _revision_for(self, ordinal: int) -> WorkloadObject:
        """Return the revision that a new pod is of: the earlier one where the update has not come yet."""
        if self.strategy.get("type") != "OnDelete" and self.current != self.update:
            rolling = self.strategy.get("rollingUpdate")
            if rolling is None or rolling.get("partition") is None:
                waits = ordinal < self.start + (self.owner.status.get("currentReplicas") or 0)
            else:
                waits = ordinal < self.start + self.partition
            if waits and (found := self.revisions.named(self.current)):
                return found
        return self.revisions.update

    def _create(self, ordinal: int) -> list[ApiWrite]:
        owner, revision = self.owner, self._revision_for(ordinal)
        name = f"{owner.metadata.name}-{ordinal}"
        template = revision.data["spec"]["template"]
        labels = {
            HASH_LABEL: revision.metadata.name,
            POD_NAME_LABEL: name,
            POD_INDEX_LABEL: str(ordinal),
        }
        body = pod_from(template, STATEFUL_SETS, owner.metadata, name=name, labels=labels)
        spec = {**body["spec"], "hostname": name}
        if subdomain := owner.spec.get("serviceName"):
            spec["subdomain"] = subdomain
        claims = owner.spec.get("volumeClaimTemplates") or []
        own = {one["metadata"]["name"] for one in claims}
        rest = [volume for volume in spec.get("volumes") or [] if volume["name"] not in own]
        volumes = [
            {"name": volume, "persistentVolumeClaim": {"claimName": f"{volume}-{name}"}}
            for volume in sorted(own)
        ]
        if volumes or rest:
            spec["volumes"] = [*volumes, *rest]
        message = f"create Pod {{name}} in StatefulSet {owner.metadata.name} successful"
        made = {**body, "spec": spec}
        steps = [self._claim(one, name) for one in claims]
        return [
            *steps,
            ApiWrite(verb="create", resource=PODS, body=made, reason="SuccessfulCreate", message=message),
        ]

    def _claim(self, template: dict[str, Any], pod: str) -> ApiWrite:
        """Return the step that makes a pod's claim; it outlives the set unless the policy says otherwise."""
        meta: ObjectMeta = self.owner.metadata
        labels = (self.owner.spec.get("selector") or {}).get("matchLabels") or {}
        given = template["metadata"]
        metadata = {
            **given,
            "name": f"{given['name']}-{pod}",
            "namespace": meta.namespace,
            "labels": {**(given.get("labels") or {}), **labels},
        }
        policy = self.owner.spec.get("persistentVolumeClaimRetentionPolicy") or {}
        if policy.get("whenDeleted") == "Delete":
            metadata["ownerReferences"] = [owner_reference(STATEFUL_SETS, meta)]
        body = {
            "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
            "kind": PERSISTENT_VOLUME_CLAIMS.kind,
            "metadata": metadata,
            "spec": template.get("spec") or {},
        }
        return ApiWrite(verb="create", resource=PERSISTENT_VOLUME_CLAIMS, body=body, may_exist=True)

    def _delete(self, pod: Pod, reason: str = "SuccessfulDelete") -> ApiWrite:
        message = f"delete Pod {{name}} in StatefulSet {self.owner.metadata.name} successful"
        if reason == "RecreatingFailedPod":
            message = f"StatefulSet {self.owner.metadata.key} is recreating failed Pod {{name}}"
        return ApiWrite(verb="delete", resource=PODS, meta=pod.metadata, reason=reason, message=message)

    def status(self) -> dict[str, Any]:
        """Return the counts; when all pods are of the update and ready, it is the current revision."""
        made = [pod for pod in self.pods.values() if is_active(pod)]
        ready = [pod for pod in made if is_ready(pod)]
        of = [pod.metadata.labels.get(HASH_LABEL, "") for pod in made]
        updated, current = of.count(self.update), of.count(self.current)
        revision = self.current
        is_rolling = self.strategy.get("type") != "OnDelete"
        if is_rolling and updated == len(made) == len(ready) == self.owner.replicas:
            revision, current = self.update, updated
        counts = {
            "readyReplicas": len(ready),
            "currentReplicas": current,
            "updatedReplicas": updated,
            "collisionCount": 0,
        }
        waits = [unavailable_s(pod, self.owner.min_ready_s, self.now) for pod in ready]
        return {
            "observedGeneration": self.owner.metadata.generation,
            "replicas": len(made),
            "availableReplicas": sum(wait == 0.0 for wait in waits),
            "currentRevision": revision,
            "updateRevision": self.update,
            **{key: value for key, value in counts.items() if value or key == "collisionCount"},
        }
