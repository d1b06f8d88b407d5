"""Builders for the pure core of MPIJobs: a job as read, and the objects that are observed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gangline.api.core import ConfigMap, Job, ObjectMeta, OwnerReference, Pod, Secret, Service
from gangline.api.mpijob_reading import ReadJob, read_observed
from gangline.api.pod_group import PodGroup
from gangline.jobs.mpijob import reconcile
from gangline.jobs.observed import ObservedChildren
from gangline.jobs.plan import Plan
from gangline.jobs.settings import Settings

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
JOB_UID = "job-uid"
LAUNCHER_UID = "launcher-uid"
OTHERS = [OwnerReference(kind="Other", name="x", uid="other", controller=True)]


def _owner(kind: str, name: str, uid: str) -> list[OwnerReference]:
    return [OwnerReference(kind=kind, name=name, uid=uid, controller=True)]


class Scene:
    """One job and its surroundings; the tests change what they are about."""

    def __init__(self, name: str = "pi", workers: int | None = 2, **spec: Any) -> None:
        self.name = name
        self.spec: dict[str, Any] = {"mpiReplicaSpecs": {"Launcher": self._role()}, **spec}
        if workers is not None:
            self.spec["mpiReplicaSpecs"]["Worker"] = {"replicas": workers, **self._role()}
        self.status: dict[str, Any] = {}
        self.meta = ObjectMeta(name=name, namespace="ns", uid=JOB_UID, generation=1)
        self.services: dict[str, Service] = {}
        self.config_maps: dict[str, ConfigMap] = {}
        self.secrets: dict[str, Secret] = {}
        self.jobs: dict[str, Job] = {}
        self.pods: dict[str, Pod] = {}
        self.rejected: tuple[str, ...] = ()
        self.refused = ""
        self.pod_groups: dict[str, PodGroup] = {}
        self.priorities: dict[str, int] = {}
        self.settings = Settings()

    @staticmethod
    def _role() -> dict[str, Any]:
        return {"template": {"spec": {"containers": [{"name": "main", "image": "image"}]}}}

    def role(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.spec["mpiReplicaSpecs"][name]
        return found

    def pod_spec(self, role: str) -> dict[str, Any]:
        found: dict[str, Any] = self.role(role)["template"]["spec"]
        return found

    def main(self, role: str) -> dict[str, Any]:
        found: dict[str, Any] = self.pod_spec(role)["containers"][0]
        return found

    def read(self) -> ReadJob:
        return read_observed(self.meta, self.spec, self.status)

    def child_meta(self, name: str, *, foreign: bool = False) -> ObjectMeta:
        owners = OTHERS if foreign else _owner("MPIJob", self.name, JOB_UID)
        return ObjectMeta(name=name, namespace="ns", uid=f"{name}-uid", owner_references=owners)

    def add_children(self) -> Scene:
        """Add Service, ConfigMap and Secret as a plan would create them."""
        plan = self.plan()
        for action in plan.actions:
            wanted = getattr(action, "object", None) or getattr(action, "secret", None)
            if not wanted:
                continue
            wire = {**wanted, "metadata": {**wanted["metadata"], "uid": f"{wanted['metadata']['name']}-uid"}}
            if wanted["kind"] == "Service":
                self.services[wire["metadata"]["name"]] = msgspec.convert(wire, Service)
            elif wanted["kind"] == "ConfigMap":
                self.config_maps[wire["metadata"]["name"]] = msgspec.convert(wire, ConfigMap)
            elif wanted["kind"] == "Secret":
                wire["data"] |= {"ssh-privatekey": "eA==", "ssh-publickey": "eQ=="}
                self.secrets[wire["metadata"]["name"]] = msgspec.convert(wire, Secret)
        return self

    def add_worker(self, index: int, phase: str = "Running", *, ready: bool = True, **status: Any) -> None:
        name = f"{self.name}-worker-{index}"
        conditions = [{"type": "Ready", "status": "True" if ready and phase == "Running" else "False"}]
        wire = {"status": {"phase": phase, "conditions": conditions, **status}}
        self.pods[name] = msgspec.structs.replace(msgspec.convert(wire, Pod), metadata=self.child_meta(name))

    def add_workers(self, count: int, phase: str = "Running") -> Scene:
        for index in range(count):
            self.add_worker(index, phase)
        return self

    def add_launcher(self, *, spec: dict[str, Any] | None = None, **status: Any) -> Scene:
        name = f"{self.name}-launcher"
        job = msgspec.convert({"spec": spec or {}, "status": status}, Job)
        meta = msgspec.structs.replace(self.child_meta(name), uid=LAUNCHER_UID)
        self.jobs[name] = msgspec.structs.replace(job, metadata=meta)
        return self

    def add_launcher_pod(self, phase: str = "Running", *, suffix: str = "abcde", **status: Any) -> Scene:
        name = f"{self.name}-launcher-{suffix}"
        pod = msgspec.convert({"status": {"phase": phase, **status}}, Pod)
        meta = ObjectMeta(
            name=name,
            namespace="ns",
            uid=f"{name}-uid",
            creation_timestamp=f"2026-05-01T12:00:0{len(self.pods) % 10}Z",
            owner_references=_owner("Job", f"{self.name}-launcher", LAUNCHER_UID),
        )
        self.pods[name] = msgspec.structs.replace(pod, metadata=meta)
        return self

    def observed(self) -> ObservedChildren:
        return ObservedChildren(
            self.services,
            self.config_maps,
            self.secrets,
            self.jobs,
            self.pods,
            self.pod_groups,
            self.priorities,
            rejected=self.rejected,
            refused=self.refused,
        )

    def plan(self, now: datetime = NOW) -> Plan:
        return reconcile(self.read(), self.observed(), now, raw_status=self.status, settings=self.settings)

    def settle_status(self) -> Plan:
        """Reconcile once and take the new status over."""
        plan = self.plan()
        if plan.status is not None:
            self.status = plan.status
        return plan

    def conditions(self, plan: Plan) -> dict[str, tuple[str, str]]:
        """Condition types of the status that follows, with status and reason, in their order."""
        status = plan.status if plan.status is not None else self.status
        return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", [])}

    def message(self, plan: Plan, type_: str) -> str:
        assert plan.status is not None
        return next(c["message"] for c in plan.status["conditions"] if c["type"] == type_)


@pytest.fixture
def scene() -> Callable[..., Scene]:
    """Return the builder of scenes: ``scene(name, workers, **spec)``."""
    return Scene
