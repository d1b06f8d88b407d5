"""Why a gang waits and what would help, by the same pass that the scheduler makes. Pure.

The first binding reason and the shortfall are the pass's own. What would help is found by trials: room is
given back and the gang is placed. Their number is bounded, so that the answer costs milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gangline.placement.allocations import Allocations
from gangline.placement.capacity import capacity
from gangline.placement.cycle import SchedulingCycle
from gangline.placement.fit import has_rules
from gangline.placement.fragmentation import left_over
from gangline.placement.free_resources import FreeResources
from gangline.placement.gangs import Gang, Group
from gangline.placement.groups.collect import collect_gangs
from gangline.placement.node_table import NodeTable
from gangline.placement.place import place
from gangline.placement.policy import Policy
from gangline.placement.prediction import Workload, masks_of, outlook
from gangline.placement.quota import queue_of
from gangline.placement.reserve import Reservation, end_of, release, reserve
from gangline.placement.snapshot import PodView, Snapshot
from gangline.placement.waiting.blockers import Blocker, holds_room, may_pass, waits_before
from gangline.placement.waiting.next_suspension import next_suspension
from gangline.placement.waiting.unavailable_nodes import when_opened
from gangline.placement.waiting.why import with_simulated
from gangline.workloads.requests import GPU

JOBS_TRIED_MAX = 16
"""Running gangs of which it is tried whether the end of one alone is enough."""

SPARED_TRIED_MAX = 32
"""Running gangs of several that have to end of which it is tried whether one need not."""

NODES_NAMED_MAX = 4
JOBS_NAMED_MAX = 3

NO_ROOM = ("NoRoom", "Preempting", "Reserved")
"""Reasons for which more room would help."""


@dataclass(frozen=True, slots=True)
class Fix:
    """One thing that would let the gang start.

    Attributes:
        kind: ``level``, ``suspends`` (others give way for a while), ``ends``, ``idle`` (pods of a finished
            job hold the room), ``split``, ``fewer``, ``label``, ``limit`` (it ends before the room is
            needed), ``after`` (the gang before it has started), ``node`` (one that is closed opens),
            ``quota`` or ``never``.
        text: in words, to follow on ``fits ``; a sentence of its own for ``quota`` and ``never``.
        speed: predicted speed as a share of that on the best nodes, where it is another one.
        at: the latest moment at which it comes by itself, where that is known.
        gangs: keys of the running gangs that have to end, or are suspended.
    """

    kind: str
    text: str
    speed: float | None = None
    at: datetime | None = None
    gangs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one gang waits.

    Attributes:
        gang: its key.
        reason: as in ``Wait``; ``Fits`` when the next pass places it.
        message: the first binding reason and the shortfall.
        fixes: what would help, the nearest first.
        queue: whose quota it uses.
        position: place among the waiting gangs of its queue, from 1.
        waiting: how many gangs of that queue wait.
        may_start: the latest moment at which room for it comes free, where running jobs have limits.
        blockers: who is in the way, the first ones.
        may_pass: which later gangs start before it, and until when; empty where that is not said.
        suspended: keys of the gangs that are suspended for it, while they still hold room.
        is_begun: their pods are on their way out; else the scheduler's next pass suspends them.
    """

    gang: str
    reason: str
    message: str
    fixes: tuple[Fix, ...] = ()
    queue: str = ""
    position: int = 0
    waiting: int = 0
    may_start: datetime | None = None
    blockers: tuple[Blocker, ...] = ()
    may_pass: str = ""
    suspended: tuple[str, ...] = ()
    is_begun: bool = False

    @property
    def fix(self) -> str:
        """The two nearest fixes in one line; empty when nothing is known to help."""
        return in_one_line(self.fixes)


def in_one_line(fixes: Sequence[Fix]) -> str:
    """Return ``fits when job x ends, or as 4+4 over n1, n2 at 0.61 of the speed``."""
    alone = next((fix.text for fix in fixes if fix.kind in ("quota", "never")), "")
    ways = [fix.text for fix in fixes if fix.kind not in ("quota", "never")][:2]
    return "; ".join(filter(None, (alone, f"fits {', or '.join(ways)}" if ways else "")))


def explain(
    snapshot: Snapshot,
    pods: Iterable[PodView],
    key: str,
    *,
    now: datetime,
    policy: Policy | None = None,
    groups: Mapping[str, Group] | None = None,
    workload: Workload | None = None,
    over: Collection[str] = (),
) -> Explanation | None:
    """Return why a gang waits; None when no pod of it does.

    Args:
        snapshot: nodes, and the pods that hold room.
        pods: all pods that wait, since others may come first.
        key: of the gang.
        now: the time.
        policy: as the scheduler's.
        groups: what is said about gangs, by key.
        workload: what speeds are predicted for.
        over: finished jobs, of which idle workers may still hold room.

    Cost: one pass, and at most some 30 trial placements; those with closed nodes build the arrays anew.
    """
    policy, groups = policy or Policy(), groups or {}
    allocations = Allocations.of(snapshot, groups)
    allocations.over.update(over)
    table = NodeTable.of(snapshot.nodes, snapshot.pods, policy.levels, claimed=snapshot.claimed)
    gangs = collect_gangs(pods, groups, allocations.placed)
    return explain_gang(table, allocations, gangs, key, now=now, policy=policy, workload=workload)


