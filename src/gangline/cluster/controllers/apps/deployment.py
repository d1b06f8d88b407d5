"""What a Deployment wants next: one ReplicaSet for its template, the older ones drained. Pure.

The sizes of the ReplicaSets are decided in ``rollout.py``; here the set for the template is found or made,
revisions are counted, and the status is told.
Source: Kubernetes documentation, "Deployments"; pkg/controller/deployment. The hash of a template is our own:
its value means nothing to anybody but that equal templates have equal ones.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

import msgspec

from gangline.api.core import ObjectMeta
from gangline.api.resources import DEPLOYMENTS, REPLICA_SETS
from gangline.clock import parse_time
from gangline.cluster.controllers.apps.plan import (
    ApiWrite,
    Seen,
    WorkloadObject,
    WorkloadPlan,
    claim,
    with_condition,
)
from gangline.cluster.controllers.apps.rollout import DESIRED, MAX_REPLICAS, Rollout, plan_sizes
from gangline.cluster.controllers.pod_rules import owner_reference

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
OWN_ANNOTATIONS = frozenset(
    (
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        REVISION_HISTORY,
        DESIRED,
        MAX_REPLICAS,
        "deprecated.deployment.rollback.to",
    )
)
"""Annotations of a Deployment that its ReplicaSets do not get; all others they do, ``change-cause`` too."""

SAFE_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels, so that no hash is a word. Source: k8s.io/apimachinery, util/rand."""

HISTORY_DEFAULT = 10
PROGRESS_DEADLINE_S = 600
UNBOUNDED_S = 2**31 - 1
"""As ``progressDeadlineSeconds``: no deadline."""


def plan_deployment(owner: WorkloadObject, seen: Seen, now: datetime) -> WorkloadPlan:
    """Decide what a Deployment needs."""
    sets, steps = claim(
        DEPLOYMENTS, owner.metadata, owner.spec.get("selector"), REPLICA_SETS, seen.children[REPLICA_SETS]
    )
    if owner.is_deleted:
        return WorkloadPlan(steps=tuple(steps), status=owner.status)
    return _Pass(owner, sets, seen, now, steps).plan()


def template_hash(template: dict[str, Any], collisions: int = 0) -> str:
    """Return ten letters that are equal for equal templates, and differ with the count of collisions."""
    text = msgspec.json.encode([template, collisions], order="deterministic")
    digest = hashlib.sha256(text).digest()
    return "".join(SAFE_LETTERS[byte % len(SAFE_LETTERS)] for byte in digest[:10])


def revision_of(meta: ObjectMeta) -> int:
    """Return the revision that an annotation tells, 0 without one."""
    text = meta.annotations.get(REVISION) or ""
    return int(text) if text.isdigit() else 0


def _bare_template(template: dict[str, Any]) -> dict[str, Any]:
    """Return a template without the label that tells ReplicaSets apart."""
    meta = dict(template.get("metadata") or {})
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key != HASH_LABEL}
    found = {**meta, "labels": labels}
    return {**template, "metadata": {key: value for key, value in found.items() if value is not None}}


