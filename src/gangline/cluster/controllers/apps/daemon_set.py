"""What a DaemonSet wants next: one pod on each node that it fits. Pure.

Source: Kubernetes documentation, "DaemonSet"; pkg/controller/daemon.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from gangline.api.core import Node, Pod, Toleration
from gangline.api.resources import CONTROLLER_REVISIONS, DAEMON_SETS, PODS
from gangline.cluster.controllers.apps.plan import (
    ApiWrite,
    Seen,
    WorkloadObject,
    WorkloadPlan,
    claim,
    soonest,
)
from gangline.cluster.controllers.apps.revisions import HASH_LABEL, plan_revisions, revision_hash
from gangline.cluster.controllers.apps.rollout import count_of
from gangline.cluster.controllers.pod_rules import is_active, is_ready, pod_from, unavailable_s
from gangline.placement import NodeView, PodView
from gangline.placement.filters import is_tolerated, matches_node

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GENERATION_LABEL = "pod-template-generation"
GENERATION_ANNOTATION = "deprecated.daemonset.template.generation"

TOLERATED = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
"""Taints ``node.kubernetes.io/…`` that pods of every DaemonSet put up with. Source: the documentation."""


def plan_daemon_set(owner: WorkloadObject, seen: Seen, now: datetime) -> WorkloadPlan:
    """Decide what a DaemonSet needs."""
    pods, steps = claim(DAEMON_SETS, owner.metadata, owner.spec.get("selector"), PODS, seen.children[PODS])
    found = [one for one in seen.children[CONTROLLER_REVISIONS] if one.metadata.controller is not None]
    hashes = {pod.metadata.labels.get(HASH_LABEL, "") for pod in pods}
    in_use = {one.metadata.name for one in found if revision_hash(one) in hashes}
    revisions = plan_revisions(DAEMON_SETS, owner, found, in_use)
    work = _Pass(owner, pods, seen.nodes, revision_hash(revisions.update), now)
    if not owner.is_deleted:
        steps = [*steps, *revisions.steps, *work.place(), *work.roll()]
    return WorkloadPlan(
        steps=tuple(steps),
        status=work.status(),
        events=tuple(work.events),
        requeue_after_s=work.requeue_after_s,
    )


def daemon_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a template's spec with the tolerations of every DaemonSet."""
    taints = [*TOLERATED, *((("network-unavailable", "NoSchedule"),) if spec.get("hostNetwork") else ())]
    own = [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}
        for name, effect in taints
    ]
    given = [entry for entry in spec.get("tolerations") or [] if entry not in own]
    return {**spec, "tolerations": [*given, *own]}


def on_node(spec: dict[str, Any], node: str) -> dict[str, Any]:
    """Return the spec of a pod for one node: every term of its affinity names that node alone."""
    affinity = dict(spec.get("affinity") or {})
    required = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity["nodeAffinity"] = {
        **(affinity.get("nodeAffinity") or {}),
        REQUIRED: {"nodeSelectorTerms": [{"matchFields": [required]}]},
    }
    return {**spec, "affinity": affinity}


