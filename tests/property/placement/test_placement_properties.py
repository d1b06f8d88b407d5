"""What holds for every snapshot: capacity, determinism, more nodes never hurt a pod."""

import msgspec
from drawn_scenes import GPU, Draws, drawn, many
from gang_scenes import NOW
from hypothesis import given

from gangline.placement.cycle import schedule
from gangline.placement.snapshot import NodeView, PodView, Snapshot
from gangline.workloads.requests import add_amounts

SELECTORS: list[dict[str, str]] = [{}, {}, {"zone": "a"}, {"zone": "b"}]
PodScene = tuple[Snapshot, list[PodView]]


def amounts(draws: Draws) -> dict[str, int]:
    found = {"cpu": draws.below(41) * 100, "memory": draws.below(65), "pods": 1 + draws.below(4)}
    return found | ({GPU: 1 + draws.below(8)} if draws.rarely(2) else {})


def nodes(draws: Draws) -> list[NodeView]:
    return [
        NodeView(
            name=name,
            allocatable=amounts(draws),
            labels=draws.one_of(SELECTORS),
            unschedulable=draws.rarely(6),
        )
        for name in draws.some("abcdefgh", 5)
    ]


def pods(draws: Draws, prefix: str, on: list[str] | None = None) -> list[PodView]:
    result = []
    for index in range(draws.below(11)):
        request = {"pods": 1}
        for name, most in (("cpu", 30), ("memory", 40), (GPU, 4)):
            if draws.rarely(2):
                request[name] = (1 + draws.below(most)) * (100 if name == "cpu" else 1)
        selector = draws.one_of(SELECTORS)
        ports = frozenset({("TCP", 80)}) if draws.rarely(2) else frozenset()
        result.append(
            PodView(
                key=f"ns/{prefix}{index}",
                uid=f"{prefix}{index}",
                job=draws.one_of(["", "ns/one", "ns/two"]),
                replica_type=draws.one_of(["worker", "launcher"]),
                request=request,
                host_ports=ports,
                node_selector=selector,
                node_name=draws.one_of(on) if on else "",
                priority=draws.below(3),
                shape=repr((sorted(request.items()), selector, sorted(ports))).encode(),
            )
        )
    return result


def scene(draws: Draws) -> PodScene:
    on = nodes(draws)
    names = [node.name for node in on]
    bound = pods(draws, "bound", names) if names else []
    return Snapshot(nodes=tuple(on), pods=tuple(bound)), pods(draws, "new")


scenes = drawn(scene, 240)


@many
@given(scenes)
def test_placement_never_adds_to_a_node_beyond_its_allocatable(scene: PodScene):
    snapshot, new = scene
    decisions = schedule(snapshot, new, now=NOW)

    by_key = {pod.key: pod for pod in new}
    for node in snapshot.nodes:
        placed = [by_key[binding.pod] for binding in decisions.bindings if binding.node == node.name]
        used = add_amounts(
            [p.request for p in (*placed, *(q for q in snapshot.pods if q.node_name == node.name))]
        )
        for name in add_amounts(pod.request for pod in placed):
            assert used[name] <= node.allocatable.get(name, 0)
        assert not (placed and node.unschedulable)
        assert sum(1 for pod in placed if pod.host_ports) <= 1


@many
@given(scenes)
def test_every_pod_gets_exactly_one_answer(scene: PodScene):
    snapshot, new = scene
    decisions = schedule(snapshot, new, now=NOW)

    answers = [entry.pod for entry in (*decisions.bindings, *decisions.unschedulable)]
    assert sorted(answers) == sorted(pod.key for pod in new)


@many
@given(drawn(lambda draws: (scene(draws), draws), 320))
def test_decisions_do_not_depend_on_the_order_of_the_input(drawn_scene: tuple[PodScene, Draws]):
    (snapshot, new), draws = drawn_scene
    mixed = Snapshot(nodes=tuple(draws.shuffled(snapshot.nodes)), pods=tuple(draws.shuffled(snapshot.pods)))

    assert schedule(mixed, draws.shuffled(new), now=NOW) == schedule(snapshot, new, now=NOW)


@many
@given(drawn(lambda draws: (amounts(draws), scene(draws)), 240))
def test_another_node_never_makes_a_pod_unschedulable(drawn_scene: tuple[dict[str, int], PodScene]):
    found, (snapshot, new) = drawn_scene
    more = Snapshot(nodes=(*snapshot.nodes, NodeView(name="aa", allocatable=found)), pods=snapshot.pods)

    for pod in new:
        if schedule(snapshot, [pod], now=NOW).bindings:
            assert schedule(more, [pod], now=NOW).bindings


@many
@given(scenes)
def test_the_shape_is_only_a_shortcut(scene: PodScene):
    snapshot, new = scene
    bare = [msgspec.structs.replace(pod, shape=b"") for pod in new]

    assert schedule(snapshot, bare, now=NOW).bindings == schedule(snapshot, new, now=NOW).bindings


@many
@given(drawn(lambda draws: (scene(draws), draws), 320))
def test_a_seed_decides_ties_and_nothing_else(drawn_scene: tuple[PodScene, Draws]):
    (snapshot, new), draws = drawn_scene
    seed = 1 + draws.below(250)
    mixed = Snapshot(nodes=tuple(draws.shuffled(snapshot.nodes)), pods=snapshot.pods)
    found = schedule(snapshot, new, now=NOW, seed=seed)

    assert found == schedule(mixed, draws.shuffled(new), now=NOW, seed=seed)
    for pod in new:
        alone, plain = (schedule(snapshot, [pod], now=NOW, seed=each) for each in (seed, 0))
        assert len(alone.bindings) == len(plain.bindings)