def explain_gang(
    table: NodeTable,
    allocations: Allocations,
    gangs: Sequence[Gang],
    key: str,
    *,
    now: datetime,
    policy: Policy,
    workload: Workload | None = None,
) -> Explanation | None:
    """Return why a gang waits, as :func:`explain` does, on arrays that are there already.

    The pass that is made for it takes room: pods that it places are among the allocations afterwards. The
    table has what is left on the nodes, and `gangs` are all that wait.
    """
    gang = next((found for found in gangs if key in (found.key, *found.keys)), None)
    if gang is None:
        return None
    key = gang.key
    leaving = sorted(allocations.leaving & allocations.by_gang.keys())
    cycle = SchedulingCycle(table, allocations, policy, now=now)
    decisions = cycle.run(gangs)
    queues = {found.key: queue_of(found) for found in gangs}
    queue = queues[key]
    wait = next((wait for wait in decisions.waits if wait.gang == key), None)
    if wait is None:
        return Explanation(key, "Fits", "there is room for it: the next pass places it", queue=queue)
    core = gang.first(gang.needed) if gang.needed else gang
    fixes: tuple[Fix, ...] = ()
    may_start = None
    if wait.reason == "Reserved":
        fixes = _reserved_fix(cycle.reservation, now)
    elif wait.reason in NO_ROOM and len(core.pods) >= gang.needed:
        fixes = nearest_fixes(table, allocations, core, workload=workload)
        kept = reserve(table, allocations, core, now, victims=set(), is_due=False)
        may_start = kept.at if kept else None
    elif wait.reason == "Cut":
        may_start = cycle.whole_until(core)
    elif wait.reason == "Quota":
        fixes = _quota_fix(core, policy, allocations, queue)
    elif wait.reason == "NoNode":
        fixes = _label_fix(table, core)
    if wait.reason in ("NoRoom", "Preempting", "NoNode") and (
        opened := when_opened(table, allocations, core)
    ):
        fixes += (Fix("node", opened),)
    if wait.reason in ("NoRoom", "Preempting", "Cut"):
        fixes = (*_suspension_fix(table, allocations, policy, gang, now), *fixes)
    due = [one.gang for one in decisions.suspensions if one.beneficiary == key]
    waiting = sum(1 for other in decisions.waits if queues.get(other.gang) == queue)
    return Explanation(
        key,
        wait.reason,
        with_simulated(wait.message, table.views),
        tuple(replace(fix, text=with_simulated(fix.text, table.views)) for fix in fixes),
        queue,
        wait.position,
        waiting,
        may_start,
        waits_before(wait, cycle.reservation, decisions.waits, {one.key: one for one in gangs})
        or holds_room(next((fix.gangs for fix in fixes if fix.gangs), ()), allocations),
        may_pass(core, cycle.reservation, policy, now) if wait.reason in (*NO_ROOM, "Cut") else "",
        tuple(due or leaving) if wait.reason == "Suspending" else (),
        wait.reason == "Suspending" and not due,
    )


def nearest_fixes(
    table: NodeTable,
    allocations: Allocations,
    gang: Gang,
    *,
    workload: Workload | None = None,
    trials: int = JOBS_TRIED_MAX,
) -> tuple[Fix, ...]:
    """Return what would let a gang start that does not fit, the nearest first.

    Args:
        table: the nodes and what is left on them.
        allocations: the pods that hold room.
        gang: what must start together.
        workload: what speeds are predicted for; None for the default.
        trials: running gangs that are tried one by one.
    """
    workload = workload or Workload()
    whole = place(table, table.idle(), gang)
    best = outlook(table, masks_of(whole), workload) if whole else None
    best_s = best.step_s if best else None
    fixes: list[Fix | None] = [_other_level(table, gang, workload, best_s)]
    if whole is not None:
        fixes.append(_when_jobs_end(table, allocations, gang, trials))
    else:
        fixes.append(_never(table, gang))
    fixes.append(_split(table, gang, workload, best_s))
    fixes.append(_fewer(table, gang))
    return tuple(fix for fix in fixes if fix is not None)


