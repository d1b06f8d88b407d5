"""How large the ReplicaSets of a Deployment should be: rolling update, recreation, scaling. Pure.

Source: Kubernetes documentation, "Deployments"; pkg/controller/deployment (rolling.go, recreate.go, sync.go).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gangline.cluster.controllers.apps.plan import WorkloadObject

DESIRED = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"
DEFAULT_SHARE = "25%"


@dataclass(frozen=True, slots=True)
class Rollout:
    """A Deployment's sets and bounds.

    Attributes:
        wanted: ``spec.replicas``.
        max_surge: pods above that number while updating; 0 for ``Recreate``.
        max_unavailable: pods below it; all of them for ``Recreate``.
        recreates: whether old pods end before new ones begin.
        is_paused: only scaling is done.
        new: the set of the current template.
        old: all others.
    """

    wanted: int
    max_surge: int
    max_unavailable: int
    recreates: bool
    is_paused: bool
    new: WorkloadObject | None
    old: tuple[WorkloadObject, ...]

    @classmethod
    def of(cls, owner: WorkloadObject, new: WorkloadObject | None, old: Sequence[WorkloadObject]) -> Rollout:
        """Return the rollout of a Deployment."""
        strategy, wanted = owner.spec.get("strategy") or {}, owner.replicas
        recreates = strategy.get("type") == "Recreate"
        bounds = strategy.get("rollingUpdate") or {}
        surge = count_of(bounds.get("maxSurge", DEFAULT_SHARE), wanted, up=True)
        unavailable = count_of(bounds.get("maxUnavailable", DEFAULT_SHARE), wanted, up=False)
        if not surge and not unavailable:
            unavailable = 1  # else nothing could ever move
        return cls(
            wanted=wanted,
            max_surge=0 if recreates else surge,
            max_unavailable=0 if recreates else min(unavailable, wanted),
            recreates=recreates,
            is_paused=bool(owner.spec.get("paused")),
            new=new,
            old=tuple(old),
        )

    @property
    def sets(self) -> list[WorkloadObject]:
        """All sets."""
        return [*self.old, *([self.new] if self.new is not None else [])]

    @property
    def ceiling(self) -> int:
        """How many pods there may be while updating."""
        return self.wanted + self.max_surge if self.wanted else 0

    @property
    def size_annotations(self) -> dict[str, str]:
        """What a set is told about the size of the whole, by which a later scaling is noticed."""
        return {DESIRED: str(self.wanted), MAX_REPLICAS: str(self.wanted + self.max_surge)}

    @property
    def may_create(self) -> bool:
        """Whether a set for the template may be made now: when recreating, once the old pods have ended."""
        return not self.recreates or not any(_pods(one) for one in self.old)

    @property
    def first_size(self) -> int:
        """Size of a set that is made now."""
        if self.recreates:
            return self.wanted
        return max(0, min(self.wanted, self.ceiling - sum(one.replicas for one in self.old)))

    @property
    def is_new_moving(self) -> bool:
        """Whether a rollout that was over has begun again."""
        return any(one.replicas for one in self.old)

    def is_complete(self, status: dict[str, int]) -> bool:
        """Return whether all pods are of the current template and available."""
        counts = ("updatedReplicas", "replicas", "availableReplicas")
        return all(status[field] == self.wanted for field in counts)


def count_of(value: Any, whole: int, *, up: bool) -> int:
    """Return a number or a share such as ``25%`` of a whole, rounded up or down."""
    if isinstance(value, str) and value.endswith("%"):
        share = int(value[:-1]) * whole
        return -(-share // 100) if up else share // 100
    return int(value)


def plan_sizes(rollout: Rollout) -> dict[str, int]:
    """Return the sizes that sets should have, by uid; those that stay are left out."""
    if rollout.is_paused or _is_scaled(rollout):
        return _scale(rollout)
    if rollout.recreates:
        return _recreate(rollout)
    return _roll(rollout)


def _is_scaled(rollout: Rollout) -> bool:
    """Return whether the wanted number has changed since a set with pods was sized."""
    wanted = str(rollout.wanted)
    return any(
        one.metadata.annotations.get(DESIRED, wanted) != wanted for one in rollout.sets if one.replicas
    )


def _scale(rollout: Rollout) -> dict[str, int]:
    """Size the one set that has pods; several, in mid-rollout, grow and shrink in proportion."""
    live = [one for one in rollout.sets if one.replicas]
    if len(live) <= 1:
        only = live[0] if live else rollout.new
        return {only.metadata.uid: rollout.wanted} if only is not None else {}
    if rollout.new is not None and _is_saturated(rollout.new, rollout.wanted):
        return {one.metadata.uid: 0 for one in rollout.old}
    if rollout.recreates:
        return {}
    total = sum(one.replicas for one in live)
    left = rollout.ceiling - total
    sizes = {}
    # The larger set first, of equal ones the newer where there is more to come, the older where less.
    order = sorted(live, key=lambda one: one.metadata.creation_timestamp or "", reverse=left > 0)
    for one in sorted(order, key=lambda entry: -entry.replicas):
        share = _share(one, rollout, total) if left else 0
        share = min(share, left) if left > 0 else max(share, left)
        sizes[one.metadata.uid] = one.replicas + share
        left -= share
    first = max(live, key=lambda entry: entry.replicas)
    sizes[first.metadata.uid] = max(0, sizes[first.metadata.uid] + left)
    return sizes


def _share(one: WorkloadObject, rollout: Rollout, total: int) -> int:
    before = one.metadata.annotations.get(MAX_REPLICAS) or ""
    whole = int(before) if before.isdigit() and int(before) else total
    return round(one.replicas * rollout.ceiling / whole) - one.replicas


def _is_saturated(one: WorkloadObject, wanted: int) -> bool:
    status = one.status
    is_sized = one.replicas == wanted and one.metadata.annotations.get(DESIRED) == str(wanted)
    return is_sized and (status.get("availableReplicas") or 0) == wanted


def _recreate(rollout: Rollout) -> dict[str, int]:
    sizes = {one.metadata.uid: 0 for one in rollout.old}
    if rollout.new is not None and rollout.may_create:
        sizes[rollout.new.metadata.uid] = rollout.wanted
    return sizes


def _roll(rollout: Rollout) -> dict[str, int]:
    """Grow the new set up to the ceiling; else shrink the old ones down to what must stay available."""
    new = rollout.new
    total = sum(one.replicas for one in rollout.sets)
    if new is None:
        return {}
    if new.replicas > rollout.wanted:
        return {new.metadata.uid: rollout.wanted}
    room = rollout.ceiling - total
    if new.replicas < rollout.wanted and room > 0:
        return {new.metadata.uid: min(rollout.wanted, new.replicas + room)}
    return _drain(rollout, new, total)


def _drain(rollout: Rollout, new: WorkloadObject, total: int) -> dict[str, int]:
    least = rollout.wanted - rollout.max_unavailable
    unavailable_new = new.replicas - (new.status.get("availableReplicas") or 0)
    spare = total - least - unavailable_new
    if spare <= 0:
        return {}
    sizes: dict[str, int] = {}
    old = sorted(rollout.old, key=lambda one: one.metadata.creation_timestamp or "")
    for one in old:  # those that do not serve cost nothing
        broken = one.replicas - min(one.replicas, one.status.get("availableReplicas") or 0)
        cut = min(spare, broken)
        sizes[one.metadata.uid] = one.replicas - cut
        spare -= cut
    serving = sum(one.status.get("availableReplicas") or 0 for one in rollout.sets)
    spare = serving - least
    for one in old:
        cut = min(max(spare, 0), sizes[one.metadata.uid])
        sizes[one.metadata.uid] -= cut
        spare -= cut
    return sizes


def _pods(one: WorkloadObject) -> int:
    status = one.status
    return one.replicas or (status.get("replicas") or 0) + (status.get("terminatingReplicas") or 0)
