"""The kinds of PodGroup that the scheduler follows: how each is read, and what its status says.

A gang is one value inside, :class:`gangline.placement.gangs.Group`. A further kind takes three things: an
entry here; the field by which its pods name their group, in :func:`gangline.workloads.gang_names.gang_of`;
the rights to watch it and to patch its status, in ``deploy/scheduler.yaml``. Nothing else tells kinds apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from gangline.api.pod_group import COMPOSITE_SCHEDULED, SCHEDULED_V1ALPHA2, PodGroup, PriorityClass
from gangline.api.resources import (
    COMPOSITE_POD_GROUPS,
    KUBERNETES_POD_GROUPS,
    KUBERNETES_POD_GROUPS_V1ALPHA2,
    SCHEDULER_PLUGINS_POD_GROUPS,
    VOLCANO_POD_GROUPS,
    WORKLOADS,
    Resource,
)
from gangline.placement import Group, Wait
from gangline.placement.groups.read_groups import composite_key, read_composite, read_group, read_workload
from gangline.scheduler.group_status import VOLCANO_WORDS, group_status, kubernetes_status
from gangline.scheduler.tally import GangProgress


class WriteStatus(Protocol):
    """Returns the status fields that the scheduler owns; see :func:`group_status`."""

    def __call__(
        self,
        *,
        wait: Wait | None,
        progress: GangProgress,
        min_member: int,
        now: str,
        known: Mapping[str, Any],
        disruption: str | None,
        generation: int,
    ) -> dict[str, Any]:
        """Return the fields."""
        ...


def _own_key(pod_group: PodGroup) -> str:
    return pod_group.metadata.key


def _key_of_composite(composite: PodGroup) -> str:
    return composite_key(composite.metadata.namespace, composite.metadata.name)


@dataclass(frozen=True, slots=True)
class GroupDialect:
    """One kind of PodGroup.

    Attributes:
        resource: the kind; it is followed from the moment the cluster has it.
        read: what an object says about its gangs, with all PriorityClasses by name.
        status: what is written to it; None where it has no status.
        key: of an object, under which it is told of.
    """

    resource: Resource
    read: Callable[[PodGroup, Mapping[str, PriorityClass]], tuple[Group, ...]]
    status: WriteStatus | None
    key: Callable[[PodGroup], str] = _own_key


def _read_composite(pod_group: PodGroup, classes: Mapping[str, PriorityClass]) -> tuple[Group, ...]:
    return (read_composite(pod_group, classes),)


def _read_one(pod_group: PodGroup, classes: Mapping[str, PriorityClass]) -> tuple[Group, ...]:
    return (read_group(pod_group, classes),)


_status_of_composite = partial(kubernetes_status, type_=COMPOSITE_SCHEDULED)
_status_v1alpha2 = partial(kubernetes_status, type_=SCHEDULED_V1ALPHA2)

DIALECTS = (
    GroupDialect(SCHEDULER_PLUGINS_POD_GROUPS, _read_one, group_status),
    GroupDialect(VOLCANO_POD_GROUPS, _read_one, partial(group_status, words=VOLCANO_WORDS)),
    GroupDialect(KUBERNETES_POD_GROUPS, _read_one, kubernetes_status),
    GroupDialect(KUBERNETES_POD_GROUPS_V1ALPHA2, _read_one, _status_v1alpha2),
    GroupDialect(COMPOSITE_POD_GROUPS, _read_composite, _status_of_composite, _key_of_composite),
    GroupDialect(WORKLOADS, read_workload, None),
)