def _suspension_fix(
    table: NodeTable, allocations: Allocations, policy: Policy, gang: Gang, now: datetime
) -> tuple[Fix, ...]:
    """Return the fix of waiting until others give way for a while."""
    found = next_suspension(table, allocations, policy, gang, now)
    if found is None:
        return ()
    moment, keys = found
    are = "is" if len(keys) == 1 else "are"
    text = f"when {_and(keys)} {are} suspended for it (from {moment:%H:%M:%S} UTC)"
    return (Fix("suspends", text, at=moment, gangs=keys),)


def _other_level(table: NodeTable, gang: Gang, workload: Workload, best_s: float | None) -> Fix | None:
    """Return the fix of not insisting on one domain."""
    group = gang.group
    if not group.required_level:
        return None
    spots = place(table, table.room, gang.anywhere())
    if spots is None:
        return None
    found = outlook(table, masks_of(spots), workload)
    speed = min(best_s / found.step_s, 1.0) if best_s and found else None
    return Fix("level", f"if it need not lie within one {group.required_level}{_at_speed(speed)}", speed)


def _when_jobs_end(table: NodeTable, allocations: Allocations, gang: Gang, trials: int) -> Fix | None:
    """Return the fix of waiting: one job if that is enough, else the fewest by their ends."""
    running = []
    for key, held in allocations.by_gang.items():
        pods = list(held.values())
        if key != gang.key and any(table.index(pod.node_name) >= 0 for pod in pods):
            ends = [end_of(pod, allocations) for pod in pods]
            end = max((end for end in ends if end), default=None) if all(ends) else None
            gpus = sum(pod.request.get(GPU, 0) for pod in pods)
            is_over = pods[0].job in allocations.over
            end_s = 0.0 if end is None or is_over else end.timestamp()
            running.append((end is None and not is_over, end_s, gpus, key, end, pods))
    running.sort(key=lambda entry: entry[:4])
    wants_gpus = bool(gang.gpus) and not has_rules(table, gang)
    tried = [entry for entry in running if entry[2] or not wants_gpus]
    for _, _, _, key, end, pods in tried[:trials]:
        if place(table, _freed(table, pods), gang) is not None:
            if pods[0].job in allocations.over:
                return Fix("idle", f"when the {_idle(pods)}")
            return Fix("ends", f"when {_job(pods)} ends{_by(end)}", at=end, gangs=(key,))

    def is_enough(count: int) -> bool:
        return place(table, _freed(table, _all(tried[:count])), gang) is not None

    low = high = 1  # doubled first: few suffice in most cases, and many are slow to release
    while high < len(tried) and not is_enough(high):
        low, high = high + 1, min(2 * high, len(tried))
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    if not tried or not is_enough(low):
        return None
    chosen = _without_spare(table, gang, tried[:low])
    ends = [entry[4] for entry in chosen]
    last = max((end for end in ends if end), default=None) if all(ends) else None
    names = [_job(entry[5]) for entry in chosen if entry[5][0].job not in allocations.over]
    gangs = tuple(entry[3] for entry in chosen if entry[5][0].job not in allocations.over)
    if not names:
        return Fix("idle", f"when the {', and the '.join(_idle(entry[5]) for entry in chosen)}")
    idle = "".join(f", and the {_idle(entry[5])}" for entry in chosen if entry[5][0].job in allocations.over)
    if len(names) > JOBS_NAMED_MAX:
        return Fix("ends", f"when {len(names)} running jobs end{_by(last)}{idle}", at=last, gangs=gangs)
    if len(names) == 1:
        return Fix("ends", f"when {names[0]} ends{_by(last)}{idle}", at=last, gangs=gangs)
    bare = [names[0], *(name.removeprefix("job ") for name in names[1:])]
    words = f"{', '.join(bare[:-1])} and {bare[-1]} end"
    text = f"when {words.replace('job ', 'jobs ', 1)}{_by(last)}{idle}"
    return Fix("ends", text, at=last, gangs=gangs)


_Entry = tuple[bool, float, int, str, datetime | None, list[PodView]]


def _without_spare(table: NodeTable, gang: Gang, entries: list[_Entry]) -> list[_Entry]:
    """Return the running gangs without those that need not end; the last one must."""
    chosen = entries
    for entry in entries[-2 : -SPARED_TRIED_MAX - 2 : -1]:
        others = [other for other in chosen if other is not entry]
        if place(table, _freed(table, _all(others)), gang) is not None:
            chosen = others
    return chosen


def _all(entries: Iterable[_Entry]) -> list[PodView]:
    return [pod for entry in entries for pod in entry[5]]


def _freed(table: NodeTable, pods: Sequence[PodView]) -> FreeResources:
    room = table.room.copy()
    release(table, room, pods)
    return room


def _job(pods: Sequence[PodView]) -> str:
    pod = pods[0]
    return f"job {pod.job}" if pod.job else f"gang {pod.gang}" if pod.gang else f"pod {pod.key}"


