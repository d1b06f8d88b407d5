"""What an administrator decides about scheduling: levels of the network, queues, who may pass whom."""

from __future__ import annotations

import msgspec

from gangline.placement.amounts import capacity_amounts

DEFAULT_QUEUE = "default"
OVERDUE_AFTER_S = 1800.0

OVERDUE_PER_DEVICE_S = 720.0
"""Room for a large gang is dear: while it is kept, devices stand idle. On simulated days at 95 % load bounds
that grow with the gang complete jobs sooner than one bound for all (docs/concepts/simulated-day.md)."""

WHOLE_FOR_S = 3600.0
"""How long a node or rack of its own is worth waiting for, on the same days."""

LONG_AFTER_DEVICE_S = 32 * 3600.0
"""Boundary of the two queues by attained service: 32 device-hours, on the same days."""

SHORT_WAIT_S = 300.0
"""Every job of these days starts within minutes of it, where all can go on from a checkpoint."""

MIN_RUN_S = 600.0
SUSPENSIONS_MAX = 10

RESTART_S = 120.0
"""What a suspension costs a gang on each of its devices: pods made anew, the program started, its checkpoint
read."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with its quota, in the units of :mod:`gangline.placement.amounts`.

    Attributes:
        name: of the queue.
        capability: the most that its gangs may use together; a resource that is missing is not bounded.
        deserved: what it is entitled to; beyond it borrows, and gives back when others want theirs.
        guarantee: what stays free for it.
        weight: its share against others beyond what is deserved.
        priority: queues of higher priority go first.
        is_strict: nothing passes its first gang.
        is_reclaimable: what it has borrowed may be taken back.
    """

    name: str
    capability: dict[str, int] = {}
    deserved: dict[str, int] = {}
    guarantee: dict[str, int] = {}
    weight: int = 1
    priority: int = 0
    is_strict: bool = False
    is_reclaimable: bool = True

    @classmethod
    def from_volcano(cls, queue: dict[str, object]) -> Queue:
        """Return a queue from a ``scheduling.volcano.sh/v1beta1`` Queue object.

        Raises:
            ValueError: a quantity cannot be read.
        """
        found = msgspec.convert(queue, _VolcanoQueue, strict=False)
        spec = found.spec
        return cls(
            name=found.metadata.name,
            capability=capacity_amounts(spec.capability),
            deserved=capacity_amounts(spec.deserved),
            guarantee=capacity_amounts(spec.guarantee.resource),
            weight=max(spec.weight, 1),
            priority=spec.priority,
            is_strict=found.metadata.annotations.get("gangline.dev/queueing") == "StrictFIFO",
            is_reclaimable=spec.reclaimable is not False,
        )


class _Guarantee(msgspec.Struct, frozen=True):
    resource: dict[str, str | int] = {}


class _VolcanoSpec(msgspec.Struct, frozen=True):
    capability: dict[str, str | int] = {}
    deserved: dict[str, str | int] = {}
    guarantee: _Guarantee = _Guarantee()
    weight: int = 1
    priority: int = 0
    reclaimable: bool | None = None


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    annotations: dict[str, str] = {}


class _VolcanoQueue(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _VolcanoSpec = _VolcanoSpec()


class SuspensionBounds(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who is suspended for whom, where jobs can go on from a checkpoint.

    Attributes:
        long_after_device_s: a gang that has had so many device-seconds goes after others of its priority,
            and is suspended for them; 0: nobody is suspended.
        short_wait_s: a gang that has had less than that, and has waited so long, has others suspended, too,
            that have had less, if it is more than its own: so its first start has a bound.
        min_run_s: a gang runs at least so long each time before it is suspended.
        suspensions_max: a gang is suspended so often at most.
    """

    long_after_device_s: float = LONG_AFTER_DEVICE_S
    short_wait_s: float = SHORT_WAIT_S
    min_run_s: float = MIN_RUN_S
    suspensions_max: int = SUSPENSIONS_MAX

    def is_long(self, device_s: float) -> bool:
        """Return whether a gang that has had so many device-seconds goes after others of its priority."""
        return 0 < self.long_after_device_s <= device_s


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How gangs are chosen and placed.

    Attributes:
        levels: labels of nodes from the widest domain to the narrowest.
        queues: by name; a gang of a queue that is not among them has no quota.
        overdue_after_s: a gang that has waited longer goes before others of its priority, and room is kept
            for it even when nobody knows when it will be free. That bounds waiting among equals: once
            overdue, a gang starts when the gangs that run now, and those overdue before it, have ended.
        overdue_per_device_s: for each device that a gang asks for, if that is longer.
        whole_for_s: a gang with devices is not cut over more nodes, or a wider level, than it would need on
            empty ones before it has waited that long, or is overdue; 0: at once.
        suspension: who is suspended for whom.
        restart_s: what a suspension costs on each device of a gang.
        may_preempt: gangs of lower priority give way.
        may_backfill: others may pass a gang that waits, without delaying it.
    """

    levels: tuple[str, ...] = ()
    queues: dict[str, Queue] = {}
    overdue_after_s: float = OVERDUE_AFTER_S
    overdue_per_device_s: float = OVERDUE_PER_DEVICE_S
    whole_for_s: float = WHOLE_FOR_S
    suspension: SuspensionBounds = SuspensionBounds()
    restart_s: float = RESTART_S
    may_preempt: bool = True
    may_backfill: bool = True

    def overdue_s(self, devices: int) -> float:
        """Return after how long a gang that asks for so many devices is overdue."""
        return max(self.overdue_after_s, self.overdue_per_device_s * devices)

    def whole_s(self, devices: int) -> float:
        """Return for how long a gang that asks for so many devices is not cut."""
        return min(self.whole_for_s, self.overdue_s(devices))
