"""One scheduling pass: ``(snapshot, waiting pods, seed) -> Decisions``. Pure, the same for the same input.

Gangs are taken one by one: those of queues within what they deserve, then by priority, then overdue
ones, then the queue that has least of its share, then by age. Each is placed whole or waits with its first
binding reason. For the first that waits room is kept, see :mod:`gangline.placement.reserve`; those behind it
may start where they do not delay it. Where allowed, gangs of lower priority give way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import numpy as np

from gangline.clock import format_time, parse_time
from gangline.placement.allocations import Allocations
from gangline.placement.capacity import Spot, take
from gangline.placement.closeness import closeness, closest
from gangline.placement.decisions import Binding, Decisions, Eviction, Unschedulable, Wait, bound
from gangline.placement.fit import by_shape, has_rules
from gangline.placement.gangs import Gang, GangShape, Group
from gangline.placement.groups.collect import collect_gangs
from gangline.placement.groups.domains import domains_of
from gangline.placement.node_table import Bools, NodeTable
from gangline.placement.place import place
from gangline.placement.policy import Policy
from gangline.placement.preemption.by_attained_service import Suspender
from gangline.placement.preemption.by_priority import find_victims
from gangline.placement.quota import QueueLine, quota_refusal
from gangline.placement.reserve import Reservation, reserve
from gangline.placement.snapshot import PodView, Snapshot
from gangline.placement.waiting.unavailable_nodes import is_away
from gangline.placement.waiting.why import pod_message, shortfall
from gangline.units import plural
from gangline.workloads.unconfirmed_end import UnconfirmedEnd

DEFAULT_POLICY = Policy()

HEADS_MAX = 4
"""Gangs that wait for which, one after another, room is looked for in the future or taken from others: nobody
may know when there will be room for the first. Those that would not fit an idle cluster do not count."""

FORMS_MAX = 1 << 14
"""Forms of gangs of which it is remembered whether they would fit if nothing ran."""

RULES_AND_DOMAINS = "its groups want domains of their own, and its pods have rules about neighbours: not both"
"""Said of a group of groups whose groups are placed one after another, where neighbours would not be seen."""

NOT_PREEMPTING = "preemption: not eligible due to preemptionPolicy=Never"
"""Said of a gang that could otherwise have others give way; kube-scheduler's words."""


def schedule(
    snapshot: Snapshot,
    pods: Iterable[PodView],
    *,
    now: datetime,
    policy: Policy = DEFAULT_POLICY,
    groups: Mapping[str, Group] | None = None,
    seed: int = 0,
) -> Decisions:
    """Decide where the waiting pods of a snapshot go; those with scheduling gates are left out.

    Args:
        snapshot: nodes, and the pods that hold room on them; nothing in it is changed.
        pods: pods without a node.
        now: the time of the pass.
        policy: levels, queues, who may pass whom.
        groups: what is said about gangs, by key.
        seed: decides between nodes that are equally good; 0 takes the first by name. With other seeds
            several clusters that are set up alike do not all wear out their first nodes.

    Returns:
        One binding or one unschedulable entry for each pod that is considered; for a gang all bindings or
        none.

    Cost: the arrays are built anew, 10 µs a node; :class:`SchedulingCycle` works on arrays that are kept.
    """
    groups = groups or {}
    allocations = Allocations.of(snapshot, groups)
    table = NodeTable.of(snapshot.nodes, snapshot.pods, policy.levels, seed=seed, claimed=snapshot.claimed)
    gangs = collect_gangs(pods, groups, allocations.placed)
    return SchedulingCycle(table, allocations, policy, now=now).run(gangs)


