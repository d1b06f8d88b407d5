"""Gangs: pods that start together or not at all, whatever kind of object says so.

A pod that belongs to none is a gang of one. A gang is one value from here on; what a PodGroup of Volcano or
scheduler-plugins calls things ends in :class:`Group`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from gangline.placement.snapshot import PodView
from gangline.workloads.requests import GPU, device_count

REPLICA_SLASHES = 3
"""In the key of a replica: ``NAMESPACE/WORKLOAD/POD-GROUP/REPLICA``."""

GangShape = tuple[frozenset[tuple[bytes, int]], str, bool]
"""How many pods of which shape a gang has, the level that must hold all, and whether it may be cut now."""

_DIGITS = re.compile(r"(\d+)")


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """What is said about a gang apart from its pods.

    Attributes:
        key: ``NAMESPACE/NAME``, as the pods name it.
        min_member: pods that must be placed at the same moment; 0: each for itself.
        queue: whose quota it uses, or empty.
        priority: higher goes first; None: that of its pods.
        may_preempt: whether others may give way to it; None: what its pods say.
        created: when it was made, RFC 3339.
        required_level: label of nodes that must be equal for all of its pods, or empty.
        limit_s: longest time it can run, or None when nobody knows.
    """

    key: str
    min_member: int = 1
    queue: str = ""
    priority: int | None = None
    may_preempt: bool | None = None
    created: str = ""
    required_level: str = ""
    limit_s: float | None = None


class Groups(dict[str, Group]):
    """What is said about gangs, by key. The replicas of a pod group of a Workload share what it says.

    Example:
        >>> Groups({"team/w/workers": Group(key="team/w/workers")}).get("team/w/workers/replica-0").key
        'team/w/workers'
    """

    def get(self, key: str, default: Any = None) -> Any:
        """Return what is said about a gang, or about the pod group of which it is a replica."""
        found = super().get(key)
        if found is None and key.count("/") == REPLICA_SLASHES:
            found = super().get(key.rpartition("/")[0])
        return default if found is None else found


class Gang:
    """A gang with the pods that wait.

    Args:
        key: of its group, or of the single pod.
        pods: that wait, in the order of their ranks.
        group: what is said about it; None for a single pod, and for a group that does not exist.
        placed: pods of it that hold room already.
        is_known: False when the pods name a group that does not exist.
    """

    def __init__(
        self,
        key: str,
        pods: Iterable[PodView],
        group: Group | None = None,
        *,
        placed: int = 0,
        is_known: bool = True,
    ) -> None:
        self.key = key
        self.pods = tuple(pods)
        self.group = group or Group(key=key)
        self.placed = placed
        self.is_known = is_known

    @property
    def needed(self) -> int:
        """Pods that must be placed together now; the others of the gang may follow one by one."""
        return max(self.group.min_member - self.placed, 0)

    @cached_property
    def priority(self) -> int:
        """Higher goes first."""
        if self.group.priority is not None:
            return self.group.priority
        return max(pod.priority for pod in self.pods)

    @property
    def may_preempt(self) -> bool:
        """Whether gangs of lower priority may be ended for it; its PriorityClass says so, else its pods."""
        if self.group.may_preempt is not None:
            return self.group.may_preempt
        return all(pod.may_preempt for pod in self.pods)

    @cached_property
    def created(self) -> str:
        """When the gang came, RFC 3339."""
        return self.group.created or min(pod.created for pod in self.pods)

    @cached_property
    def request(self) -> dict[str, int]:
        """What all waiting pods ask for together."""
        total: dict[str, int] = {}
        for pod in self.pods:
            for name, amount in pod.request.items():
                total[name] = total.get(name, 0) + amount
        return total

    @property
    def gpus(self) -> int:
        """GPUs that the waiting pods ask for together."""
        return self.request.get(GPU, 0)

    @cached_property
    def devices(self) -> int:
        """Devices of any kind that the waiting pods ask for together."""
        return device_count(self.request)

    @property
    def packs(self) -> bool:
        """Whether its pods belong close together; others are spread over the nodes."""
        return bool(self.devices or self.group.required_level) or self.group.min_member > 1

    def first(self, count: int) -> Gang:
        """Return the gang with only some of its pods: those that ask for most devices, the first ranks."""
        chosen = sorted(range(len(self.pods)), key=lambda i: (-device_count(self.pods[i].request), i))[:count]
        return self.only(*(self.pods[index] for index in sorted(chosen)))

    def only(self, *pods: PodView) -> Gang:
        """Return the gang with these of its pods."""
        return Gang(self.key, pods, self.group, placed=self.placed, is_known=self.is_known)


def collect_gangs(
    pods: Iterable[PodView], groups: Mapping[str, Group], placed: Mapping[str, int]
) -> list[Gang]:
    """Return the gangs that waiting pods form, in no particular order.

    Args:
        pods: without a node; those with scheduling gates count for nothing.
        groups: what is said about gangs, by key.
        placed: how many pods of each gang hold room already.
    """
    members: dict[str, list[PodView]] = {}
    gangs = []
    for pod in pods:
        if pod.gated:
            continue
        if pod.gang:
            members.setdefault(pod.gang, []).append(pod)
        else:
            gangs.append(Gang(pod.key, [pod]))
    for key, found in members.items():
        group = groups.get(key)
        if group is None and (size := max(pod.gang_size for pod in found)):
            group = Group(key=key, min_member=size)
        level = next((pod.required_level for pod in found if pod.required_level), "")
        if group is not None and level and not group.required_level:
            group = msgspec.structs.replace(group, required_level=level)
        found.sort(key=_rank_order)
        gangs.append(Gang(key, found, group, placed=placed.get(key, 0), is_known=group is not None))
    return gangs


def _rank_order(pod: PodView) -> tuple[str, list[str | int]]:
    """Order the pods of a gang as their ranks: ``worker-2`` before ``worker-10``."""
    parts: list[str | int] = list(_DIGITS.split(pod.key))
    parts[1::2] = [int(part) for part in parts[1::2]]
    return pod.replica_type, parts
