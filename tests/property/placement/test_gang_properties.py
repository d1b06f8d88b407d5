"""What holds for gangs on every cluster: whole or not at all, no GPU twice, never over capacity."""

import os
from collections import Counter
from datetime import timedelta
from itertools import combinations

import pytest
from gang_scenes import NOW, dgx, group, held, pod
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangline.clock import format_time
from gangline.placement.decisions import Decisions
from gangline.placement.gangs import Group
from gangline.placement.gpu_tables import tables_of
from gangline.placement.policy import Policy, Queue
from gangline.placement.schedule import schedule
from gangline.placement.snapshot import NodeView, PodView, Snapshot
from gangline.topology.known import known_machine
from gangline.topology.rings import bus_gb_s

CASES = int(os.environ.get("GANGLINE_PROPERTY_CASES", "100"))
"""``make test-properties`` sets more."""

many = settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))

LEVELS = ("block", "rack")
GPU = "nvidia.com/gpu"


@st.composite
def nodes(draw: st.DrawFn) -> list[NodeView]:
    found = []
    for name in draw(st.lists(st.sampled_from("abcdef"), unique=True, min_size=1, max_size=4)):
        unhealthy = draw(st.sets(st.integers(0, 7), max_size=2))
        rack = draw(st.sampled_from(["A1", "A2", "B1"]))
        wires = draw(st.booleans())
        found.append(dgx(name, wires=wires, unhealthy=sorted(unhealthy), block=rack[0], rack=rack))
    return found


@st.composite
def bound(draw: st.DrawFn, on: list[NodeView]) -> list[PodView]:
    found = []
    for node in on:
        free = list(range(8))
        for index in range(draw(st.integers(0, 4))):
            taken = draw(st.lists(st.sampled_from(free), unique=True, min_size=1, max_size=4)) if free else []
            if taken:
                free = [gpu for gpu in free if gpu not in taken]
                name = f"held-{node.name}-{index}"
                found.append(
                    held(
                        name,
                        node.name,
                        *taken,
                        priority=draw(st.integers(0, 3)),
                        started=format_time(NOW - timedelta(minutes=draw(st.integers(0, 90)))),
                        limit_s=draw(st.sampled_from([None, 3600, 7200])),
                        gang=draw(st.sampled_from(["", "r1", "r2"])),
                    )
                )
    return found


@st.composite
def gangs(draw: st.DrawFn) -> tuple[list[PodView], dict[str, Group]]:
    waiting: list[PodView] = []
    groups: dict[str, Group] = {}
    for index in range(draw(st.integers(1, 5))):
        name = f"g{index}"
        size, gpus = draw(st.integers(1, 10)), draw(st.sampled_from([0, 1, 1, 2, 4, 8]))
        waiting += [pod(f"{name}-worker-{rank}", gpus, gang=name) for rank in range(size)]
        if draw(st.booleans()):
            waiting.append(pod(f"{name}-launcher", 0, gang=name))
        members = sum(1 for found in waiting if found.gang == f"team/{name}")
        found = group(
            name,
            draw(st.integers(1, members + 1)),
            priority=draw(st.integers(0, 3)),
            queue=draw(st.sampled_from(["", "q", "strict"])),
            required_level=draw(st.sampled_from(["", "", "rack"])),
            limit_s=draw(st.sampled_from([None, 600.0, 1e5])),
            created=format_time(NOW - timedelta(minutes=draw(st.integers(0, 60)))),
        )
        groups[found.key] = found
    waiting += [pod(f"single-{index}", draw(st.integers(0, 2))) for index in range(draw(st.integers(0, 3)))]
    return waiting, groups


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Snapshot, list[PodView], dict[str, Group]]:
    on = draw(nodes())
    waiting, groups = draw(gangs())
    return Snapshot(nodes=tuple(on), pods=tuple(draw(bound(on)))), waiting, groups


