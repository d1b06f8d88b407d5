"""Gangs: pods that start together or not at all, whatever kind of object says so.

A pod that belongs to none is a gang of one. A gang is one value from here on; what a PodGroup of Volcano or
scheduler-plugins calls things ends in :class:`Group`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.placement.snapshot import PodView
from gangline.workloads.requests import GPU, device_count
from gangline.workloads.unconfirmed_end import UnconfirmedEnd, waits_for_end

if TYPE_CHECKING:
    from gangline.placement.node_table import Bools

REPLICA_SLASHES = 3
"""In the key of a replica: ``NAMESPACE/WORKLOAD/POD-GROUP/REPLICA``."""

GangShape = tuple[frozenset[tuple[bytes, int]], str, bool]
"""How many pods of which shape a gang has, the level that must hold all, and whether it may be cut now."""

DEPTH_MAX = 4
"""Groups of groups in one another. Source: the API types of Kubernetes, v0.37.1."""


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
        parent: key of the group of groups that it is one of, or empty.
        min_groups: of a group of groups, how many of them must be placed at the same moment, 0: each for
            itself; None for a group of pods.
        is_disrupted_whole: it gives way as a whole; else its groups, or the pods of a group that need not
            start together, do each for itself.
        refusal: what of it cannot be honoured, or empty.
    """

    key: str
    min_member: int = 1
    queue: str = ""
    priority: int | None = None
    may_preempt: bool | None = None
    created: str = ""
    required_level: str = ""
    limit_s: float | None = None
    parent: str = ""
    min_groups: int | None = None
    is_disrupted_whole: bool = True
    refusal: str = ""


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
        parts: gangs of a group of groups, which are decided together.
        ties: (label, gangs): its nodes must agree in the label with those of the pods of these gangs.
        refusal: (reason, message) why it cannot be tried, or None.
    """

    within: Bools | None = None
    """Nodes that it may use as a part, by the pods that it has already; a pass sets it."""

    def __init__(
        self,
        key: str,
        pods: Iterable[PodView],
        group: Group | None = None,
        *,
        placed: int = 0,
        is_known: bool = True,
        parts: Iterable[Gang] = (),
        ties: tuple[tuple[str, tuple[str, ...]], ...] = (),
        refusal: tuple[str, str] | None = None,
    ) -> None:
        self.key = key
        self.parts = tuple(parts)
        self.ties = ties
        self.refusal = refusal
        self.pods = tuple(pods)
        self.group = group or Group(key=key)
        self.placed = placed
        self.is_known = is_known

    @property
    def needed(self) -> int:
        """Pods that must be placed together now; the others of the gang may follow one by one."""
        if self.parts:
            return sum(part.needed for part in self.parts)
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

    @cached_property
    def shapes(self) -> frozenset[tuple[bytes, int]]:
        """How many of the waiting pods have which shape."""
        return frozenset(Counter(pod.shape for pod in self.pods).items())

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
        return bool(self.devices or self.group.required_level or self.parts) or self.group.min_member > 1

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the groups of pods that it consists of."""
        return tuple(part.key for part in self.parts_of_pods)

    @property
    def parts_of_pods(self) -> tuple[Gang, ...]:
        """The groups of pods that it consists of: itself, or those below its parts."""
        return tuple(one for part in self.parts for one in part.parts_of_pods) if self.parts else (self,)

    @cached_property
    def has_levels(self) -> bool:
        """Whether a part of it must lie in one domain of its own."""
        return any(
            part.group.required_level or part.within is not None or part.has_levels for part in self.parts
        )

    def lack(self, ending: Sequence[UnconfirmedEnd]) -> tuple[str, str] | None:
        """Return (reason, message) why it cannot be tried yet: no such group, or too few pods.

        Args:
            ending: pods of it that are on their way out, which it waits for.
        """
        if not self.is_known:
            return "NoGroup", f"PodGroup {self.key} does not exist"
        if self.needed > len(self.pods):
            there = self.placed + len(self.pods)
            waits_for = f"; {waits_for_end(ending[0], len(ending) - 1)}" if ending else ""
            least = self.group.min_member
            return "Incomplete", f"has {there} of the {least} pods that must start together{waits_for}"
        return None

    def first(self, count: int) -> Gang:
        """Return the gang with only some of its pods: those that ask for most devices, the first ranks.

        Of a group of groups those that each part needs, whatever the count.
        """
        if self.parts:
            parts = tuple(part.first(part.needed) for part in self.parts)
            return self.but(parts=parts, pods=[pod for part in parts for pod in part.pods])
        if count >= len(self.pods):
            return self
        chosen = sorted(range(len(self.pods)), key=lambda i: (-device_count(self.pods[i].request), i))[:count]
        return self.only(*(self.pods[index] for index in sorted(chosen)))

    def only(self, *pods: PodView) -> Gang:
        """Return the gang with these of its pods."""
        return self.but(pods=pods, parts=())

    def anywhere(self) -> Gang:
        """Return the gang without the label that must be equal for all of it; its parts keep theirs."""
        return self.but(group=msgspec.structs.replace(self.group, required_level=""))

    def but(self, **changes: Any) -> Gang:
        """Return the gang with other attributes."""
        names = ("pods", "group", "placed", "is_known", "parts", "ties", "refusal")
        found = Gang(self.key, **{name: getattr(self, name) for name in names} | changes)
        found.within = self.within
        return found
