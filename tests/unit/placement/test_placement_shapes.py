"""Gangs of pods of several shapes: the one with most GPUs is placed first, then the one with most pods."""

import pytest
from gang_scenes import decide, dgx, group, held, pod

from gangline.topology import choices, known_machine, mask_of


def nodes_of(decisions):
    return {binding.pod.removeprefix("team/"): binding.node for binding in decisions.bindings}


@pytest.mark.parametrize("small_first", [True, False])
def test_a_gang_stays_on_one_node_though_its_small_pod_would_fit_a_fuller_one(small_first):
    """Were the small pod placed first, it would go to the fuller node, and the gang lie on two."""
    pods = [pod("small", 1, gang="g"), pod("large", 4, gang="g")]
    pods = pods if small_first else pods[::-1]
    taken = held("x", "a", 0, 1, 2, 3, 4, 5)

    decisions = decide([dgx("a"), dgx("b")], pods, group("g", 2), bound=[taken])

    assert nodes_of(decisions) == {"small": "b", "large": "b"}


def test_of_shapes_with_as_many_gpus_the_larger_group_is_first():
    """The single pod differs by its cpu; alone it would go to the fuller node."""
    single = pod("single", 1, gang="g", request={"cpu": 2000})
    three = [pod(f"worker-{index}", 1, gang="g") for index in range(3)]
    taken = [held("x", "a", *range(6))]

    decisions = decide([dgx("a"), dgx("b")], [single, *three], group("g", 4), bound=taken)

    assert set(nodes_of(decisions).values()) == {"b"}
    assert len(decisions.bindings) == 4


def test_the_pod_with_most_gpus_gets_the_fastest_ones():
    machine, taken = known_machine("dgx1-v100"), held("x", "a", 5)
    best = choices(machine).best(0b1101_1111, 4)

    decisions = decide(
        [dgx("a")], [pod("pair", 2, gang="g"), pod("quad", 4, gang="g")], group("g", 2), bound=[taken]
    )

    chosen = {binding.pod: mask_of(binding.indices) for binding in decisions.bindings}
    assert chosen["team/quad"] == best
    assert chosen["team/pair"] & (best | 1 << 5) == 0
