"""Nothing waits for ever: random arrivals and departures, broken GPUs, lost nodes."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import msgspec
from drawn_scenes import LEVELS, Draws, drawn, gang_of, gang_pods, many, nodes
from gang_scenes import NOW, group, pod
from hypothesis import given

from gangline.clock import format_time
from gangline.placement.allocations import Allocations
from gangline.placement.cycle import SchedulingCycle, schedule
from gangline.placement.gangs import Group
from gangline.placement.groups.collect import collect_gangs
from gangline.placement.node_table import NodeTable
from gangline.placement.policy import Policy
from gangline.placement.snapshot import NodeView, PodView, Snapshot

STEP = timedelta(minutes=10)
STEPS_MAX = 3
"""A gang runs for at most so many steps."""

POLICY = Policy(levels=LEVELS, overdue_after_s=STEP.total_seconds(), overdue_per_device_s=0.0)


class Cluster:
    """What a scheduler, controllers and time do to gangs, with the decisions of the real passes."""

    def __init__(self, draws: Draws, on: list[NodeView]) -> None:
        self.draws = draws
        self.nodes = {node.name: node for node in on}
        self.groups: dict[str, Group] = {}
        self.allocations = Allocations(groups=self.groups)
        self.table = NodeTable.of(on, (), LEVELS)
        self.changed: set[str] = set()
        self.waiting: dict[str, PodView] = {}
        self.left: dict[str, int] = {}
        self.step = 0

    def add(self, pods: list[PodView], found: Group | None) -> None:
        if found is not None:
            self.groups[found.key] = found
        created = format_time(NOW + self.step * STEP)
        self.waiting |= {p.uid: msgspec.structs.replace(p, created=created) for p in pods}

    def run_pass(self) -> list[str]:
        """Decide and carry out, and return the gangs that have started."""
        for name in sorted(self.changed):
            if name in self.nodes:
                self.table.set_node(self.nodes[name], self.allocations.by_node.get(name, {}).values())
            else:
                self.table.drop_node(name)
        self.changed.clear()
        found = collect_gangs(self.waiting.values(), self.groups, self.allocations.placed)
        decisions = SchedulingCycle(self.table, self.allocations, POLICY, now=NOW + self.step * STEP).run(
            found
        )
        started = {gang_of(self.waiting.pop(binding.uid)) for binding in decisions.bindings}
        self.changed |= {binding.node for binding in decisions.bindings}
        for key in sorted(started):
            self.left.setdefault(key, 1 + self.draws.below(STEPS_MAX))
        for eviction in decisions.evictions:
            self.take_back(eviction.gang)
        return sorted(started)

    def take_back(self, key: str) -> None:
        """End a gang and let its controller make its pods anew."""
        for held in list(self.allocations.by_gang.get(key, {}).values()):
            self.end(held)
            self.waiting[held.uid] = msgspec.structs.replace(held.placed("", ()), limit_s=None)
        self.left.pop(key, None)

    def end(self, held: PodView) -> None:
        self.allocations.remove(held.uid)
        self.changed.add(held.node_name)

    def pass_time(self) -> None:
        """A gang whose time is over ends whole, with those of its pods that still wait."""
        self.step += 1
        for key in sorted(self.left):
            self.left[key] -= 1
            if self.left[key] <= 0:
                del self.left[key]
                for held in list(self.allocations.by_gang.get(key, {}).values()):
                    self.end(held)
                self.waiting = {uid: found for uid, found in self.waiting.items() if gang_of(found) != key}

    def put(self, node: NodeView) -> None:
        """Take a node as it is now; gangs that hold a broken GPU of it start anew."""
        self.nodes[node.name] = node
        self.changed.add(node.name)
        for held in list(self.allocations.by_node.get(node.name, {}).values()):
            gpus = node.gpus
            if gpus is not None and gpus.mask_of(held.gpu_uuids) & ~gpus.healthy:
                self.take_back(gang_of(held))

    def lose(self, name: str) -> None:
        """A node is gone, and the gangs that had a pod there start anew."""
        for held in list(self.allocations.by_node.get(name, {}).values()):
            self.take_back(gang_of(held))
        del self.nodes[name]
        self.changed.add(name)

    def check(self) -> None:
        """Check that every gang that runs is there whole, and that no GPU has two owners."""
        for key, held in self.allocations.by_gang.items():
            least = self.groups[key].min_member if key in self.groups else 1
            assert len(held) >= least
        uuids = [uuid for held in self.allocations for uuid in held.gpu_uuids]
        assert len(uuids) == len(set(uuids))


def is_possible(on: list[NodeView], pods: list[PodView], found: Group | None) -> bool:
    """Return whether a gang starts on the nodes when nothing else is there."""
    groups = {found.key: found} if found else {}
    return bool(schedule(Snapshot(nodes=tuple(on)), pods, now=NOW, policy=POLICY, groups=groups).bindings)


def avoids_others(pods: list[PodView]) -> bool:
    """Return whether pods must be apart from others than those of their own job."""
    terms = {term for found in pods if found.relations for term in found.relations.apart}
    return any("job" not in dict(term.labels) for term in terms)


def arrivals(draws: Draws, prefix: str, most: int) -> Iterator[tuple[str, list[PodView], Group | None]]:
    for index in range(draws.below(most + 1)):
        name = f"{prefix}-{index}"
        if draws.rarely(3):
            yield f"team/{name}", [pod(name, draws.below(3), priority=draws.below(4))], None
            continue
        pods = gang_pods(draws, name)
        found = group(
            name,
            1 + draws.below(len(pods)),
            priority=draws.below(4),
            required_level=draws.one_of(["", "", "rack"]),
            limit_s=draws.one_of([None, STEPS_MAX * STEP.total_seconds()]),
        )
        yield found.key, pods, found


@many
@given(drawn(lambda draws: draws, 400))
def test_in_a_stream_of_arrivals_every_gang_that_can_run_runs(draws: Draws):
    """While one waits overdue, an older one starts at least as often as running gangs take to end.

    Not promised to a gang that must be apart from pods of others: room is kept for it, no neighbourhood; nor
    where others are of higher priority, which go first however long it has waited.
    """
    on = nodes(draws, 3)
    cluster = Cluster(draws, on)
    came: dict[str, tuple[int, str]] = {}
    made: dict[str, tuple[list[PodView], Group | None]] = {}
    progress: dict[str, int] = {}
    for step in range(9):
        for key, pods, found in arrivals(draws, f"g{step}", 3 if step < 5 else 1):
            created = format_time(NOW + step * STEP)
            found = msgspec.structs.replace(found, created=created, priority=0) if found else None
            pods = [msgspec.structs.replace(one, priority=0) for one in pods]
            cluster.add(pods, found)
            came[key], made[key] = (step, key), (pods, found)
        for key in cluster.run_pass():
            progress |= {other: step for other in came if came[other] > came[key]}
        cluster.check()
        for key in {gang_of(found) for found in cluster.waiting.values()} - cluster.left.keys():
            waits_for = step - max(progress.get(key, 0), came[key][0] + 1)
            is_late = waits_for > STEPS_MAX and not avoids_others(made[key][0])
            assert not is_late or not is_possible(on, *made[key])
        cluster.pass_time()


@many
@given(drawn(lambda draws: draws, 400))
def test_after_faults_every_gang_that_can_run_starts_in_the_end(draws: Draws):
    on = nodes(draws, 3)
    cluster = Cluster(draws, on)
    made: dict[str, tuple[list[PodView], Group | None]] = {}
    for step in range(4):
        for key, pods, found in arrivals(draws, f"g{step}", 2):
            cluster.add(pods, found)
            made[key] = (pods, found)
        for node in on:
            if draws.rarely(4) and node.name in cluster.nodes:
                cluster.lose(node.name)
            elif draws.rarely(3):
                cluster.put(_with_broken(node, draws.below(256)))
        cluster.run_pass()
        cluster.check()
        cluster.pass_time()
    for node in on:
        cluster.put(node)
    for _ in range(STEPS_MAX * (len(made) + 1) + 2):
        started = cluster.run_pass()
        cluster.check()
        if not (started or cluster.left or cluster.changed):
            break
        cluster.pass_time()
    for key in {gang_of(found) for found in cluster.waiting.values()}:
        assert not is_possible(on, *made[key])


def _with_broken(node: NodeView, broken: int) -> NodeView:
    if node.gpus is None:
        return node
    return msgspec.structs.replace(node, gpus=replace(node.gpus, healthy=node.gpus.healthy & ~broken))
