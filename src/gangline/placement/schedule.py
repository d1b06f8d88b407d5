"""One scheduling pass: ``(snapshot, waiting pods) -> Decisions``. Pure, and the same for the same input.

Gangs are taken one by one: overdue ones first, then by priority, then those of queues within what they
deserve, then the queue that has least of its share, then by age. Each is placed whole or waits with its first
binding reason. For the first that waits room is kept, see :mod:`gangline.placement.reserve`; those behind it
may start where they do not delay it. Where allowed, gangs of lower priority give way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from gangline.clock import format_time
from gangline.placement.decisions import Binding, Decisions, Eviction, Unschedulable, Wait
from gangline.placement.fit import Spot, place, take
from gangline.placement.fleet import Fleet
from gangline.placement.gangs import Gang, Group, collect_gangs
from gangline.placement.holders import Holders
from gangline.placement.policy import Policy
from gangline.placement.preempt import find_victims
from gangline.placement.quota import QueueLine, quota_refusal
from gangline.placement.reserve import Reservation, reserve
from gangline.placement.snapshot import PodView, Snapshot
from gangline.placement.why import pod_message, shortfall

DEFAULT_POLICY = Policy()

HEADS_MAX = 4
"""Gangs that wait for which, one after another, room is looked for in the future or taken from others: the
first may be one that never fits."""


def schedule(
    snapshot: Snapshot,
    pods: Iterable[PodView],
    *,
    now: datetime,
    policy: Policy = DEFAULT_POLICY,
    groups: Mapping[str, Group] | None = None,
) -> Decisions:
    """Decide where the waiting pods of a snapshot go; those with scheduling gates are left out.

    Args:
        snapshot: nodes, and the pods that hold room on them; nothing in it is changed.
        pods: pods without a node.
        now: the time of the pass.
        policy: levels, queues, who may pass whom.
        groups: what is said about gangs, by key.

    Returns:
        One binding or one unschedulable entry for each pod that is considered; for a gang all bindings or
        none.

    Cost: the arrays are built anew, 10 µs a node; :class:`Pass` works on arrays that are kept.
    """
    groups = groups or {}
    holders = Holders(snapshot.pods, groups)
    fleet = Fleet.of(snapshot.nodes, snapshot.pods, policy.levels)
    gangs = collect_gangs(pods, groups, holders.placed())
    return Pass(fleet, holders, policy, now=now).run(gangs)


class Pass:
    """Decides about all waiting gangs on one snapshot.

    Args:
        fleet: the nodes; its room is taken while deciding, so give it a fleet whose room is a copy, or
            treat all decisions as carried out.
        holders: the pods that hold room; placed pods are added.
        policy: see :class:`Policy`.
        now: the time of the pass.
    """

    def __init__(self, fleet: Fleet, holders: Holders, policy: Policy, *, now: datetime) -> None:
        self._fleet = fleet
        self._holders = holders
        self._policy = policy
        self._now = now
        self._reservation: Reservation | None = None
        self._bindings: list[Binding] = []
        self._unschedulable: list[Unschedulable] = []
        self._waits: list[Wait] = []
        self._evictions: list[Eviction] = []
        self._heads = 0
        self._verdicts: dict[bytes, str] = {}

    def run(self, gangs: Sequence[Gang]) -> Decisions:
        """Return what is decided about these gangs."""
        line = QueueLine(gangs, self._policy, self._holders, self._now)
        while (gang := line.next()) is not None:
            self._consider(gang, line)
        return Decisions(
            bindings=tuple(self._bindings),
            unschedulable=tuple(self._unschedulable),
            waits=tuple(self._waits),
            evictions=tuple(self._evictions),
            reserved_for=self._reservation.gang if self._reservation else "",
        )

    def _consider(self, gang: Gang, line: QueueLine) -> None:
        refusal = _membership(gang)
        if refusal is None and line.is_blocked(gang):
            refusal = "Behind", "its queue is strict, and an earlier gang of it waits"
        refusal = refusal or quota_refusal(gang, self._policy, self._holders)
        if refusal:
            self._wait(gang, line, *refusal, blocks=refusal[0] == "Quota")
            return
        first = gang.first(gang.needed) if 0 < gang.needed < len(gang.pods) else gang
        is_whole = gang.needed > 0 or len(gang.pods) == 1
        parts = [first] if is_whole else [_alone(gang, pod) for pod in gang.pods]
        placed: set[str] = set()
        for part in parts:
            if self._try(part, line) is None:
                continue
            placed |= {pod.uid for pod in part.pods}
        if is_whole and placed:
            for pod in gang.pods:  # those beyond the minimum follow as far as there is room
                if pod.uid not in placed and self._try(_alone(gang, pod), line) is not None:
                    placed.add(pod.uid)
        left = [pod for pod in gang.pods if pod.uid not in placed]
        if left:
            rest = Gang(gang.key, left, gang.group, placed=gang.placed + len(placed))
            self._no_room(rest if placed else gang, line)

    def _try(self, gang: Gang, line: QueueLine) -> list[Spot] | None:
        """Place one gang whole if that delays nobody before it, and take its room."""
        kept = self._reservation
        room = self._fleet.room
        if kept is not None and not kept.ends_before(gang, self._now):
            room = kept.spare
            if not self._policy.may_backfill:
                return None
        crowd = self._holders.crowd(self._fleet, gang.pods[0])
        if len(gang.pods) == 1 and gang.pods[0].shape in self._verdicts:
            return None  # room only shrinks during a pass
        spots = place(self._fleet, room, gang, crowd=crowd)
        if spots is None:
            return None
        take(self._fleet, self._fleet.room, spots)
        if kept is not None:
            take(self._fleet, kept.spare, spots)
        for spot in spots:
            self._bind(spot)
        return spots

    def _bind(self, spot: Spot) -> None:
        node = self._fleet.views[spot.node]
        gpus: list[tuple[str, tuple[str, ...]]] = []
        if spot.gpus and node.gpus is not None:
            uuids = [node.gpus.uuids[index] for index in spot.gpus]
            for name, count in spot.pod.gpu_containers:
                gpus.append((name, tuple(uuids[:count])))
                del uuids[:count]
        chosen = tuple(uuid for _, found in gpus for uuid in found)
        self._bindings.append(Binding(spot.pod.key, spot.pod.uid, node.name, tuple(gpus)))
        self._holders.add(spot.pod.placed(node.name, chosen, format_time(self._now)))

    def _no_room(self, gang: Gang, line: QueueLine) -> None:
        """Say why a gang waits; keep room for it if it is the first; make room if it may."""
        kept = self._reservation
        if kept is not None and place(self._fleet, self._fleet.room, gang) is not None:
            text = f"room is kept for {kept.gang}, which waits before it"
            self._wait(gang, line, "Reserved", text, blocks=True)
            return
        reason, message = shortfall(self._fleet, self._fleet.room, gang)
        is_head = self._reservation is None and self._heads < HEADS_MAX
        self._heads += is_head
        if self._policy.may_preempt and is_head:
            victims = find_victims(self._fleet, self._holders, gang, self._policy, self._now)
            if victims:
                self._evict(gang, victims)
                reason, message = "Preempting", f"{message}; {len(victims)} gangs of lower priority give way"
        if is_head:
            is_overdue = line.is_overdue(gang)
            self._reservation = reserve(
                self._fleet, self._holders, gang, self._now, victims=self._victim_uids(), is_due=is_overdue
            )
        self._wait(gang, line, reason, message, blocks=True)

    def _evict(self, gang: Gang, victims: Iterable[str]) -> None:
        for key in victims:
            pods = sorted(self._holders.by_gang[key].values(), key=lambda pod: pod.key)
            names, uids = tuple(pod.key for pod in pods), tuple(pod.uid for pod in pods)
            self._evictions.append(Eviction(key, names, uids, gang.key))

    def _victim_uids(self) -> set[str]:
        return {uid for eviction in self._evictions for uid in eviction.uids}

    def _wait(self, gang: Gang, line: QueueLine, reason: str, message: str, *, blocks: bool) -> None:
        position = line.waiting(gang, blocks=blocks)
        self._waits.append(Wait(gang=gang.key, reason=reason, message=message, position=position))
        is_single = len(gang.pods) == 1 and not gang.pods[0].gang
        for pod in gang.pods:
            text = f"gang {gang.key} waits: {message}"
            if is_single:
                text = self._verdicts.get(pod.shape, "") if reason == "NoRoom" and pod.shape else ""
                text = text or (pod_message(self._fleet, pod) if reason in ("NoRoom", "NoNode") else message)
                if reason == "NoRoom" and pod.shape and self._reservation is None:
                    self._verdicts[pod.shape] = text
            self._unschedulable.append(Unschedulable(pod.key, pod.uid, text))


def _alone(gang: Gang, pod: PodView) -> Gang:
    return Gang(gang.key, [pod], gang.group, placed=gang.placed)


def _membership(gang: Gang) -> tuple[str, str] | None:
    """Return why a gang cannot be tried yet: no such group, or too few pods."""
    if not gang.is_known:
        return "NoGroup", f"PodGroup {gang.key} does not exist"
    if gang.needed > len(gang.pods):
        there = gang.placed + len(gang.pods)
        return "Incomplete", f"has {there} of the {gang.group.min_member} pods that must start together"
    return None
