"""What holds for gangs on every cluster: whole or not at all, no GPU twice, never over capacity."""

from collections import Counter
from itertools import combinations

import msgspec
import pytest
from drawn_scenes import (
    GPU,
    LEVELS,
    POLICY,
    Draws,
    Scene,
    as_bound,
    bound,
    drawn,
    gang_of,
    gang_pods,
    gangs,
    idle,
    many,
    node,
    nodes,
    run,
    scene,
    scenes,
)
from gang_scenes import NOW, group
from hypothesis import example, given
from msgspec.structs import replace

from gangline.clock import format_time
from gangline.placement.affinity.terms import Relations, Term
from gangline.placement.allocations import Allocations
from gangline.placement.cycle import schedule
from gangline.placement.decisions import Decisions
from gangline.placement.gpu_tables import tables_of
from gangline.placement.groups.collect import collect_gangs
from gangline.placement.node_table import NodeTable
from gangline.placement.place import place
from gangline.placement.policy import Policy
from gangline.placement.preemption.by_priority import find_victims
from gangline.placement.reserve import release, retake
from gangline.placement.snapshot import NodeView, PodView, Snapshot
from gangline.topology.known import known_machine
from gangline.topology.rings import worth_gb_s

TWO_WANT_ONE_VICTIM = {
    0: 253,
    12: 1,
    18: 50,
    23: 224,
    33: 59,
    36: 149,
    45: 227,
    55: 1,
    65: 163,
    75: 3,
    82: 1,
    86: 2,
    93: 1,
    94: 1,
    97: 8,
    98: 2,
    107: 1,
    109: 1,
    127: 174,
    150: 56,
    185: 206,
    189: 7,
    193: 1,
    203: 1,
    204: 8,
    205: 1,
    206: 122,
    212: 1,
    216: 1,
}
"""Bytes of a scene, the others zero, in which one gang gave way to two."""


@many
@given(scenes)
@example(scene(Draws(bytes(TWO_WANT_ONE_VICTIM.get(place, 0) for place in range(320)))))
def test_a_pass_promises_nothing_twice_and_starts_gangs_whole(scene: Scene):
    """Checked on the same decisions: they are what costs time."""
    decisions = run(*scene)

    no_node_is_filled_beyond_any_of_its_resources_or_ports(scene, decisions)
    no_gpu_is_handed_out_twice_or_broken_or_elsewhere(scene, decisions)
    a_gang_starts_whole_or_not_at_all_and_every_pod_has_one_answer(scene, decisions)
    a_required_rack_and_a_quota_are_kept(scene, decisions)
    rules_about_neighbours_hold(scene, decisions)
    what_gives_way_is_needed(scene, decisions)


def no_node_is_filled_beyond_any_of_its_resources_or_ports(scene: Scene, decisions: Decisions) -> None:
    snapshot, waiting, _ = scene
    by_key = {found.key: found for found in waiting}
    for where in snapshot.nodes:
        there = [found for found in snapshot.pods if found.node_name == where.name]
        new = [by_key[binding.pod] for binding in decisions.bindings if binding.node == where.name]
        used: Counter[str] = Counter()
        for found in (*there, *new):
            used.update(found.request)
        for name in {name for found in new for name in found.request}:
            assert used[name] <= where.allocatable.get(name, 0)
        ports = [port for found in new for port in found.host_ports]
        assert len(ports) == len(set(ports))
        assert not {port for found in there for port in found.host_ports} & set(ports)
        assert not (new and where.unschedulable)