class SchedulingCycle:
    """Decides about all waiting gangs on one snapshot.

    Args:
        table: the nodes; its room is taken while deciding, so give it a table whose room is a copy, or
            treat all decisions as carried out.
        allocations: the pods that hold room; placed pods are added.
        policy: see :class:`Policy`.
        now: the time of the pass.
    """

    def __init__(self, table: NodeTable, allocations: Allocations, policy: Policy, *, now: datetime) -> None:
        self._table = table
        table.affinity_index = allocations.affinity_index
        self._allocations = allocations
        self._policy = policy
        self._now = now
        self._moment = format_time(now)
        self._reservation: Reservation | None = None
        self._bindings: list[Binding] = []
        self._allocating: set[str] = set()  # claims, by key
        self._unschedulable: list[Unschedulable] = []
        self._waits: list[Wait] = []
        self._evictions: list[Eviction] = []
        self._suspender = Suspender(table, allocations, policy, now, self._is_cut_too_soon)
        self._heads = 0
        self._verdicts: dict[bytes, str] = {}
        self._refused: dict[bool, set[GangShape]] = {False: set(), True: set()}
        self._fitting: dict[tuple[GangShape, int], bool] = {}
        self._shortfalls: dict[tuple[GangShape, int], tuple[str, str]] = {}

    @property
    def reservation(self) -> Reservation | None:
        """What is kept for the first gang that waits, once the pass has run."""
        return self._reservation

    def run(self, gangs: Sequence[Gang]) -> Decisions:
        """Return what is decided about these gangs."""
        line = QueueLine(gangs, self._policy, self._allocations, self._now)
        while (gang := line.next()) is not None:
            self._consider(gang, line)
        kept = self._reservation
        return Decisions(
            bindings=tuple(self._bindings),
            unschedulable=tuple(self._unschedulable),
            waits=tuple(self._waits),
            evictions=tuple(self._evictions),
            suspensions=tuple(self._suspender.decided),
            reserved_for=kept.gang if kept else "",
            kept_nodes=kept.nodes if kept and (kept.at is None or kept.at <= self._now) else (),
        )

    def _consider(self, gang: Gang, line: QueueLine) -> None:
        """Place what must start together, then the others as far as there is room."""
        for part in gang.parts:
            self._tie(part)
        core = gang.first(gang.needed)
        refusal = gang.refusal or gang.lack(self._ending_where_lost(gang))
        if refusal is None and gang.has_levels and has_rules(self._table, gang):
            refusal = "Refused", RULES_AND_DOMAINS
        if self._allocating and any(pod.to_allocate & self._allocating for pod in gang.pods):
            refusal = "Behind", "a resource claim that it shares is given to another pod first"
        if refusal is None and line.is_blocked(gang):
            refusal = "Behind", "its queue is strict, and an earlier gang of it waits"
        if refusal is None and core.pods:
            refusal = quota_refusal(core, self._policy, self._allocations, self._table)
        if refusal:
            self._wait(gang, line, *refusal, blocks=refusal[0] == "Quota")
            return
        if core.pods and not self._try(core):
            self._no_room(gang, core, line)
            return
        members = {pod.uid for pod in core.pods}
        for one in gang.parts_of_pods:
            others = [one.only(pod) for pod in one.pods if pod.uid not in members]
            left = [other for other in others if not self._try_late(other)]
            if left:
                reason, message = shortfall(self._table, self._table.room, left[0])
                waiting = one.only(*(other.pods[0] for other in left))
                self._wait(waiting, line, reason, message, blocks=False)

    def _try_late(self, gang: Gang) -> bool:
        return quota_refusal(gang, self._policy, self._allocations, self._table) is None and self._try(gang)

    def _try(self, gang: Gang) -> bool:
        """Place one gang whole if that delays nobody before it, and take its room."""
        kept = self._reservation
        room = self._table.room
        if kept is not None and not kept.ends_before(gang, self._now):
            room = kept.spare
            if not self._policy.may_backfill:
                return False
        form = self._form(gang)
        refused = self._refused[room is self._table.room]
        if form in refused:
            return False
        spread_counts = self._allocations.spread_counts(self._table, gang.pods[0])
        spots = None
        for within in self._areas(gang):
            spots = place(self._table, room, gang, within=within, spread_counts=spread_counts)
            if spots is not None:
                break
        if spots is None or self._is_cut_too_soon(gang, spots):
            if form is not None:
                refused.add(form)
            return False
        take(self._table, self._table.room, spots)
        if kept is not None:
            take(self._table, kept.spare, spots)
        self._bind(spots)
        return True

    def _form(self, gang: Gang) -> GangShape | None:
        """Return what decides alone whether a gang fits; None where something else does too.

        Room only shrinks during a pass, so what was refused once need not be tried again.
        """
        is_told, level = all(shape for shape, _ in gang.shapes), gang.group.required_level
        is_bound_to_others = bool(gang.ties) or gang.has_levels or (level and gang.placed)
        if not is_told or is_bound_to_others or has_rules(self._table, gang):
            return None
        return gang.shapes, level, self.whole_until(gang) is None

    def whole_until(self, gang: Gang) -> datetime | None:
        """Return until when a gang rather waits than is cut; None for one that may be cut now."""
        is_one = gang.devices < 2 or len(gang.pods) < 2 or gang.has_levels
        if is_one or gang.placed or not self._policy.whole_for_s or not gang.created:
            return None
        until = parse_time(gang.created) + timedelta(seconds=self._policy.whole_s(gang.devices))
        return until if self._now < until else None

    def _is_cut_too_soon(self, gang: Gang, spots: Sequence[Spot]) -> bool:
        """Return whether a gang that may not be cut yet lies wider than it would on empty nodes.

        Narrow domains are tried first: where it lies there is no narrower one with room now. What counts is
        where its pods with most devices lie.
        """
        if self.whole_until(gang) is None or has_rules(self._table, gang):
            return False
        pods = by_shape(gang.pods)[0]
        uids = {pod.uid for pod in pods}
        found = closeness(self._table, sorted({spot.node for spot in spots if spot.pod.uid in uids}))
        return found < closest(self._table, self._table.idle(), pods)

    def _fits_beside(self, gang: Gang) -> bool:
        """Return whether a gang would fit if no room were kept."""
        form = self._form(gang)
        if form is None:
            return self._fits_now(gang)
        key = form, len(self._bindings)
        if key not in self._fitting:
            is_refused = form in self._refused[True]
            self._fitting[key] = not is_refused and self._fits_now(gang)
        return self._fitting[key]

    def _fits_now(self, gang: Gang) -> bool:
        spots = place(self._table, self._table.room, gang)
        return spots is not None and not self._is_cut_too_soon(gang, spots)

    def _fits_idle(self, gang: Gang) -> bool:
        """Return whether a gang would fit if nothing ran; remembered by its form until a node changes."""
        form, idle = self._form(gang), self._table.idle()
        if form is None:
            return place(self._table, idle, gang) is not None
        known = self._table.fits_idle
        if form not in known:
            if len(known) >= FORMS_MAX:
                known.clear()
            known[form] = place(self._table, idle, gang) is not None
        return known[form]

    def _shortfall(self, gang: Gang) -> tuple[str, str]:
        """Return (reason, message) of a gang that does not fit; for gangs of one form it is the same."""
        form = self._form(gang)
        if form is None:
            return self._shortfall_now(gang)
        key = form, len(self._bindings)
        if key not in self._shortfalls:
            self._shortfalls[key] = self._shortfall_now(gang)
        return self._shortfalls[key]

    def _shortfall_now(self, gang: Gang) -> tuple[str, str]:
        room = self._table.room
        spots = place(self._table, room, gang) if self.whole_until(gang) is not None else None
        if spots is None:
            return shortfall(self._table, room, gang)
        _, level = closest(self._table, self._table.idle(), by_shape(gang.pods)[0])
        levels = [
            "with devices of one model",
            *(f"in one {label}" for label in self._table.levels),
            "on one node",
        ]
        nodes = len({spot.node for spot in spots})
        return "Cut", f"fits on {plural(nodes, 'node')} now; waits for room {levels[level + 1]}"

    def _ending_where_lost(self, gang: Gang) -> list[UnconfirmedEnd]:
        """Return the pods that a gang which lacks some has on their way out on nodes that are not ready."""
        if gang.needed <= len(gang.pods):
            return []
        found = []
        for pod in self._held(gang.keys):
            row = self._table.index(pod.node_name)
            if pod.is_ending and row >= 0 and is_away(self._table.views[row]):
                found.append(UnconfirmedEnd(pod.key, pod.node_name, ""))
        return sorted(found)

    def _areas(self, gang: Gang) -> list[Bools | None]:
        """Return where to try a gang, the best first; None for everywhere.

        Where it has pods already it stays in the domain in which it must be, and with devices of their model
        if it can.
        """
        joined = self._joined(gang)
        row = self._row_of(gang.keys)
        if row < 0:
            return [joined]
        models, count = self._table.models()
        if count == 1 or not gang.devices:
            return [joined]
        alike = np.asarray(models == models[row])
        return [alike if joined is None else alike & joined, joined]

    def _held(self, keys: Iterable[str]) -> list[PodView]:
        """Return the pods of some groups that hold room."""
        return [pod for key in keys for pod in self._allocations.by_gang.get(key, {}).values()]

    def _row_of(self, keys: Iterable[str]) -> int:
        """Return the row of a node on which some gangs have a pod that stays, or -1."""
        rows = (self._table.index(pod.node_name) for pod in self._held(keys) if not pod.is_ending)
        return next((row for row in rows if row >= 0), -1)

    def _joined(self, gang: Gang) -> Bools | None:
        """Return the nodes that lie where the pods do with which a gang must lie together; None for all."""
        level, joined = gang.group.required_level, None
        for label, keys in (*gang.ties, *(((level, gang.keys),) if level else ())):
            row = self._row_of(keys)
            if row >= 0:
                domains, _ = domains_of(self._table, label)
                same = np.asarray(domains == domains[row])
                joined = same if joined is None else joined & same
        return joined

    def _tie(self, gang: Gang) -> None:
        """Note where the parts of a gang may be."""
        gang.within = self._joined(gang)
        for part in gang.parts:
            self._tie(part)

    def _indices(self, row: int, gpus: set[int]) -> tuple[int, ...]:
        """Return the device indices of some GPUs of a node."""
        found = self._table.views[row].gpus
        return tuple(sorted(found.indices[index] for index in gpus)) if found is not None else ()

    def _bind(self, spots: Sequence[Spot]) -> None:
        """Note the bindings of a gang, and that its pods hold room. Cost: 5 µs a pod."""
        together: dict[int, set[int]] = {}
        for spot in spots:
            together.setdefault(spot.node, set()).update(spot.gpus)
        visible = {row: self._indices(row, gpus) for row, gpus in together.items()}
        placed = []
        for spot in spots:
            binding, pod = bound(spot, self._table.views[spot.node], visible[spot.node], self._moment)
            self._bindings.append(binding)
            if pod.demands or pod.claim_shares:
                self._allocating |= pod.to_allocate
            placed.append(pod)
        self._allocations.add_all(placed)

    def _no_room(self, gang: Gang, core: Gang, line: QueueLine) -> None:
        """Say why a gang waits; keep room for it if it is the first; make room if it may."""
        kept = self._reservation
        if kept is not None and self._fits_beside(core):
            text = f"room is kept for {kept.gang}, which waits before it"
            self._wait(gang, line, "Reserved", text, blocks=True)
            return
        reason, message = self._shortfall(core)
        if whose := self._suspended_for(core):
            text = f"{message}; {whose}"
            self._wait(gang, line, "Suspending", text, blocks=True)
            return
        if reason == "Cut":
            until = self.whole_until(core)
            assert until is not None
            text = f"{message}, until {format_time(until)}; then it takes what there is"
            self._wait(gang, line, reason, text, blocks=True)
            return
        is_head = kept is None and self._heads < HEADS_MAX
        if is_head and self._fits_idle(core):
            self._heads += 1
            victims = self._make_room(core)
            if victims:
                who = (
                    "1 gang of lower priority gives"
                    if victims == 1
                    else f"{victims} gangs of lower priority give"
                )
                reason, message = "Preempting", f"{message}; {who} way"
            uids = {uid for eviction in self._evictions for uid in eviction.uids}
            self._reservation = reserve(
                self._table, self._allocations, core, self._now, victims=uids, is_due=line.is_overdue(gang)
            )
        is_barred = not core.may_preempt and self._allocations.has_weaker(core.priority)
        self._wait(gang, line, reason, message, blocks=True, note=NOT_PREEMPTING if is_barred else "")

    def _suspended_for(self, gang: Gang) -> str:
        """Have gangs suspended for one that has had less; return what is done, in words."""
        kept = self._reservation
        room = self._table.room if kept is None else kept.spare
        text, uids = self._suspender.room_for(gang, self._form(gang), room)
        if text and kept is None:
            self._reservation = reserve(
                self._table, self._allocations, gang, self._now, victims=uids, is_due=False
            )
        return text

    def _make_room(self, gang: Gang) -> int:
        """Have gangs of lower priority give way, if that helps; return how many."""
        if not (self._policy.may_preempt and gang.may_preempt):
            return 0
        victims = find_victims(
            self._table,
            self._allocations,
            gang,
            self._policy,
            self._now,
            lambda spots: self._is_cut_too_soon(gang, spots),
        )
        if {eviction.gang for eviction in self._evictions}.intersection(victims):
            return 0  # they give way to another gang already, which the room is for
        for key, found in victims.items():
            pods = sorted(found, key=lambda pod: pod.key)
            names, uids = tuple(pod.key for pod in pods), tuple(pod.uid for pod in pods)
            self._evictions.append(Eviction(key, names, uids, gang.key))
        return len(victims)

    def _wait(
        self, gang: Gang, line: QueueLine, reason: str, message: str, *, blocks: bool, note: str = ""
    ) -> None:
        position = line.waiting(gang, blocks=blocks)
        said = f"{message}; {note}" if note else message
        wait = Wait(gang=gang.key, reason=reason, message=said, position=position)
        self._waits.append(wait)
        if len(gang.pods) > 1 or gang.pods[0].gang:
            self._unschedulable += (Unschedulable.with_gang(pod.key, pod.uid, wait) for pod in gang.pods)
            return
        pod = gang.pods[0]
        is_common = reason == "NoRoom" and bool(pod.shape) and not has_rules(self._table, gang)
        text = self._verdicts.get(pod.shape, "") if is_common else ""
        text = text or (pod_message(self._table, pod) if reason in ("NoRoom", "NoNode") else message)
        if is_common and self._reservation is None:
            self._verdicts[pod.shape] = text
        self._unschedulable.append(Unschedulable(pod.key, pod.uid, f"{text} {note}." if note else text))