POLICY = Policy(
    levels=LEVELS,
    queues={"q": Queue(name="q", capability={GPU: 12}), "strict": Queue(name="strict", is_strict=True)},
)


def run(snapshot: Snapshot, waiting: list[PodView], groups: dict[str, Group]) -> Decisions:
    return schedule(snapshot, waiting, now=NOW, policy=POLICY, groups=groups)


@many
@given(scenes())
def test_nodes_and_gpus_are_never_promised_twice(scene):
    snapshot, waiting, groups = scene
    decisions = run(*scene)

    requests = {found.key: found.request for found in waiting}
    used: dict[str, Counter[str]] = {node.name: Counter() for node in snapshot.nodes}
    given_out: Counter[str] = Counter(uuid for found in snapshot.pods for uuid in found.gpu_uuids)
    for found in snapshot.pods:
        used[found.node_name].update(found.request)
    for binding in decisions.bindings:
        used[binding.node].update(requests[binding.pod])
        uuids = [uuid for _, found in binding.gpus for uuid in found]
        given_out.update(uuids)
        assert len(uuids) == requests[binding.pod].get(GPU, 0)
        assert all(uuid.startswith(f"{binding.node}-") for uuid in uuids)
    for node in snapshot.nodes:
        assert node.gpus is not None
        sick = {uuid for bit, uuid in enumerate(node.gpus.uuids) if not node.gpus.healthy >> bit & 1}
        new = {u for b in decisions.bindings if b.node == node.name for _, found in b.gpus for u in found}
        assert not sick & new
        assert all(used[node.name][name] <= amount for name, amount in node.allocatable.items())
    assert max(given_out.values(), default=0) <= 1


@many
@given(scenes())
def test_a_gang_starts_whole_or_not_at_all(scene):
    snapshot, waiting, groups = scene
    decisions = run(*scene)

    placed = Counter(found.gang for found in waiting if found.key in {b.pod for b in decisions.bindings})
    there = Counter(found.gang for found in snapshot.pods)
    for key, count in placed.items():
        if key:
            assert count + there[key] >= groups[key].min_member
    answered = Counter([*(b.pod for b in decisions.bindings), *(u.pod for u in decisions.unschedulable)])
    assert answered == Counter(found.key for found in waiting)


@many
@given(scenes())
def test_a_required_rack_and_a_quota_are_kept(scene):
    snapshot, waiting, groups = scene
    decisions = run(*scene)

    racks = {node.name: node.labels["rack"] for node in snapshot.nodes}
    by_key = {found.key: found for found in waiting}
    for key, found in groups.items():
        mine = [b for b in decisions.bindings if by_key[b.pod].gang == key]
        first = mine[: found.min_member]
        if found.required_level and len(mine) == found.min_member:
            assert len({racks[binding.node] for binding in first}) <= 1
    in_q = sum(
        by_key[b.pod].request.get(GPU, 0)
        for b in decisions.bindings
        if (key := by_key[b.pod].gang) and groups[key].queue == "q"
    )
    assert in_q <= 12


@many
@given(scenes(), st.randoms(use_true_random=False))
def test_the_same_cluster_gets_the_same_answer(scene, random):
    snapshot, waiting, groups = scene
    mixed = Snapshot(
        nodes=tuple(random.sample(snapshot.nodes, len(snapshot.nodes))),
        pods=tuple(random.sample(snapshot.pods, len(snapshot.pods))),
    )

    assert run(mixed, random.sample(waiting, len(waiting)), groups) == run(*scene)


@many
@given(nodes(), st.integers(1, 20), st.sampled_from([1, 2, 4, 8]), st.booleans())
def test_another_node_never_keeps_an_idle_cluster_from_starting_a_gang(on, size, gpus, in_rack):
    waiting = [pod(f"g-{rank}", gpus, gang="g") for rank in range(size)]
    groups = {"team/g": group("g", size, required_level="rack" if in_rack else "")}
    more = [*on, dgx("z", block="B", rack="B1")]

    if run(Snapshot(nodes=tuple(on)), waiting, groups).bindings:
        assert run(Snapshot(nodes=tuple(more)), waiting, groups).bindings