def no_gpu_is_handed_out_twice_or_broken_or_elsewhere(scene: Scene, decisions: Decisions) -> None:
    snapshot, waiting, _ = scene
    requests = {found.key: found.request.get(GPU, 0) for found in waiting}
    views = {where.name: where for where in snapshot.nodes}
    given_out = Counter(uuid for found in snapshot.pods for uuid in found.gpu_uuids)
    by_count = Counter(f.node_name for f in snapshot.pods for _ in range(f.request.get(GPU, 0)))
    for binding in decisions.bindings:
        gpus = views[binding.node].gpus
        uuids = [uuid for _, found in binding.gpus for uuid in found]
        given_out.update(uuids)
        by_count[binding.node] += requests[binding.pod]
        assert len(uuids) == (requests[binding.pod] if gpus else 0)
        assert gpus is None or set(uuids) <= set(gpus.uuids_of(gpus.healthy))
        if uuids and gpus:
            assert [gpus.uuids[gpus.indices.index(index)] for index in binding.indices] == uuids
            assert set(binding.indices) <= set(binding.visible)
    assert max(given_out.values(), default=0) <= 1
    assert all(count <= views[name].allocatable.get(GPU, 0) for name, count in by_count.items())


def a_gang_starts_whole_or_not_at_all_and_every_pod_has_one_answer(
    scene: Scene, decisions: Decisions
) -> None:
    snapshot, waiting, groups = scene
    bindings = {binding.pod for binding in decisions.bindings}
    placed = Counter(found.gang for found in waiting if found.key in bindings)
    there = Counter(found.gang for found in snapshot.pods)
    for key, count in placed.items():
        if key:
            assert count + there[key] >= groups[key].min_member
    answered = Counter([*(b.pod for b in decisions.bindings), *(u.pod for u in decisions.unschedulable)])
    assert answered == Counter(found.key for found in waiting)


def a_required_rack_and_a_quota_are_kept(scene: Scene, decisions: Decisions) -> None:
    snapshot, waiting, groups = scene
    racks = {where.name: where.labels.get("rack") for where in snapshot.nodes}
    by_key = {found.key: found for found in waiting}
    for key, found in groups.items():
        mine = [b for b in decisions.bindings if by_key[b.pod].gang == key]
        if found.required_level and mine:
            used = {racks[binding.node] for binding in mine}
            assert len(used) == 1
            assert None not in used
    in_q = sum(
        by_key[b.pod].request.get(GPU, 0)
        for b in decisions.bindings
        if (key := by_key[b.pod].gang) and groups[key].queue == "q"
    )
    assert in_q <= POLICY.queues["q"].capability[GPU]


def rules_about_neighbours_hold(scene: Scene, decisions: Decisions) -> None:
    """Checked pod by pod from the definitions: what a rule says holds among all that run afterwards.

    Nearness is asked of those that run when a gang is placed, of its own pods and of those placed before it.
    """
    snapshot, waiting, _ = scene
    labels = {where.name: where.labels for where in snapshot.nodes}
    new = as_bound(waiting, decisions)
    after = [*snapshot.pods, *new]
    placed_with = {gang_of(found): count for count, found in enumerate(new, start=1)}

    def count(term: Term, domain: str | None, but: PodView) -> int:
        return sum(
            term.matches(other.namespace, other.labels) and labels[other.node_name].get(term.key) == domain
            for other in [*snapshot.pods, *new[: placed_with[gang_of(but)]]]
            if other is not but
        )

    for found in after:
        asked = found.relations or Relations()
        is_new = any(found is other for other in new)
        for term in asked.apart:
            domain = labels[found.node_name].get(term.key)
            rest = new if not is_new else after
            assert domain is None or not any(
                term.matches(other.namespace, other.labels)
                and labels[other.node_name].get(term.key) == domain
                for other in rest
                if other is not found
            )
        if not is_new:
            continue
        for term in asked.near:
            domain = labels[found.node_name].get(term.key)
            own = term.matches(found.namespace, found.labels)
            elsewhere = sum(
                count(term, some, found) for some in {at.get(term.key) for at in labels.values()} - {None}
            )
            assert domain is not None
            assert count(term, domain, found) or (own and not elsewhere)
        for spread in asked.even:
            domain = labels[found.node_name].get(spread.term.key)
            assert domain is not None


