"""Builders for training jobs: a job as read, its pods, and the plan."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod, Service
from gangline.api.mpijob import JobMeta
from gangline.api.pod_group import PodGroup
from gangline.api.training.autoscaler import Autoscaler
from gangline.api.training.reading import read_observed_training
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.plan import Create, Delete, Plan
from gangline.jobs.settings import Settings
from gangline.jobs.training.reconcile import reconcile
from gangline.jobs.training.rules import PYTORCH_RULES, TENSORFLOW_RULES, TrainingRules

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
UID = "job-uid"
RULES = {"PyTorchJob": PYTORCH_RULES, "TFJob": TENSORFLOW_RULES}


class TrainingScene:
    """One job and its surroundings; the tests change what they are about."""

    def __init__(self, kind: str, roles: dict[str, int], *, version: str = "v1", **spec: Any) -> None:
        self.rules: TrainingRules = RULES[kind]
        self.version = version
        template = {"spec": {"containers": [{"name": self.rules.kind.container, "image": "image"}]}}
        specs = {role: {"replicas": count, "template": template} for role, count in roles.items()}
        self.spec: dict[str, Any] = {self.rules.kind.specs_field: specs, **spec}
        self.annotations: dict[str, str] = {}
        self.status: dict[str, Any] = {}
        self.pods: dict[str, Pod] = {}
        self.services: dict[str, Service] = {}
        self.pod_groups: dict[str, PodGroup] = {}
        self.autoscalers: dict[str, Autoscaler] = {}
        self.rejected: tuple[str, ...] = ()
        self.settings = Settings()
        self.now = NOW

    def policy(self, **policy: Any) -> TrainingScene:
        self.spec.setdefault("runPolicy", {}).update(policy)
        return self

    def restart(self, policy: str, *roles: str) -> TrainingScene:
        specs = self.spec[self.rules.kind.specs_field]
        for role in roles or specs:
            specs[role] = {**specs[role], "restartPolicy": policy}
        return self

    def pod(
        self, role: str, index: int, phase: str, *, code: int | None = None, **more: Any
    ) -> TrainingScene:
        """Add a pod of the job; it carries what the job itself would give it."""
        name = f"train-{role.lower()}-{index}"
        ended = (
            []
            if code is None
            else [{"name": self.rules.kind.container, "state": {"terminated": {"exitCode": code}}}]
        )
        meta = {
            "name": name,
            "namespace": "ns",
            "uid": more.pop("uid", f"{name}-uid"),
            "labels": {
                "training.kubeflow.org/replica-type": role.lower(),
                "training.kubeflow.org/replica-index": str(index),
            },
            "ownerReferences": [
                {"kind": self.rules.kind.name, "name": "train", "uid": UID, "controller": True}
            ],
        }
        if more.pop("deleted", False):
            meta["deletionTimestamp"] = "2026-05-01T12:00:00Z"
        if restarts := more.pop("restarts", 0):
            ended = [{"name": self.rules.kind.container, "restartCount": restarts}]
        status = {"phase": phase, "containerStatuses": ended, **more}
        self.pods[name] = msgspec.convert({"metadata": meta, "status": status}, Pod)
        return self

    def pods_of(self, role: str, phases: str, **more: Any) -> TrainingScene:
        """Add a pod for each letter: Running, Succeeded, Failed, Pending."""
        words = {"R": "Running", "S": "Succeeded", "F": "Failed", "P": "Pending"}
        for index, letter in enumerate(phases):
            self.pod(role, index, words[letter], **more)
        return self

    def plan(self) -> Plan:
        written = {
            "apiVersion": f"kubeflow.org/{self.version}",
            "manager": "m",
            "time": "2026-05-01T11:00:00Z",
        }
        metadata = {
            "name": "train",
            "namespace": "ns",
            "uid": UID,
            "generation": 1,
            "annotations": self.annotations,
            "managedFields": [written],
        }
        meta = msgspec.convert(metadata, JobMeta)
        read = read_observed_training(self.rules.kind, meta, self.spec, self.status)
        observed = ObservedChildren(
            services=self.services,
            pods=self.pods,
            autoscalers=self.autoscalers,
            pod_groups=self.pod_groups,
            rejected=self.rejected,
        )
        return reconcile(self.rules, read, observed, self.now, raw_status=self.status, settings=self.settings)

    def settle(self) -> Plan:
        """Reconcile, take the new status over, and return the plan that follows."""
        plan = self.plan()
        if plan.status is not None:
            self.status = plan.status
        return self.plan()

    def carry_out(self) -> Plan:
        """Do what plans say until nothing is to be done; new pods are pending. Returns the last but one."""
        last = Plan()
        for _ in range(9):
            plan = self.plan()
            if plan.status is not None:
                self.status = plan.status
            for action in plan.actions:
                self._do(action)
            if plan.is_empty or (not plan.actions and plan.status is None):
                return last
            last = plan
        raise AssertionError("it does not come to rest")

    def _do(self, action: Any) -> None:
        if isinstance(action, Create):
            name = action.object["metadata"]["name"]
            wire = {**action.object, "metadata": {**action.object["metadata"], "uid": f"{name}-new"}}
            match action.object["kind"]:
                case "Pod":
                    self.pods[name] = msgspec.convert({**wire, "status": {"phase": "Pending"}}, Pod)
                case "Service":
                    self.services[name] = msgspec.convert(wire, Service)
                case "HorizontalPodAutoscaler":
                    self.autoscalers[name] = msgspec.convert(wire, Autoscaler)
                case _:
                    self.pod_groups[name] = msgspec.convert(wire, PodGroup)
        if isinstance(action, Delete):
            homes: dict[str, dict[str, Any]] = {
                "Pod": self.pods,
                "Service": self.services,
                "HorizontalPodAutoscaler": self.autoscalers,
            }
            homes.get(action.resource.kind, self.pod_groups).pop(action.name, None)

    def conditions(self, plan: Plan | None = None) -> dict[str, str]:
        """Type -> status of the conditions, in their order."""
        status = plan.status if plan is not None and plan.status is not None else self.status
        return {one["type"]: one["status"] for one in status.get("conditions", [])}

    def condition(self, type_: str) -> tuple[str, str, str]:
        return next(
            (one["status"], one["reason"], one["message"])
            for one in self.status["conditions"]
            if one["type"] == type_
        )

    def later(self, seconds: float) -> TrainingScene:
        self.now += timedelta(seconds=seconds)
        return self

    def container(self, name: str) -> dict[str, Any]:
        """Return the first container of a pod that the next plan creates."""
        found: dict[str, Any] = created(self.plan(), "Pod")[name]["spec"]["containers"][0]
        return found


def created(plan: Plan, kind: str) -> dict[str, dict[str, Any]]:
    """Return what a plan creates of a kind, by name."""
    made = [action.object for action in plan.actions if isinstance(action, Create)]
    return {one["metadata"]["name"]: one for one in made if one["kind"] == kind}


def deleted(plan: Plan, kind: str = "Pod") -> list[str]:
    """Return the names of what a plan deletes of a kind."""
    return sorted(a.name for a in plan.actions if isinstance(a, Delete) and a.resource.kind == kind)


@pytest.fixture
def training() -> Callable[..., TrainingScene]:
    """Return the builder of scenes: ``training(kind, {role: count}, **spec)``."""
    return TrainingScene