def _and(keys: Sequence[str]) -> str:
    """Return ``a, b and c``, or how many they are where they are many."""
    if len(keys) > JOBS_NAMED_MAX:
        return f"{len(keys)} running gangs"
    return " and ".join(filter(None, (", ".join(keys[:-1]), keys[-1])))


def _idle(pods: Sequence[PodView]) -> str:
    """Return what frees the room of a job that is over and keeps its workers, or has not removed them yet."""
    who, go = (f"{len(pods)} idle pods", "go") if len(pods) > 1 else ("idle pod", "goes")
    if all(pod.is_ending for pod in pods):
        return f"{who} of finished job {pods[0].job}, now ending, {go}"
    return f"{who} of finished job {pods[0].job} {go}: set its cleanPodPolicy: Running, or delete it"


def _by(end: datetime | None) -> str:
    return f" (by {end:%H:%M:%S} UTC at the latest)" if end else ""


def _reserved_fix(kept: Reservation | None, now: datetime) -> tuple[Fix, ...]:
    """Return what lets a gang start for which there is room that is kept for another one."""
    if kept is None:
        return ()
    after = Fix("after", f"once {kept.gang} has started")
    seconds = int((kept.at - now).total_seconds()) if kept.at else 0
    if kept.at is None or seconds < 1:
        return (after,)
    end = f"{kept.at:%H:%M:%S} UTC"
    return (Fix("limit", f"if it ends by {end} (activeDeadlineSeconds of at most {seconds})"), after)


def _never(table: NodeTable, gang: Gang) -> Fix | None:
    """Say that waiting does not help."""
    pod = max(gang.pods, key=lambda pod: pod.request.get(GPU, 0))
    alike = [other for other in gang.pods if other.shape == pod.shape]
    room = int(capacity(table, table.idle(), pod).sum())
    if len(alike) > 1:
        text = f"even with nothing else running there is room for {room} of its {len(alike)} pods"
    else:
        text = "even with nothing else running no node has room for it"
    return Fix("never", text if room < len(alike) else "even with nothing else running it does not fit")


def _split(table: NodeTable, gang: Gang, workload: Workload, best_s: float | None) -> Fix | None:
    """Return the fix of smaller pods: the same GPUs, left over on several nodes."""
    rest = left_over(table, gang, workload)
    if rest is None:
        return None
    speed = min(best_s / rest.found.step_s, 1.0) if best_s and rest.found else None
    many = f"smaller pods over {len(rest.shares)} nodes"
    cost = _at_speed(speed) if rest.found else " (their links are not known)"
    return Fix("split", f"as {rest.words if len(rest.shares) <= NODES_NAMED_MAX else many}{cost}", speed)


def _fewer(table: NodeTable, gang: Gang) -> Fix | None:
    """Return the fix of fewer pods, where some fit now."""
    pod = max(gang.pods, key=lambda pod: (pod.request.get(GPU, 0), sum(pod.request.values())))
    alike = [other for other in gang.pods if other.shape == pod.shape]
    others = [other for other in gang.pods if other.shape != pod.shape]
    room = min(int(capacity(table, table.room, pod).sum()), len(alike) - 1)
    if room < 1 or place(table, table.room, gang.only(*alike[:room], *others)) is None:
        return None
    what = (pod.replica_type or "pod") + ("" if room == 1 else "s")
    batch = ", which changes the global batch" if pod.replica_type.lower() == "worker" else ""
    return Fix("fewer", f"with {room} {what} instead of {len(alike)}{batch}")


def _label_fix(table: NodeTable, gang: Gang) -> tuple[Fix, ...]:
    """Name the labels that the gang selects nodes by and that no node carries."""
    wanted = dict(sorted(pair for pod in gang.pods for pair in pod.node_selector.items()))
    missing = [
        f"{key}={value}"
        for key, value in wanted.items()
        if not any(node.labels.get(key) == value for node in table.views)
    ]
    return (Fix("label", f"when a node gets the label {', '.join(missing)}"),) if missing else ()


def _quota_fix(gang: Gang, policy: Policy, allocations: Allocations, name: str) -> tuple[Fix, ...]:
    """Say how much of its quota the queue has to give back."""
    queue = policy.queues.get(name)
    used = allocations.used_by(name)
    for resource, most in sorted(queue.capability.items()) if queue else ():
        asked = gang.request.get(resource, 0)
        if asked > most:
            return (Fix("never", f"it asks for more {resource} than queue {name} may ever use"),)
        over = used.get(resource, 0) + asked - most
        if asked and over > 0:
            shown = f"{over / 1000:g}" if resource == "cpu" else str(over)
            return (Fix("quota", f"waits until other jobs of queue {name} give back {shown} {resource}"),)
    return ()


def _at_speed(speed: float | None) -> str:
    return f" at {speed:.2f} of the speed" if speed is not None else ""