@many
@given(scenes())
def test_no_victim_could_have_been_spared(scene):
    snapshot, waiting, groups = scene
    decisions = run(*scene)

    victims = {entry.gang for entry in decisions.evictions}
    beneficiaries = {entry.beneficiary for entry in decisions.evictions}
    for wanted in beneficiaries:
        mine = {entry.gang: set(entry.uids) for entry in decisions.evictions if entry.beneficiary == wanted}
        for spared in mine:
            gone = set().union(*(uids for key, uids in mine.items() if key != spared))
            left = tuple(found for found in snapshot.pods if found.uid not in gone)
            placed = {b.pod for b in decisions.bindings}
            after = [*left, *_as_bound(waiting, decisions)]
            rest = [f for f in waiting if (f.gang or f.key) == wanted and f.key not in placed]
            calm = Policy(levels=LEVELS, may_preempt=False)
            again = schedule(
                Snapshot(nodes=snapshot.nodes, pods=tuple(after)), rest, now=NOW, policy=calm, groups=groups
            )
            assert again.bindings == ()
    assert len(victims) == len(decisions.evictions)


def _as_bound(waiting: list[PodView], decisions: Decisions) -> list[PodView]:
    by_key = {found.key: found for found in waiting}
    return [
        by_key[b.pod].placed(b.node, tuple(u for _, found in b.gpus for u in found))
        for b in decisions.bindings
    ]


@many
@given(st.data())
def test_every_gang_that_fits_an_empty_cluster_starts_in_the_end(data):
    """Random arrivals; running gangs end one after another; nothing new comes: nothing may wait for ever."""
    on = data.draw(nodes())
    waiting, groups = data.draw(gangs())
    calm = Policy(levels=LEVELS, overdue_after_s=600)
    moment, running = NOW, tuple(data.draw(bound(on)))
    possible = {
        found.key
        for key in {f.gang or f.key for f in waiting}
        for found in _of(waiting, key)
        if schedule(
            Snapshot(nodes=tuple(on)), _of(waiting, key), now=NOW, policy=calm, groups=groups
        ).bindings
    }
    started: set[str] = set()
    for _ in range(60):
        was_idle = not running
        decisions = schedule(
            Snapshot(nodes=tuple(on), pods=running), waiting, now=moment, policy=calm, groups=groups
        )
        new = _as_bound(waiting, decisions)
        started |= {found.key for found in new}
        waiting = [found for found in waiting if found.key not in started]
        evicted = {uid for entry in decisions.evictions for uid in entry.uids}
        running = tuple(found for found in [*running[1:], *new] if found.uid not in evicted)
        moment += timedelta(minutes=30)
        if was_idle and not new:
            break
    assert {_gang(key) for key in possible} <= {_gang(key) for key in started}


def _of(waiting: list[PodView], key: str) -> list[PodView]:
    return [found for found in waiting if (found.gang or found.key) == key]


def _gang(key: str) -> str:
    return key.partition("-worker-")[0].partition("-launcher")[0]


@pytest.mark.parametrize("count", range(1, 9))
def test_the_choice_on_a_dgx_1_is_within_one_percent_of_the_best_there_is(count: int):
    machine = known_machine("dgx1-v100")
    tables = tables_of(machine, True)
    for free in range(1, 256):
        chosen = tables.choose(free, count)
        indices = [index for index in range(8) if free >> index & 1]
        if len(indices) < count:
            assert chosen == 0
            continue
        assert chosen & ~free == 0
        assert chosen.bit_count() == count
        if count > 1:
            best = max(
                bus_gb_s(machine, sum(1 << index for index in found))
                for found in combinations(indices, count)
            )
            assert bus_gb_s(machine, chosen) >= 0.99 * best