def what_gives_way_is_needed(scene: Scene, decisions: Decisions) -> None:
    """No gang that gives way could be spared.

    Pods that must be near others may gain neighbours in the same pass: then this is asked of a moment of it.
    """
    snapshot, waiting, groups = scene
    assert len({entry.gang for entry in decisions.evictions}) == len(decisions.evictions)
    placed = {binding.pod for binding in decisions.bindings}
    new = as_bound(waiting, decisions)
    calm = Policy(levels=LEVELS, may_preempt=False)
    for wanted in {entry.beneficiary for entry in decisions.evictions}:
        mine = {entry.gang: set(entry.uids) for entry in decisions.evictions if entry.beneficiary == wanted}
        rest = [found for found in waiting if gang_of(found) == wanted and found.key not in placed]
        gains = any(found.relations and found.relations.near for found in rest)
        moments = range(0 if gains else len(new), len(new) + 1)
        for spared in mine:
            gone = set().union(*(uids for key, uids in mine.items() if key != spared))
            left = [found for found in snapshot.pods if found.uid not in gone]
            states = (Snapshot(nodes=snapshot.nodes, pods=(*left, *new[:count])) for count in moments)
            later = (schedule(state, rest, now=NOW, policy=calm, groups=groups) for state in states)
            assert any(not found.bindings for found in later)


@many
@given(drawn(lambda draws: (scene_and_order(draws))))
def test_the_same_cluster_gets_the_same_answer(scenes: tuple[Scene, Scene]):
    first, mixed = scenes

    assert run(*mixed) == run(*first)


def scene_and_order(draws: Draws) -> tuple[Scene, Scene]:
    on = nodes(draws)
    running = bound(draws, on)
    waiting, groups = gangs(draws)
    mixed = Snapshot(nodes=tuple(draws.shuffled(on)), pods=tuple(draws.shuffled(running)))
    first = Snapshot(nodes=tuple(on), pods=tuple(running))
    return (first, waiting, groups), (mixed, draws.shuffled(waiting), groups)


def idle_and_one_more(draws: Draws) -> tuple[list[NodeView], NodeView, list[PodView], str]:
    more = node(draws, draws.one_of(["z", "0", "bb"]))
    on = idle(draws)
    return on, more, gang_pods(draws, "g", may_spread=False), draws.one_of(["", "", "rack"])


@many
@given(drawn(idle_and_one_more, 120))
def test_another_node_never_keeps_an_idle_cluster_from_starting_a_gang(scene):
    """But for spread: by definition a new domain, be it full, raises what the others must leave to it."""
    on, more, waiting, level = scene
    groups = {"team/g": group("g", len(waiting), required_level=level)}

    if run(Snapshot(nodes=tuple(on)), waiting, groups).bindings:
        assert len(run(Snapshot(nodes=(*on, more)), waiting, groups).bindings) == len(waiting)


def contest(draws: Draws) -> Scene:
    """A scene in which something is likely to give way: full nodes, one gang of high priority."""
    on = nodes(draws)
    running = bound(draws, on)
    waiting = gang_pods(draws, "g")
    found = group(
        "g", len(waiting), priority=1 + draws.below(4), required_level=draws.one_of(["", "", "rack"])
    )
    return Snapshot(nodes=tuple(on), pods=tuple(running)), waiting, {found.key: found}


@many
@given(drawn(contest, 240))
def test_victims_are_enough_and_none_could_have_been_spared(scene: Scene):
    snapshot, waiting, groups = scene
    table = NodeTable.of(snapshot.nodes, snapshot.pods, LEVELS)
    allocations = Allocations(snapshot.pods, groups)
    gang = collect_gangs(waiting, groups, lambda key: 0)[0]

    def fits_without(gone: list[str]) -> bool:
        room = table.room.copy()
        release(table, room, [pod for key in gone for pod in allocations.by_gang[key].values()])
        return place(table, room, gang) is not None

    if fits_without([]):
        return
    victims = find_victims(table, allocations, gang, POLICY, NOW)
    assert not victims or fits_without(victims)
    for spared in victims:
        assert not fits_without([key for key in victims if key != spared])
    assert all(
        allocations.priority_of(pod) < gang.priority
        for key in victims
        for pod in allocations.by_gang[key].values()
    )


@many
@given(scenes)
def test_when_all_that_runs_is_given_back_the_cluster_is_idle(scene: Scene):
    snapshot, _, _ = scene
    table = NodeTable.of(snapshot.nodes, snapshot.pods, LEVELS)
    room = table.room.copy()
    release(table, room, snapshot.pods)

    assert (room.free == table.idle().free).all()
    assert (room.gpus == table.idle().gpus).all()
    assert not any(room.ports.values())


