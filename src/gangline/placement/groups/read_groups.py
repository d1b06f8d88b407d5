"""PodGroups of each dialect, PriorityClasses and Queues, read into what placement knows. Pure.

Sources: scheduler-plugins' ``scheduling.x-k8s.io/v1alpha1``, Volcano's ``scheduling.volcano.sh/v1beta1``, and
Kubernetes' own ``scheduling.k8s.io`` (feature gate ``GenericWorkload``; KEP-4671): the Workload of
``v1alpha1`` (1.35), the PodGroup of ``v1alpha2`` (1.36) and ``v1beta1`` (1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from gangline.api.core import NEVER_PREEMPTS
from gangline.api.pod_group import LIMIT_ANNOTATION, QUEUE_ANNOTATION, PodGroup, PriorityClass
from gangline.placement.gangs import Group
from gangline.placement.policy import Queue
from gangline.placement.snapshot import required_level


def read_group(pod_group: PodGroup, classes: Mapping[str, PriorityClass]) -> Group:
    """Return what a PodGroup of any dialect says about its gang.

    Args:
        pod_group: the object.
        classes: every PriorityClass by name; one that does not exist counts as 0.
    """
    meta, spec = pod_group.metadata, pod_group.spec
    named = _text(spec.get("priorityClassName"))
    priority_class = classes.get(named, PriorityClass()) if named else None
    limit = meta.annotations.get(LIMIT_ANNOTATION, "")
    group = Group(
        key=meta.key,
        min_member=_count(spec.get("minMember"), default=1),
        queue=_text(spec.get("queue")) or meta.annotations.get(QUEUE_ANNOTATION, ""),
        priority=priority_class.value if priority_class else None,
        may_preempt=priority_class.preemption_policy != NEVER_PREEMPTS if priority_class else None,
        created=meta.creation_timestamp or "",
        required_level=required_level(meta.annotations),
        limit_s=float(limit) if limit.isdigit() else None,
    )
    return _read_kubernetes(spec, group) if "schedulingPolicy" in spec else group


def _read_kubernetes(spec: dict[str, Any], group: Group) -> Group:
    """Return the gang with what only the spec of Kubernetes' own PodGroup has.

    With the policy ``gang`` it needs ``minCount`` pods at the same moment, with ``basic`` none. Its nodes
    agree in the label of its topology constraint. Admission fills in its priority.
    """
    gang = (spec.get("schedulingPolicy") or {}).get("gang")
    topology = (spec.get("schedulingConstraints") or {}).get("topology") or [{}]
    priority, preempts = spec.get("priority"), _text(spec.get("preemptionPolicy"))
    parent = _text(spec.get("parentCompositePodGroupName"))
    return replace(
        group,
        min_member=_count(gang.get("minCount"), default=1) if gang is not None else 0,
        priority=priority if isinstance(priority, int) else group.priority,
        may_preempt=preempts != NEVER_PREEMPTS if preempts else group.may_preempt,
        required_level=_text(topology[0].get("key")) or group.required_level,
        parent=composite_key(group.key.partition("/")[0], parent) if parent else "",
        is_disrupted_whole=gang is not None or _is_disrupted_whole(spec),
        refusal=_refusal(spec, topology),
    )


def composite_key(namespace: str, name: str) -> str:
    """Return the key of a CompositePodGroup, which a PodGroup of the same name does not have."""
    return f"{namespace}/compositepodgroup/{name}"


def read_composite(composite: PodGroup, classes: Mapping[str, PriorityClass]) -> Group:
    """Return what a CompositePodGroup says: how many of its groups must be placed at once, and where.

    Args:
        composite: the object.
        classes: every PriorityClass by name.
    """
    meta, spec = composite.metadata, composite.spec
    group, gang = read_group(composite, classes), (spec.get("schedulingPolicy") or {}).get("gang")
    return replace(
        group,
        key=composite_key(meta.namespace, meta.name),
        min_groups=_count(gang.get("minGroupCount"), default=1) if gang is not None else 0,
        is_disrupted_whole=_is_disrupted_whole(spec),
    )


def _is_disrupted_whole(spec: dict[str, Any]) -> bool:
    """Return whether it gives way as a whole; ``v1alpha2`` has a word in place of the union."""
    mode = spec.get("disruptionMode")
    return mode == "PodGroup" or (isinstance(mode, dict) and "all" in mode)


def _refusal(spec: dict[str, Any], topology: list[dict[str, Any]]) -> str:
    """Return what of a spec is not honoured: then the group is not placed at all."""
    if spec.get("resourceClaims"):
        return "spec.resourceClaims, claims that a group shares, are not allocated by this scheduler"
    if len(topology) > 1:
        return f"spec.schedulingConstraints.topology has {len(topology)} entries, and one is understood"
    if not (spec.get("schedulingPolicy") or {}).keys() & {"gang", "basic"}:
        return "spec.schedulingPolicy is neither gang nor basic"
    return ""


def read_workload(workload: PodGroup, classes: Mapping[str, PriorityClass]) -> tuple[Group, ...]:
    """Return what a Workload of Kubernetes says about the gangs of its pod groups.

    A group with the policy ``gang`` needs ``minCount`` pods at the same moment, one with ``basic`` none.

    Args:
        workload: the object; its spec never changes.
        classes: of no use: a Workload names no PriorityClass, its pods do.
    """
    meta = workload.metadata
    limit = meta.annotations.get(LIMIT_ANNOTATION, "")
    groups = []
    for entry in workload.spec.get("podGroups") or ():
        gang = (entry.get("policy") or {}).get("gang")
        groups.append(
            Group(
                key=f"{meta.key}/{entry.get('name', '')}",
                min_member=_count(gang.get("minCount"), default=1) if gang is not None else 0,
                queue=meta.annotations.get(QUEUE_ANNOTATION, ""),
                created=meta.creation_timestamp or "",
                required_level=required_level(meta.annotations),
                limit_s=float(limit) if limit.isdigit() else None,
            )
        )
    return tuple(groups)


def read_queue(queue: dict[str, Any]) -> Queue | None:
    """Return a Volcano Queue; None when a quantity in it cannot be read, so that it sets no quota."""
    try:
        return Queue.from_volcano(queue)
    except (ValueError, TypeError):
        return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any, *, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
