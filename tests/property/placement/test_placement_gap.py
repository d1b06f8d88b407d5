"""How far decisions are from an exact solver's, on small clusters; benchmarks/placement_gap.py has more."""

from exact_placement import Gap, gap, small_cluster

CASES = 60
ORDERED_MIN = 0.95
SPEED_MIN = 0.99
"""What decision 0003 promises on these clusters: together, not for each."""


def measured(*, gangs: int = 0) -> list[Gap]:
    return [gap(small_cluster(seed, gangs=gangs)) for seed in range(CASES)]


def test_one_gang_is_placed_when_it_can_be_and_on_the_fastest_gpus():
    for found in measured(gangs=1):
        assert found.gpus == found.exact_gpus
        assert found.speed >= 0.99 * found.exact_speed


def test_several_gangs_are_near_what_a_solver_reaches_in_the_same_order():
    cases = measured()
    gpus = sum(found.gpus for found in cases)

    assert gpus >= ORDERED_MIN * sum(found.ordered_gpus for found in cases)
    assert sum(found.speed * found.gpus for found in cases) >= SPEED_MIN * sum(
        found.exact_speed * found.gpus for found in cases
    )
