"""What a scheduler says of itself on its Lease, for commands that explain its decisions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.api.pod_group import GANGLINE_SCHEDULER
from gangline.placement import Policy, SuspensionBounds

DEFAULT_NAMES = (GANGLINE_SCHEDULER, "default-scheduler")
"""``spec.schedulerName`` of the pods that are placed here."""

LEASE_NAME = "gangline-scheduler"

LEASE_NAMESPACE = "gangline-system"
"""Of that Lease by default. Whoever may write a Lease elsewhere can call it the same."""

ANNOTATION = "gangline.dev/scheduler"

DEFAULTS = Policy()


class Published(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The options that decide; the JSON value of the annotation.

    Attributes:
        names: ``spec.schedulerName`` of the pods that it places.
        levels: node labels of the network's levels, the widest first.
        node_selector: ``LABEL=VALUE,...`` of the nodes that it uses; empty for all.
        overdue_after_seconds, overdue_per_device_seconds, whole_for_seconds, suspension: see
            :class:`Policy`.
        preempt: gangs of lower priority give way.
        backfill: others may pass a gang that waits.
        answers: ``ADDRESS:PORT`` where it listens for questions; empty where it does not.
    """

    names: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    node_selector: str = ""
    overdue_after_seconds: float = DEFAULTS.overdue_after_s
    overdue_per_device_seconds: float = DEFAULTS.overdue_per_device_s
    whole_for_seconds: float = DEFAULTS.whole_for_s
    suspension: SuspensionBounds = SuspensionBounds()
    preempt: bool = True
    backfill: bool = True
    answers: str = ""

    @classmethod
    def from_policy(
        cls, policy: Policy, names: tuple[str, ...], node_selector: str, answers: str = ""
    ) -> Published:
        """Return what a scheduler with this policy says."""
        return cls(
            names=names,
            levels=policy.levels,
            node_selector=node_selector,
            overdue_after_seconds=policy.overdue_after_s,
            overdue_per_device_seconds=policy.overdue_per_device_s,
            whole_for_seconds=policy.whole_for_s,
            suspension=policy.suspension,
            preempt=policy.may_preempt,
            backfill=policy.may_backfill,
            answers=answers,
        )

    @classmethod
    def of(cls, lease: Mapping[str, Any]) -> Published | None:
        """Return what a Lease in wire form says; None when it is no Lease of Gangline's scheduler."""
        text = (lease["metadata"].get("annotations") or {}).get(ANNOTATION)
        try:
            return msgspec.json.decode(text, type=cls) if text else None
        except msgspec.DecodeError:
            return None

    @property
    def annotations(self) -> dict[str, str]:
        """Of the Lease."""
        return {ANNOTATION: msgspec.json.encode(self).decode()}

    def applied(self, policy: Policy) -> Policy:
        """Return a policy with these options, and its own queues."""
        return msgspec.structs.replace(
            policy,
            levels=self.levels,
            overdue_after_s=self.overdue_after_seconds,
            overdue_per_device_s=self.overdue_per_device_seconds,
            whole_for_s=self.whole_for_seconds,
            suspension=self.suspension,
            may_preempt=self.preempt,
            may_backfill=self.backfill,
        )

    def uses(self, labels: Mapping[str, str]) -> bool:
        """Return whether it uses a node with these labels."""
        parts = (part.partition("=") for part in self.node_selector.split(",") if part)
        return all(labels.get(key.strip()) == value.strip().lstrip("=") for key, _, value in parts)
