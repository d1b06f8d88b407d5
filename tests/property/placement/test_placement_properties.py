"""What holds for every snapshot: capacity, determinism, more nodes never hurt a pod."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from gangline.placement.amounts import add_amounts
from gangline.placement.schedule import schedule
from gangline.placement.snapshot import NodeView, PodView, Snapshot

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AMOUNTS = st.fixed_dictionaries(
    {"cpu": st.integers(0, 4000), "memory": st.integers(0, 64), "pods": st.integers(1, 4)},
    optional={"nvidia.com/gpu": st.integers(1, 8)},
)
REQUESTS = st.fixed_dictionaries(
    {"pods": st.just(1)},
    optional={
        "cpu": st.integers(1, 3000),
        "memory": st.integers(1, 40),
        "nvidia.com/gpu": st.integers(1, 4),
    },
)
SELECTORS = st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}])


@st.composite
def nodes(draw: st.DrawFn, *, max_size: int = 5) -> list[NodeView]:
    names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=max_size))
    return [
        NodeView(
            name=name,
            allocatable=draw(AMOUNTS),
            labels=draw(SELECTORS),
            unschedulable=draw(st.integers(0, 5)) == 0,
        )
        for name in names
    ]


@st.composite
def pods(draw: st.DrawFn, *, prefix: str, node_names: list[str] | None = None) -> list[PodView]:
    count = draw(st.integers(0, 10))
    result = []
    for index in range(count):
        request = draw(REQUESTS)
        selector = draw(SELECTORS)
        ports = frozenset({("TCP", 80)}) if draw(st.booleans()) else frozenset()
        result.append(
            PodView(
                key=f"ns/{prefix}{index}",
                uid=f"{prefix}{index}",
                job=draw(st.sampled_from(["", "ns/one", "ns/two"])),
                replica_type=draw(st.sampled_from(["worker", "launcher"])),
                request=request,
                host_ports=ports,
                node_selector=selector,
                node_name=draw(st.sampled_from(node_names)) if node_names else "",
                priority=draw(st.integers(0, 2)),
                shape=repr((sorted(request.items()), selector, sorted(ports))).encode(),
            )
        )
    return result


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    drawn = draw(nodes())
    names = [node.name for node in drawn]
    bound = draw(pods(prefix="bound", node_names=names)) if names else []
    return Snapshot(nodes=tuple(drawn), pods=tuple(bound))


@given(snapshots(), pods(prefix="new"))
def test_placement_never_adds_to_a_node_beyond_its_allocatable(snapshot: Snapshot, new: list[PodView]):
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


@given(snapshots(), pods(prefix="new"))
def test_every_pod_gets_exactly_one_answer(snapshot: Snapshot, new: list[PodView]):
    decisions = schedule(snapshot, new, now=NOW)

    answers = [entry.pod for entry in (*decisions.bindings, *decisions.unschedulable)]
    assert sorted(answers) == sorted(pod.key for pod in new)


@given(snapshots(), pods(prefix="new"), st.randoms(use_true_random=False))
def test_decisions_do_not_depend_on_the_order_of_the_input(snapshot: Snapshot, new: list[PodView], random):
    shuffled = random.sample(new, len(new))
    mixed = Snapshot(
        nodes=tuple(random.sample(snapshot.nodes, len(snapshot.nodes))),
        pods=tuple(random.sample(snapshot.pods, len(snapshot.pods))),
    )

    assert schedule(mixed, shuffled, now=NOW) == schedule(snapshot, new, now=NOW)


@given(snapshots(), pods(prefix="new"), AMOUNTS)
def test_another_node_never_makes_a_pod_unschedulable(snapshot: Snapshot, new: list[PodView], amounts):
    more = Snapshot(nodes=(*snapshot.nodes, NodeView(name="aa", allocatable=amounts)), pods=snapshot.pods)

    for pod in new:
        if schedule(snapshot, [pod], now=NOW).bindings:
            assert schedule(more, [pod], now=NOW).bindings


@given(snapshots(), pods(prefix="new"))
def test_the_shape_is_only_a_shortcut(snapshot: Snapshot, new: list[PodView]):
    import msgspec

    bare = [msgspec.structs.replace(pod, shape=b"") for pod in new]

    assert schedule(snapshot, bare, now=NOW).bindings == schedule(snapshot, new, now=NOW).bindings
