"""Which runs go: the oldest first, by age, number and size; never those that are still there."""

import pytest

from gangline.cluster.runs.bounds import RUNS_AGE_MAX_S, RUNS_BYTES_MAX, Bounds, RunSize, choose_expired
from gangline.errors import UserError

NOW_S = 1_000_000.0


def runs(*ages_and_sizes):
    return [RunSize(f"r{index}", NOW_S - age_s, size) for index, (age_s, size) in enumerate(ages_and_sizes)]


@pytest.mark.parametrize(
    ("bounds", "living", "expired"),
    [
        (Bounds(), set(), []),
        (Bounds(age_max_s=25), set(), ["r2"]),
        (Bounds(age_max_s=25), {"r2"}, []),
        (Bounds(bytes_max=250), set(), ["r2"]),
        (Bounds(bytes_max=150), set(), ["r2", "r1"]),
        (Bounds(bytes_max=250), {"r2"}, []),
        (Bounds(bytes_max=0), set(), ["r2", "r1", "r0"]),
        (Bounds(runs_max=1), set(), ["r2", "r1"]),
    ],
)
def test_the_oldest_runs_beyond_a_bound_go_first(bounds, living, expired):
    found = runs((10, 100), (20, 100), (30, 100))
    assert choose_expired(found, bounds, living=living, now_s=NOW_S) == expired


def test_variables_of_the_user_set_the_bounds():
    assert Bounds.of({}) == Bounds(RUNS_AGE_MAX_S, RUNS_BYTES_MAX)
    found = Bounds.of({"GANGLINE_RUNS_AGE": "7d", "GANGLINE_RUNS_SIZE": "2Gi"})
    assert (found.age_max_s, found.bytes_max) == (7 * 86400.0, 2 << 30)


@pytest.mark.parametrize(
    ("name", "value"),
    [("GANGLINE_RUNS_AGE", "7 days"), ("GANGLINE_RUNS_AGE", "-1d"), ("GANGLINE_RUNS_SIZE", "much"),
     ("GANGLINE_RUNS_SIZE", "-1Gi")],
)  # fmt: skip
def test_a_variable_that_says_nothing_is_refused_by_its_name(name, value):
    with pytest.raises(UserError, match=f"{name}"):
        Bounds.of({name: value})