def node_of(pod: Pod) -> str:
    """Return the node that a pod is on, or is meant for."""
    if pod.spec.node_name:
        return pod.spec.node_name
    required = ((pod.spec.affinity or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or []:
        for rule in term.get("matchFields") or []:
            if rule.get("key") == "metadata.name" and rule.get("values"):
                return str(rule["values"][0])
    return ""


class _Pass:
    """One decision about a DaemonSet."""

    def __init__(
        self, owner: WorkloadObject, pods: list[Pod], nodes: Any, update: str, now: datetime
    ) -> None:
        self.owner, self.update, self.now = owner, update, now
        self.spec = daemon_spec(owner.template.get("spec") or {})
        template = {"metadata": owner.template.get("metadata") or {}, "spec": self.spec}
        self.view = PodView.from_pod(msgspec.convert(template, Pod))
        self.by_node: dict[str, list[Pod]] = {}
        for pod in pods:
            self.by_node.setdefault(node_of(pod), []).append(pod)
        fits = {node.metadata.name: self._fits(node) for node in nodes}
        self.wanted = [name for name, (may_start, _) in fits.items() if may_start]
        self.tolerated = {name for name, (_, may_stay) in fits.items() if may_stay}
        self.events: list[tuple[str, str, str]] = []
        self.requeue_after_s: float | None = None

    def _fits(self, node: Node) -> tuple[bool, bool]:
        """Return whether a pod may start on a node, and whether one that runs there may stay."""
        if not matches_node(NodeView.from_node(node), self.view):
            return False, False
        tolerations: tuple[Toleration, ...] = self.view.tolerations
        against = {taint.effect for taint in node.spec.taints if not is_tolerated(taint, tolerations)}
        return not against & {"NoSchedule", "NoExecute"}, "NoExecute" not in against

    def place(self) -> list[ApiWrite]:
        """Return the pods to make and those that are where none should be, or have ended."""
        steps: list[ApiWrite] = []
        for name in self.wanted:
            pods = self.by_node.get(name) or []
            live = [pod for pod in pods if is_active(pod)]
            for pod in pods:
                if pod.is_finished and pod.metadata.deletion_timestamp is None:
                    word = "failed" if pod.status.phase == "Failed" else "succeeded"
                    message = (
                        f"Found {word} daemon pod {pod.metadata.key} on node {name}, will try to kill it"
                    )
                    self.events.append(("Warning", f"{word.capitalize()}DaemonPod", message))
                    steps.append(self._delete(pod))
            if not pods:
                steps.append(self._create(name))
            kept = sorted(live, key=lambda pod: pod.metadata.creation_timestamp or "")
            if not self._surge:
                steps += [self._delete(pod) for pod in kept[1:]]
        for name, pods in self.by_node.items():
            if name not in self.wanted and name not in self.tolerated:
                steps += [self._delete(pod) for pod in pods if pod.metadata.deletion_timestamp is None]
        return steps

    @property
    def _bounds(self) -> dict[str, Any]:
        strategy = self.owner.spec.get("updateStrategy") or {}
        return strategy.get("rollingUpdate") or {}

    @property
    def _surge(self) -> int:
        return count_of(self._bounds.get("maxSurge", 0), len(self.wanted), up=True)

    def roll(self) -> list[ApiWrite]:
        """Return the pods of an earlier template that go now, and those that come beside them first."""
        if (self.owner.spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            return []
        surge = self._surge
        room = count_of(self._bounds.get("maxUnavailable", 1), len(self.wanted), up=True)
        idle: list[Pod] = []
        serving: list[Pod] = []
        steps: list[ApiWrite] = []
        coming = 0
        for name in self.wanted:
            live = [pod for pod in self.by_node.get(name) or [] if is_active(pod)]
            old = [pod for pod in live if pod.metadata.labels.get(HASH_LABEL) != self.update]
            new = [pod for pod in live if pod not in old]
            has_new = any(self._is_available(pod) for pod in new)
            has_served = any(self._is_available(pod) for pod in live)
            room -= 0 if has_served else 1
            if surge:
                coming += 1 if old and new and not has_new else 0
                if has_new:
                    steps += [self._delete(pod) for pod in old]
                elif old and not has_served:
                    steps += [self._delete(pod) for pod in old] if new else [self._create(name)]
                elif old and not new:
                    serving += old
            else:
                idle += [pod for pod in old if not self._is_available(pod)]
                serving += [pod for pod in old if self._is_available(pod)]
        if surge:
            return [*steps, *(self._create(node_of(pod)) for pod in serving[: max(0, surge - coming)])]
        return [self._delete(pod) for pod in (*idle, *serving[: max(0, room)])]

    def _is_available(self, pod: Pod) -> bool:
        wait_s = unavailable_s(pod, self.owner.min_ready_s, self.now)
        self.requeue_after_s = soonest(self.requeue_after_s, wait_s or None)
        return is_active(pod) and wait_s == 0.0

    def _create(self, node: str) -> ApiWrite:
        owner = self.owner
        generation = owner.metadata.annotations.get(GENERATION_ANNOTATION) or str(owner.metadata.generation)
        body = pod_from(
            {**owner.template, "spec": on_node(self.spec, node)},
            DAEMON_SETS,
            owner.metadata,
            generateName=f"{owner.metadata.name}-",
            labels={HASH_LABEL: self.update, GENERATION_LABEL: generation},
        )
        message = "Created pod: {name}"
        return ApiWrite(verb="create", resource=PODS, body=body, reason="SuccessfulCreate", message=message)

    def _delete(self, pod: Pod) -> ApiWrite:
        message = "Deleted pod: {name}"
        return ApiWrite(
            verb="delete", resource=PODS, meta=pod.metadata, reason="SuccessfulDelete", message=message
        )

    def status(self) -> dict[str, Any]:
        """Return the counts of nodes."""
        here = {name: [p for p in self.by_node.get(name) or [] if is_active(p)] for name in self.wanted}
        wrong = [
            name
            for name, pods in self.by_node.items()
            if name not in self.wanted and any(map(is_active, pods))
        ]
        available = sum(any(map(self._is_available, pods)) for pods in here.values())
        counts = {
            "updatedNumberScheduled": sum(
                any(pod.metadata.labels.get(HASH_LABEL) == self.update for pod in pods)
                for pods in here.values()
            ),
            "numberAvailable": available,
            "numberUnavailable": len(self.wanted) - available,
        }
        return {
            "currentNumberScheduled": sum(bool(pods) for pods in here.values()),
            "numberMisscheduled": len(wrong),
            "desiredNumberScheduled": len(self.wanted),
            "numberReady": sum(any(map(is_ready, pods)) for pods in here.values()),
            "observedGeneration": self.owner.metadata.generation,
            **{key: value for key, value in counts.items() if value},
        }