@many
@given(scenes)
def test_room_that_is_given_back_and_taken_again_is_as_it_was(scene: Scene):
    snapshot, _, _ = scene
    table = NodeTable.of(snapshot.nodes, snapshot.pods, LEVELS)
    room = table.room.copy()
    release(table, room, snapshot.pods)
    retake(table, room, snapshot.pods)

    assert (room.free == table.room.free).all()
    assert (room.gpus == table.room.gpus).all()
    assert {row: ports for row, ports in room.ports.items() if ports} == {
        row: ports for row, ports in table.room.ports.items() if ports
    }
    assert room.gone == table.room.gone


@pytest.mark.parametrize("count", range(1, 9))
def test_the_choice_on_a_dgx_1_is_within_one_percent_of_the_best_there_is(count: int):
    machine = known_machine("dgx1-v100")
    tables = tables_of(machine, True)
    for free in range(256):
        chosen = tables.choose(free, count)
        indices = [index for index in range(8) if free >> index & 1]
        if len(indices) < count:
            assert chosen == 0
            continue
        assert chosen & ~free == 0
        assert chosen.bit_count() == count
        if count > 1:
            best = max(
                worth_gb_s(machine, sum(1 << index for index in found))
                for found in combinations(indices, count)
            )
            assert worth_gb_s(machine, chosen) >= 0.99 * best


def preferring(draws: Draws) -> tuple[Snapshot, list[PodView], list[PodView]]:
    """A snapshot, a gang without rules about neighbours, and the same gang with a preference."""
    on = nodes(draws)
    running = bound(draws, on)
    plain = [msgspec.structs.replace(pod, relations=None) for pod in gang_pods(draws, "g0")]
    rack = {"key": "rack", "operator": "In", "values": ["A2"]}
    preferences = ((1 + draws.below(3), {"matchExpressions": [rack]}),)
    fussy = [
        msgspec.structs.replace(pod, node_preferences=preferences, shape=pod.shape + b"fussy")
        for pod in plain
    ]
    return Snapshot(nodes=tuple(on), pods=tuple(running)), plain, fussy


@many
@given(drawn(preferring))
def test_what_a_gang_prefers_never_decides_whether_it_fits(
    scene: tuple[Snapshot, list[PodView], list[PodView]],
):
    snapshot, plain, fussy = scene
    groups = {"team/g0": group("g0", len(plain))}

    assert len(run(snapshot, fussy, groups).bindings) == len(run(snapshot, plain, groups).bindings)


@many
@given(drawn(lambda draws: (idle(draws), gang_pods(draws, "g", may_spread=False))))
def test_on_an_idle_cluster_no_gang_waits_to_lie_closer(scene):
    on, waiting = scene
    groups = {"team/g": group("g", len(waiting), created=format_time(NOW))}
    at_once, patient = (
        schedule(Snapshot(nodes=tuple(on)), waiting, now=NOW, policy=policy, groups=groups)
        for policy in (POLICY, replace(POLICY, whole_for_s=3600.0))
    )

    assert patient == at_once


@many
@given(scenes)
def test_a_gang_that_waits_to_lie_closer_takes_nobodys_life_and_starts_when_its_time_is_over(scene: Scene):
    snapshot, waiting, groups = scene
    alone = next((found.gang for found in waiting if found.gang), "")
    mine = [found for found in waiting if found.gang == alone and alone]
    patient = replace(POLICY, whole_for_s=3600.0, overdue_after_s=1e9)
    young = {key: replace(one, created=format_time(NOW)) for key, one in groups.items()}

    found = schedule(snapshot, mine, now=NOW, policy=patient, groups=young)
    then = schedule(snapshot, mine, now=NOW, policy=POLICY, groups=young)

    if any(wait.reason == "Cut" for wait in found.waits):
        assert not found.evictions
        assert len({binding.node for binding in then.bindings}) > 1
    elif not then.evictions:
        assert found == then
