"""Ranks, nodes and GPUs in the words of mpirun, torchrun and Horovod; what is ambiguous is refused."""

import pytest

from gangline.cli.options.ranks import gpus_of_each, places_of_hosts, ranks_and_nodes
from gangline.errors import UserError
from gangline.launch.hosts import parse_hosts


@pytest.mark.parametrize(
    ("ranks", "per_node", "nodes", "expected"),
    [
        (None, None, None, (1, 1)),
        (4, None, None, (4, 1)),
        (4, None, 2, (4, 2)),
        (0, None, None, (0, 1)),  # refused later, by its own rule
        (None, 4, None, (4, 1)),
        (None, 4, 2, (8, 2)),
        (8, 4, None, (8, 2)),
        (8, 4, 2, (8, 2)),
    ],
)
def test_ranks_on_nodes(ranks, per_node, nodes, expected):
    assert ranks_and_nodes(ranks, per_node, nodes) == expected


@pytest.mark.parametrize(("ranks", "nodes"), [(7, None), (2, None), (4, 2)])
def test_numbers_that_contradict_each_other_are_refused(ranks, nodes):
    with pytest.raises(UserError, match=f"-n {ranks} contradicts --nproc-per-node 4"):
        ranks_and_nodes(ranks, 4, nodes)


@pytest.mark.parametrize(
    ("hosts", "ranks", "per_node", "slots", "count"),
    [
        ("a:4,b:4", None, None, [4, 4], None),
        ("a,b", None, 4, [4, 4], 8),
        ("a:8,b:8", None, 4, [4, 4], 8),
        ("a,b", 8, 4, [4, 4], 8),
    ],
)
def test_hosts_take_the_ranks_of_a_node(hosts, ranks, per_node, slots, count):
    found, total = places_of_hosts(parse_hosts(hosts), ranks, per_node)
    assert ([host.slots for host in found], total) == (slots, count)


def test_a_host_with_fewer_slots_is_named():
    with pytest.raises(UserError, match="host `b` has 2 slots"):
        places_of_hosts(parse_hosts("a:4,b:2"), None, 4)


@pytest.mark.parametrize(
    ("gpus", "per_rank", "ranks", "nodes", "each"),
    [
        (None, None, 4, 1, 0),
        (None, 2, 4, 2, 2),
        (4, None, 4, 1, 1),
        (8, None, 4, 1, 2),
        (4, None, 1, 1, 4),
        (1, None, None, 1, 1),
    ],
)
def test_gpus_are_shared_evenly(gpus, per_rank, ranks, nodes, each):
    assert gpus_of_each(gpus, per_rank, ranks, nodes) == each


@pytest.mark.parametrize(
    ("gpus", "per_rank", "ranks", "nodes", "words", "way_on"),
    [
        (4, 1, 4, 1, "exclude each other", "leave one"),
        (0, None, 4, 1, "at least 1", ""),
        (4, None, 4, 2, "all GPUs or those of each node", "--gpus-per-rank 1"),
        (4, None, None, 1, "one rank with 4 GPUs or 4 ranks with one each", "-n 4 --gpus 4"),
        (3, None, 2, 1, "cannot be shared evenly by 2 ranks", "-n 3"),
        (1, None, 2, 1, "cannot be shared evenly by 2 ranks", "--gpus-per-rank K"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused_with_both(gpus, per_rank, ranks, nodes, words, way_on):
    with pytest.raises(UserError, match=words) as told:
        gpus_of_each(gpus, per_rank, ranks, nodes)
    assert way_on in told.value.hint