class _Pass:
    """One decision about a Deployment: gathers steps, events and conditions on the way."""

    def __init__(
        self,
        owner: WorkloadObject,
        sets: list[WorkloadObject],
        seen: Seen,
        now: datetime,
        steps: list[ApiWrite],
    ) -> None:
        self.owner, self.sets, self.seen, self.now, self.steps = owner, sets, seen, now, steps
        self.conditions: list[dict[str, Any]] = list(owner.status.get("conditions") or [])
        self.collisions: int = owner.status.get("collisionCount") or 0
        wanted = _bare_template(owner.template)
        same = [one for one in sets if _bare_template(one.template) == wanted]
        self.new = min(same, key=_born, default=None)
        self.old = [one for one in sets if one is not self.new]
        self.events: list[tuple[str, str, str]] = []
        self.requeue_after_s: float | None = None

    def plan(self) -> WorkloadPlan:
        rollout = Rollout.of(self.owner, self.new, self.old)
        is_paused = bool(self.owner.spec.get("paused"))
        self._set_paused(is_paused)
        if self.new is None and self.seen.failure.reason == "AlreadyExists":
            self.collisions += 1
        if self.new is not None:
            self._number(self.new)
        elif not is_paused and rollout.may_create:
            self._create(rollout)
        sizes = plan_sizes(rollout)
        for one in self.sets:
            self._resize(one, sizes.get(one.metadata.uid, one.replicas), rollout)
        self._progress(rollout)
        self._forget_old()
        return WorkloadPlan(
            steps=tuple(self.steps),
            status=self._status(rollout),
            events=tuple(self.events),
            requeue_after_s=self.requeue_after_s,
        )

    # ----- revisions

    def _number(self, new: WorkloadObject) -> None:
        """Give the current set the highest revision, and the Deployment its number."""
        highest = max((revision_of(one.metadata) for one in self.old), default=0)
        before = revision_of(new.metadata)
        revision = before if before > highest else highest + 1
        annotations = self._shared_annotations()
        if before and before != revision:
            history = [*(new.metadata.annotations.get(REVISION_HISTORY) or "").split(","), str(before)]
            annotations[REVISION_HISTORY] = ",".join(entry for entry in history if entry)
        annotations[REVISION] = str(revision)
        body: dict[str, Any] = {}
        if not annotations.items() <= new.metadata.annotations.items():
            body["metadata"] = {"uid": new.metadata.uid, "annotations": annotations}
        if (new.spec.get("minReadySeconds") or 0) != self.owner.min_ready_s:
            body["spec"] = {"minReadySeconds": self.owner.min_ready_s}
        if body:
            self.steps.append(ApiWrite(verb="patch", resource=REPLICA_SETS, meta=new.metadata, body=body))
        self._tell_revision(revision)

    def _tell_revision(self, revision: int) -> None:
        if revision_of(self.owner.metadata) != revision:
            meta = self.owner.metadata
            body = {"metadata": {"uid": meta.uid, "annotations": {REVISION: str(revision)}}}
            self.steps.append(ApiWrite(verb="patch", resource=DEPLOYMENTS, meta=meta, body=body))

    def _shared_annotations(self) -> dict[str, str]:
        found = self.owner.metadata.annotations
        return {key: value for key, value in found.items() if key not in OWN_ANNOTATIONS}

    def _create(self, rollout: Rollout) -> None:
        owner, meta = self.owner, self.owner.metadata
        hashed = template_hash(owner.template, self.collisions)
        revision = max((revision_of(one.metadata) for one in self.old), default=0) + 1
        template_meta = owner.template.get("metadata") or {}
        labels = {**(template_meta.get("labels") or {}), HASH_LABEL: hashed}
        selector = owner.spec.get("selector") or {}
        size = rollout.first_size
        name = f"{meta.name}-{hashed}"
        body = {
            "apiVersion": REPLICA_SETS.api_version,
            "kind": REPLICA_SETS.kind,
            "metadata": {
                "name": name,
                "namespace": meta.namespace,
                "labels": labels,
                "annotations": {
                    **self._shared_annotations(),
                    REVISION: str(revision),
                    **rollout.size_annotations,
                },
                "ownerReferences": [owner_reference(DEPLOYMENTS, meta)],
            },
            "spec": {
                "replicas": size,
                "minReadySeconds": owner.min_ready_s,
                "selector": {
                    **selector,
                    "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: hashed},
                },
                "template": {**owner.template, "metadata": {**template_meta, "labels": labels}},
            },
        }
        reason = "ScalingReplicaSet" if size else ""
        message = f"Scaled up replica set {{name}} from 0 to {size}"
        self.steps.append(
            ApiWrite(verb="create", resource=REPLICA_SETS, body=body, reason=reason, message=message)
        )
        self._tell_revision(revision)
        self._set("Progressing", "True", "NewReplicaSetCreated", f'Created new replica set "{name}"')

    def _resize(self, one: WorkloadObject, size: int, rollout: Rollout) -> None:
        body: dict[str, Any] = {}
        if size != one.replicas:
            body["spec"] = {"replicas": size}
        sizes = rollout.size_annotations
        if (size or size != one.replicas) and not sizes.items() <= one.metadata.annotations.items():
            body["metadata"] = {"annotations": sizes}
        if not body:
            return
        way = "up" if size > one.replicas else "down"
        reason = "ScalingReplicaSet" if size != one.replicas else ""
        message = f"Scaled {way} replica set {{name}} from {one.replicas} to {size}"
        self.steps.append(
            ApiWrite(
                verb="patch",
                resource=REPLICA_SETS,
                meta=one.metadata,
                body=body,
                reason=reason,
                message=message,
            )
        )

    def _forget_old(self) -> None:
        """Delete the oldest empty sets beyond the history that is to be kept, once the rollout is over."""
        limit = self.owner.spec.get("revisionHistoryLimit")
        limit = HISTORY_DEFAULT if limit is None else limit
        empty = [one for one in self.old if not (one.replicas or one.status.get("replicas"))]
        for one in sorted(empty, key=lambda entry: revision_of(entry.metadata))[
            : max(0, len(self.old) - limit)
        ]:
            if one.metadata.deletion_timestamp is None:
                self.steps.append(ApiWrite(verb="delete", resource=REPLICA_SETS, meta=one.metadata))

    # ----- status

    def _set(self, type_: str, status: str, reason: str, message: str) -> None:
        self.conditions = with_condition(
            self.conditions, self.now, type_, status, reason, message, is_updated=True
        )

    def _condition(self, type_: str) -> dict[str, Any]:
        return next((entry for entry in self.conditions if entry["type"] == type_), {})

    def _set_paused(self, is_paused: bool) -> None:
        found = self._condition("Progressing").get("reason")
        if found == "ProgressDeadlineExceeded":
            return
        if is_paused and found != "DeploymentPaused":
            self._set("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused")
        elif not is_paused and found == "DeploymentPaused":
            self._set("Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed")

    def _progress(self, rollout: Rollout) -> None:
        """Say whether the rollout moves, is over, or has stood still for too long."""
        deadline_s = self.owner.spec.get("progressDeadlineSeconds")
        deadline_s = PROGRESS_DEADLINE_S if deadline_s is None else deadline_s
        if deadline_s == UNBOUNDED_S:
            self.conditions = [entry for entry in self.conditions if entry["type"] != "Progressing"]
            return
        if self.new is None or self.owner.spec.get("paused"):
            return
        name, current = self.new.metadata.name, self._condition("Progressing")
        status, before = self._counts(), self.owner.status
        is_known_over = current.get("reason") == "NewReplicaSetAvailable" and not rollout.is_new_moving
        if rollout.is_complete(status) and self._is_observed(self.new):
            message = f'ReplicaSet "{name}" has successfully progressed.'
            self._set("Progressing", "True", "NewReplicaSetAvailable", message)
        elif is_known_over:
            return
        elif not current:
            self._set("Progressing", "True", "FoundNewReplicaSet", f'Found new replica set "{name}"')
        elif _has_progressed(before, status):
            # The time of the last progress is what the deadline counts from.
            self.conditions = [entry for entry in self.conditions if entry["type"] != "Progressing"]
            self._set("Progressing", "True", "ReplicaSetUpdated", f'ReplicaSet "{name}" is progressing.')
            if current.get("status") == "True":
                self.conditions[-1]["lastTransitionTime"] = current["lastTransitionTime"]
        elif current.get("reason") != "ProgressDeadlineExceeded":
            since = parse_time(current.get("lastUpdateTime") or current["lastTransitionTime"])
            left_s = deadline_s - (self.now - since).total_seconds()
            if left_s > 0:
                self.requeue_after_s = left_s
            else:
                message = f'ReplicaSet "{name}" has timed out progressing.'
                self._set("Progressing", "False", "ProgressDeadlineExceeded", message)

    def _is_observed(self, one: WorkloadObject) -> bool:
        return bool((one.status.get("observedGeneration") or 0) >= one.metadata.generation)

    def _counts(self) -> dict[str, int]:
        def total(field: str, sets: list[WorkloadObject]) -> int:
            return sum(one.status.get(field) or 0 for one in sets)

        return {
            "replicas": total("replicas", self.sets),
            "updatedReplicas": total("replicas", [self.new] if self.new is not None else []),
            "readyReplicas": total("readyReplicas", self.sets),
            "availableReplicas": total("availableReplicas", self.sets),
            "terminatingReplicas": total("terminatingReplicas", self.sets),
        }

    def _status(self, rollout: Rollout) -> dict[str, Any]:
        counts = self._counts()
        available = counts["availableReplicas"]
        missing = sum(one.replicas for one in self.sets) - available
        counts["unavailableReplicas"] = max(0, missing)
        if available >= self.owner.replicas - rollout.max_unavailable:
            is_available = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        else:
            reason = "MinimumReplicasUnavailable"
            is_available = ("False", reason, "Deployment does not have minimum availability.")
        self._set("Available", *is_available)
        failures = (
            entry
            for one in ([self.new] if self.new else self.old)
            for entry in one.status.get("conditions") or []
            if entry["type"] == "ReplicaFailure" and entry["status"] == "True"
        )
        if failure := next(failures, None):
            self._set("ReplicaFailure", "True", failure.get("reason", ""), failure.get("message", ""))
        else:
            self.conditions = [entry for entry in self.conditions if entry["type"] != "ReplicaFailure"]
        status: dict[str, Any] = {key: value for key, value in counts.items() if value}
        if self.collisions:
            status["collisionCount"] = self.collisions
        return {
            **status,
            "observedGeneration": self.owner.metadata.generation,
            "conditions": self.conditions,
        }


def _has_progressed(before: dict[str, Any], now: dict[str, int]) -> bool:
    """Return whether more pods are updated, ready or available than before, or fewer old ones are left."""

    def old(status: dict[str, Any]) -> int:
        return (status.get("replicas") or 0) - (status.get("updatedReplicas") or 0)

    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return old(now) < old(before) or any(now[field] > (before.get(field) or 0) for field in grown)


def _born(one: WorkloadObject) -> tuple[str, str]:
    return one.metadata.creation_timestamp or "", one.metadata.name
