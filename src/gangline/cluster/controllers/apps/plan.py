"""What the plans of workloads are made of: what was seen, the steps that follow, a status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec

from gangline.api.core import Node, ObjectMeta, Pod, Wire
from gangline.api.resources import Resource
from gangline.clock import format_time
from gangline.cluster.controllers.pod_rules import owner_reference
from gangline.placement.filters import holds

CREATED_MAX = 500
"""Pods created in one pass at most; the rest follows in the next. Source: upstream's burst of replicas."""


class WorkloadObject(Wire, frozen=True, kw_only=True):
    """An object of one of the kinds planned here; spec and status stay raw, for the template is passed on.

    ``revision`` and ``data`` are those of a ControllerRevision.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    revision: int = 0
    data: dict[str, Any] = {}

    @property
    def replicas(self) -> int:
        """``spec.replicas``, or its default."""
        value = self.spec.get("replicas")
        return 1 if value is None else int(value)

    @property
    def template(self) -> dict[str, Any]:
        """``spec.template``."""
        return self.spec.get("template") or {}

    @property
    def min_ready_s(self) -> int:
        """``spec.minReadySeconds``."""
        return self.spec.get("minReadySeconds") or 0

    @property
    def is_deleted(self) -> bool:
        """Whether it is being deleted."""
        return self.metadata.deletion_timestamp is not None


class Failure(msgspec.Struct, frozen=True):
    """Why the last step of an object did not succeed; both empty when it did."""

    reason: str = ""
    message: str = ""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan starts from, beside the object itself.

    Attributes:
        children: objects by kind that the object controls, or that nobody does.
        nodes: of the cluster, for those that run on each.
        failure: of the last pass.
    """

    children: dict[Resource, Sequence[Any]] = {}
    nodes: Sequence[Node] = ()
    failure: Failure = Failure()


class ApiWrite(msgspec.Struct, frozen=True, kw_only=True):
    """One write.

    Attributes:
        verb: what is done.
        resource: to an object of which kind.
        body: the new object, or a merge patch.
        meta: of the object that is patched or deleted.
        reason: of the event about it; empty for none.
        message: of the event; ``{name}`` is the object's name.
        may_exist: whether it does not matter that the object is there already.
    """

    verb: Literal["create", "patch", "delete"]
    resource: Resource
    body: dict[str, Any] = {}
    meta: ObjectMeta = ObjectMeta()
    reason: str = ""
    message: str = ""
    may_exist: bool = False


class WorkloadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do: the steps, then the status.

    Attributes:
        steps: in any order.
        status: the whole new status.
        events: type, reason and message of each that is not about a step.
        requeue_after_s: look again after so many seconds, even if nothing changes.
    """

    steps: tuple[ApiWrite, ...] = ()
    status: dict[str, Any] = {}
    events: tuple[tuple[str, str, str], ...] = ()
    requeue_after_s: float | None = None


T = TypeVar("T", Pod, WorkloadObject)


def claim(
    resource: Resource,
    owner: ObjectMeta,
    selector: dict[str, Any] | None,
    kind: Resource,
    found: Iterable[T],
) -> tuple[list[T], list[ApiWrite]]:
    """Return what an owner controls from now on, and the steps that adopt and release.

    Args:
        resource: the owner's kind.
        owner: who claims; one that is being deleted keeps what it has.
        selector: of the owner, which decides.
        kind: of the objects.
        found: the objects that it controls or that nobody does.
    """
    mine: list[T] = []
    steps: list[ApiWrite] = []
    for obj in found:
        meta: ObjectMeta = obj.metadata
        controller = meta.controller
        is_match = selects(selector, meta.labels)
        if controller is not None and controller.uid != owner.uid:
            continue
        if controller is not None and (is_match or owner.deletion_timestamp):
            mine.append(obj)
        elif controller is not None:
            kept = [ref for ref in meta.owner_references if ref.uid != owner.uid]
            steps.append(_owners(kind, meta, msgspec.to_builtins(kept)))
        elif (
            is_match
            and not owner.deletion_timestamp
            and meta.deletion_timestamp is None
            and not _is_ended(obj)
        ):
            refs = [*msgspec.to_builtins(meta.owner_references), owner_reference(resource, owner)]
            steps.append(_owners(kind, meta, refs))
            mine.append(obj)
    return mine, steps


def _is_ended(obj: Pod | WorkloadObject) -> bool:
    return isinstance(obj, Pod) and obj.is_finished


def _owners(kind: Resource, meta: ObjectMeta, references: list[dict[str, Any]]) -> ApiWrite:
    precondition = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    body = {"metadata": {**precondition, "ownerReferences": references or None}}
    return ApiWrite(verb="patch", resource=kind, meta=meta, body=body)


def selects(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    """Return whether a selector matches; a missing or empty one matches nothing here.

    A ReplicationController's is a plain map of labels.
    """
    if not selector:
        return False
    expressions = selector.get("matchExpressions") or []
    wanted = selector.get("matchLabels") or {}
    if not expressions and not wanted:
        wanted = {key: value for key, value in selector.items() if isinstance(value, str)}
        if not wanted:
            return False
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        holds(rule.get("operator", ""), rule.get("values") or [], labels.get(rule.get("key", "")))
        for rule in expressions
    )


def with_condition(
    conditions: Sequence[dict[str, Any]],
    now: datetime,
    type_: str,
    status: str,
    reason: str,
    message: str,
    *,
    is_updated: bool = False,
) -> list[dict[str, Any]]:
    """Return conditions with one set: its time moves with its status only.

    Args:
        conditions: as they are.
        now: the time.
        type_: of the condition.
        status: ``True``, ``False``, ``Unknown``.
        reason: one word.
        message: for people.
        is_updated: whether it also has a ``lastUpdateTime``, which moves with its reason too.
    """
    old = next((entry for entry in conditions if entry.get("type") == type_), None)
    if old is not None and (old["status"], old.get("reason"), old.get("message")) == (
        status,
        reason,
        message,
    ):
        return list(conditions)
    stamp = format_time(now)
    new = {"type": type_, "status": status, "reason": reason, "message": message}
    new["lastTransitionTime"] = stamp
    if old is not None and old["status"] == status:
        new["lastTransitionTime"] = old.get("lastTransitionTime", stamp)
    if is_updated:
        same = old is not None and (old["status"], old.get("reason")) == (status, reason)
        new["lastUpdateTime"] = old.get("lastUpdateTime", stamp) if old is not None and same else stamp
    rest = [entry for entry in conditions if entry.get("type") != type_]
    return [*rest, new]


def soonest(*delays_s: float | None) -> float | None:
    """Return the shortest of the delays that there are."""
    return min((delay_s for delay_s in delays_s if delay_s is not None), default=None)
