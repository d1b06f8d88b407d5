"""What a scheduling pass decides: values that can be printed, compared and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gangline.placement.claims.results import allocation_of, given_gpus

if TYPE_CHECKING:
    from gangline.placement.capacity import Spot
    from gangline.placement.claims.devices import DeviceId
    from gangline.placement.snapshot import NodeView, PodView

NO_DEVICES: frozenset[DeviceId] = frozenset()


class Binding(msgspec.Struct, frozen=True, gc=False):
    """One pod goes to one node.

    Attributes:
        pod: its key.
        uid: its identity.
        node: name of the node.
        gpus: (container, UUIDs) where the ids are chosen here.
        indices: device indices of these GPUs on the node.
        visible: those of all GPUs that its gang gets there with this decision.
        claims: (resource claim, request, UUIDs) of the GPUs of ours that its claims get.
        allocations: (resource claim, allocation in wire form) of its claims of other devices.
    """

    pod: str
    uid: str
    node: str
    gpus: tuple[tuple[str, tuple[str, ...]], ...] = ()
    indices: tuple[int, ...] = ()
    visible: tuple[int, ...] = ()
    claims: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    allocations: tuple[tuple[str, dict[str, Any]], ...] = ()

    @property
    def uuids(self) -> tuple[str, ...]:
        """All GPUs that the pod gets, each once."""
        found = [*self.gpus, *((name, uuids) for name, _, uuids in self.claims)]
        return tuple(dict.fromkeys(uuid for _, uuids in found for uuid in uuids))


def bound(spot: Spot, node: NodeView, visible: tuple[int, ...], moment: str) -> tuple[Binding, PodView]:
    """Return the binding of a pod to its spot, and the pod as it is then. Cost: 3 µs.

    Args:
        spot: of the pod.
        node: the node of the spot.
        visible: device indices of all GPUs that the pod's gang gets there.
        moment: now, RFC 3339.
    """
    pod, devices = spot.pod, NO_DEVICES
    gpus: tuple[tuple[str, tuple[str, ...]], ...] = ()
    own: tuple[int, ...] = ()
    uuids: tuple[str, ...] = ()
    allocations: tuple[tuple[str, dict[str, Any]], ...] = ()
    if spot.gpus and node.gpus is not None:
        uuids = tuple([node.gpus.uuids[index] for index in spot.gpus])
        gpus = tuple([(name, uuids[first:end]) for name, first, end in pod.gpu_shares])
        own = tuple([node.gpus.indices[index] for index in spot.gpus])
    claims = tuple([(name, request, uuids[first:end]) for name, request, first, end in pod.claim_shares])
    if spot.given:
        given = zip(pod.demands, spot.given, strict=True)
        allocations = tuple([(name, allocation_of(demand, some)) for (name, demand), some in given if some])
        uuids, devices = uuids + given_gpus(spot.given), spot.devices
    binding = Binding(pod.key, pod.uid, node.name, gpus, own, visible, claims, allocations)
    return binding, pod.placed(node.name, uuids, moment, devices)


class Unschedulable(msgspec.Struct, frozen=True, gc=False):
    """One pod waits.

    Attributes:
        message: why, for a pod of no gang in the wording of Kubernetes.
        gang: key of the gang that it waits with; empty for a pod alone.
        reason: of its gang, as in ``Wait``, or ``NeverFits``.
    """

    pod: str
    uid: str
    message: str
    gang: str = ""
    reason: str = ""

    @classmethod
    def with_gang(cls, pod: str, uid: str, wait: Wait) -> Unschedulable:
        """Return that a pod waits because its gang does."""
        return cls(pod, uid, f"gang {wait.gang} waits: {wait.message}", wait.gang, wait.reason)


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """One gang waits.

    Attributes:
        gang: its key.
        reason: one word: ``Incomplete``, ``NoGroup``, ``Quota``, ``NoNode``, ``NoRoom``, ``Reserved``,
            ``Behind``, ``Cut``, ``Preempting`` or ``Suspending``.
        message: the first binding reason and the shortfall.
        position: place in its queue, from 1.
    """

    gang: str
    reason: str
    message: str
    position: int


class Eviction(msgspec.Struct, frozen=True):
    """One gang gives way to another: all of its pods are deleted together."""

    gang: str
    pods: tuple[str, ...]
    uids: tuple[str, ...]
    beneficiary: str


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """One gang is suspended for another, and goes on from its checkpoint when there is room.

    Attributes:
        gang: its key.
        uids: of its pods.
        beneficiary: the gang that gets its room.
        device_s: device-seconds that it has had.
        number: how often it has been suspended with this time.
        number_max: how often it may be.
    """

    gang: str
    uids: tuple[str, ...]
    beneficiary: str
    device_s: float
    number: int
    number_max: int

    @property
    def message(self) -> str:
        """Say why, for people."""
        return (
            f"gives way to {self.beneficiary}, which has had less: {self.gang} has had "
            f"{self.device_s / 3600:.0f} device-hours; it goes on from its checkpoint when there is room "
            f"(suspension {self.number} of at most {self.number_max})"
        )


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one pass, in the order in which the gangs were considered.

    Attributes:
        reserved_for: the gang for which room is kept.
        kept_nodes: where, if from now on.
    """

    bindings: tuple[Binding, ...] = ()
    unschedulable: tuple[Unschedulable, ...] = ()
    waits: tuple[Wait, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    suspensions: tuple[Suspension, ...] = ()
    reserved_for: str = ""
    kept_nodes: tuple[str, ...] = ()
