"""How a job says that it can be interrupted, and how the scheduler suspends and resumes it. Pure.

The scheduler writes two annotations beside ``suspend``: what the job has had so far, which stays, and why it
is suspended, which goes when it goes on. Whose ``suspend`` it is, ``managedFields`` tell: they name who wrote
the value last. So only what the scheduler has suspended is resumed, whoever was at work meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.api.metadata import OwnerReference, Wire
from gangline.api.resources import JOBS, MPIJOBS, PYTORCHJOBS, TFJOBS, TRAINJOBS, Resource

KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
KUEUE = "kueue.x-k8s.io/"
"""Of managers that are Kueue: it suspends and resumes what it admits, and nobody else."""

RESUMABLE_ANNOTATION = "gangline.dev/resumable"
"""On a job: ``true`` where it goes on from a checkpoint when its pods are made anew, ``false`` where it must
not be suspended. Without it a job can be resumed whose training tells of its checkpoints."""

CHECKPOINT_ANNOTATION = "gangline.dev/checkpoint-time"
"""On any pod of a gang: when its training last saved its state, RFC 3339. What came before is not lost."""

SERVICE_ANNOTATION = "gangline.dev/attained-service"
"""On a job that was suspended: what it has had, as JSON ``{"deviceSeconds": 144000, "suspensions": 1}``."""

SUSPENDED_ANNOTATION = "gangline.dev/suspended-by-scheduler"
"""On a job that the scheduler has suspended, for as long as it is: why, for people."""

FIELD_MANAGER = "gangline-scheduler-suspension"
"""Who writes ``suspend``, in ``managedFields``."""

SUSPENDABLE: Mapping[Resource, tuple[str, ...]] = {
    MPIJOBS: ("runPolicy", "suspend"),
    PYTORCHJOBS: ("runPolicy", "suspend"),
    TFJOBS: ("runPolicy", "suspend"),
    TRAINJOBS: ("suspend",),
    JOBS: ("suspend",),
}
"""Kinds whose objects can be suspended, and where in ``spec``."""


class _SuspendField(Wire, frozen=True, kw_only=True):
    suspend: dict[str, Any] | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="f:suspend")


class _SpecFields(_SuspendField, frozen=True, kw_only=True):
    run_policy: _SuspendField = msgspec.field(default=_SuspendField(), name="f:runPolicy")


class _Fields(Wire, frozen=True, kw_only=True):
    spec: _SpecFields = msgspec.field(default=_SpecFields(), name="f:spec")


class _ManagedFields(Wire, frozen=True, kw_only=True):
    manager: str = ""
    fields_v1: _Fields = _Fields()

    @property
    def has_suspend(self) -> bool:
        """Whether this manager wrote `suspend` last, of a kind that has it at either place."""
        spec = self.fields_v1.spec
        return spec.suspend is not msgspec.UNSET or spec.run_policy.suspend is not msgspec.UNSET


class _Labels(Wire, frozen=True, kw_only=True):
    queue: str = msgspec.field(default="", name=KUEUE_QUEUE_LABEL)


class _Annotations(Wire, frozen=True, kw_only=True):
    resumable: str = msgspec.field(default="", name=RESUMABLE_ANNOTATION)
    service: str = msgspec.field(default="{}", name=SERVICE_ANNOTATION)
    suspended: str = msgspec.field(default="", name=SUSPENDED_ANNOTATION)


class _Metadata(Wire, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: _Labels = _Labels()
    annotations: _Annotations = _Annotations()
    owner_references: list[OwnerReference] = []
    managed_fields: list[_ManagedFields] = []

    @property
    def key(self) -> str:
        """``NAMESPACE/NAME``."""
        return f"{self.namespace}/{self.name}"


class _RunPolicy(Wire, frozen=True, kw_only=True):
    suspend: bool | None = None
    managed_by: str | None = None


class _Spec(_RunPolicy, frozen=True, kw_only=True):
    run_policy: _RunPolicy = _RunPolicy()


class SuspendableJob(Wire, frozen=True, kw_only=True):
    """What of a job of any kind in :data:`SUSPENDABLE` decides whether it is suspended, and by whom.

    No more than that is kept: a cluster may have 100,000 Jobs that are over.
    """

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()

    @property
    def is_suspended(self) -> bool:
        """Whether it holds no pods by wish, anybody's."""
        return bool(self.spec.suspend or self.spec.run_policy.suspend)

    @property
    def is_free(self) -> bool:
        """Whether nobody else decides when it runs: another object of which it is a part, or Kueue."""
        managers = (self.spec.managed_by, self.spec.run_policy.managed_by)
        is_part = any(owner.controller for owner in self.metadata.owner_references)
        is_kueues = any(name and name.startswith(KUEUE) for name in managers)
        return not (is_part or is_kueues or self.metadata.labels.queue)

    @property
    def says_resumable(self) -> bool | None:
        """What its annotation says; None where it says nothing."""
        return {"true": True, "false": False}.get(self.metadata.annotations.resumable)

    @property
    def is_marked(self) -> bool:
        """Whether it carries why the scheduler has suspended it."""
        return bool(self.metadata.annotations.suspended)

    @property
    def is_suspended_by_us(self) -> bool:
        """Whether the scheduler has suspended it, and nobody has written that since."""
        if not self.is_suspended or not self.is_marked:
            return False
        writers = {one.manager for one in self.metadata.managed_fields if one.has_suspend}
        return writers == {FIELD_MANAGER}

    def service(self) -> tuple[float, int]:
        """Return the device-seconds that it had before its present run, and how often it was suspended."""
        try:
            had = msgspec.json.decode(self.metadata.annotations.service, type=_Had)
        except msgspec.DecodeError:
            return 0.0, 0  # somebody else wrote it
        return max(had.device_seconds, 0.0), max(had.suspensions, 0)


class _Had(Wire, frozen=True, kw_only=True):
    device_seconds: float = 0.0
    suspensions: int = 0


def suspend_patch(
    resource: Resource, uid: str, why: str, *, device_s: float, suspensions: int
) -> dict[str, Any]:
    """Return the merge patch that suspends a job and tells why; it fails where another has its name now."""
    had = msgspec.json.encode(_Had(device_seconds=round(device_s), suspensions=suspensions)).decode()
    annotations = {SERVICE_ANNOTATION: had, SUSPENDED_ANNOTATION: why}
    return _patch(resource, uid, annotations, is_suspended=True)


def resume_patch(resource: Resource, uid: str) -> dict[str, Any]:
    """Return the merge patch that lets a job go on."""
    return _patch(resource, uid, {SUSPENDED_ANNOTATION: None}, is_suspended=False)


def forget_patch(uid: str) -> dict[str, Any]:
    """Return the merge patch that takes back why a job was suspended, which somebody else has resumed."""
    return {"metadata": {"uid": uid, "annotations": {SUSPENDED_ANNOTATION: None}}}


def why_suspended(annotations: Mapping[str, str]) -> str:
    """Return why the scheduler has suspended a job, or nothing."""
    return annotations.get(SUSPENDED_ANNOTATION, "")


def _patch(
    resource: Resource, uid: str, annotations: Mapping[str, str | None], *, is_suspended: bool
) -> dict[str, Any]:
    spec: Any = is_suspended
    for name in reversed(SUSPENDABLE[resource]):
        spec = {name: spec}
    return {"metadata": {"uid": uid, "annotations": annotations}, "spec": spec}
