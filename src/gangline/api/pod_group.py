"""PodGroup: the object by which a gang scheduler learns which pods start together or not at all.

Three dialects are in use, scheduler-plugins', Volcano's and Kubernetes' own. The types carry what Gangline
writes in the first two; a cluster that runs such a scheduler has definitions of its own, with more fields.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from gangline.api.core import ObjectMeta, Wire
from gangline.api.mpijob import Int32

GANGLINE_SCHEDULER: Final = "gangline-scheduler"
"""``schedulerName`` of the pods that the scheduler of this house places."""
QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"
"""On a job, a pod, or a PodGroup whose dialect has no field for it: its queue."""
LIMIT_ANNOTATION: Final = "gangline.dev/limit-seconds"
"""On a job and its PodGroup: after how many seconds it is ended; then its room is free at the latest."""


INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
"""Condition of Kubernetes' own PodGroup; once True it stays so. Source: its API types, v0.37.1."""
SCHEDULED_V1ALPHA2: Final = "PodGroupScheduled"
"""The same condition in ``v1alpha2``, of Kubernetes 1.36."""
COMPOSITE_SCHEDULED: Final = "CompositePodGroupInitiallyScheduled"
"""The same condition of a CompositePodGroup."""
DISRUPTION_TARGET: Final = "DisruptionTarget"
"""Condition of pods and of Kubernetes' own PodGroup that are about to end through no fault of their own."""
PREEMPTION: Final = "PreemptionByScheduler"
"""Its reason where a scheduler makes room for others. Source: Kubernetes' API types, v0.37.1."""


def _doc(text: str, **schema: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, extra_json_schema=schema or None)


_MIN_MEMBER = "Pods that must be placed at the same moment."
_MinResources = Annotated[
    dict[str, str | int | float], _doc("Resources that must be free before any of them is placed.")
]


class SchedulerPluginsPodGroupSpec(Wire, frozen=True, kw_only=True):
    """``spec`` in ``scheduling.x-k8s.io/v1alpha1``."""

    min_member: Annotated[Int32, _doc(_MIN_MEMBER, minimum=1)] = 1
    min_resources: _MinResources = {}
    schedule_timeout_seconds: Annotated[
        Int32 | None, _doc("How long a placed pod waits for the last one, in seconds.", minimum=0)
    ] = None


class VolcanoPodGroupSpec(Wire, frozen=True, kw_only=True):
    """``spec`` in ``scheduling.volcano.sh/v1beta1``."""

    min_member: Annotated[Int32, _doc(_MIN_MEMBER)] = 1
    min_resources: _MinResources = {}
    queue: Annotated[str, _doc("Queue whose quota the gang uses.")] = ""
    priority_class_name: Annotated[str, _doc("PriorityClass of the gang.")] = ""


class QueueGuarantee(Wire, frozen=True, kw_only=True):
    """``spec.guarantee`` of a Queue."""

    resource: Annotated[dict[str, str | int | float], _doc("Amounts that nobody else may use.")] = {}


class VolcanoQueueSpec(Wire, frozen=True, kw_only=True):
    """``spec`` of a Queue in ``scheduling.volcano.sh/v1beta1``, as far as Gangline reads it."""

    capability: Annotated[
        dict[str, str | int | float], _doc("The most that its gangs may use together.")
    ] = {}
    deserved: Annotated[
        dict[str, str | int | float], _doc("What it may use before it borrows from others.")
    ] = {}
    guarantee: QueueGuarantee = QueueGuarantee()
    weight: Annotated[Int32, _doc("Its share of what nobody deserves.", minimum=1)] = 1
    priority: Annotated[Int32, _doc("Queues of higher priority go first.")] = 0
    reclaimable: Annotated[bool | None, _doc("Whether what it borrows may be taken back.")] = None


class PodGroup(Wire, frozen=True, kw_only=True):
    """A PodGroup of any dialect; spec and status stay raw, for schedulers add fields of their own."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class PriorityClass(Wire, frozen=True, kw_only=True):
    """A PriorityClass, as far as Gangline reads it."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    preemption_policy: str = ""
