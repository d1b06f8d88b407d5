"""Gangs of several shapes beside an exact solver: whether they fit, and what is taken."""

from drawn_scenes import drawn, many
from exact_placement import MixedCluster, fits_exactly, mixed_cluster
from hypothesis import given

from gangline.placement.gangs import Gang
from gangline.placement.node_table import NodeTable
from gangline.placement.place import place
from gangline.workloads.requests import add_amounts

clusters = drawn(lambda draws: mixed_cluster(draws.below), 64)


@many
@given(clusters)
def test_a_gang_of_several_shapes_is_placed_exactly_where_a_solver_places_it(found: MixedCluster):
    nodes, bound, pods = found
    table = NodeTable.of(nodes, bound)
    spots = place(table, table.room, Gang("team/g", pods))

    assert (spots is not None) == fits_exactly(nodes, bound, pods)
    if spots is None:
        return
    assert sorted(spot.pod.key for spot in spots) == sorted(pod.key for pod in pods)
    for row, node in enumerate(table.views):
        here = [spot for spot in spots if spot.node == row]
        used = add_amounts(
            [*(spot.pod.request for spot in here), *(p.request for p in bound if p.node_name == node.name)]
        )
        assert all(used[name] <= node.allocatable.get(name, 0) for name in used)
        taken = [gpu for spot in here for gpu in spot.gpus]
        assert len(set(taken)) == len(taken)
        assert all(int(table.room.gpus[row]) >> gpu & 1 for gpu in taken)
        assert sum(bool(spot.pod.host_ports) for spot in here) <= 1
