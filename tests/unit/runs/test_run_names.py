"""Names of runs: the script's, then numbers; nothing that a run has is given again."""

from itertools import islice

import pytest

from gangline.cluster.runs.names import NAME_CHARS_MAX, names_after


@pytest.mark.parametrize(
    ("taken", "first"),
    [
        (set(), "train"),
        ({"other"}, "train"),
        ({"train"}, "train-2"),
        ({"train", "train-2"}, "train-3"),
        ({"train", "train-7"}, "train-8"),
        ({"train-2"}, "train-3"),
        ({"train-2-worker", "train-x", "train-02", "trainer-3"}, "train"),
    ],
)
def test_the_first_free_name_is_the_next_number(taken, first):
    assert next(names_after("train", taken)) == first


def test_further_names_follow_when_one_is_taken_meanwhile():
    assert list(islice(names_after("train", {"train"}), 3)) == ["train-2", "train-3", "train-4"]


def test_a_long_name_is_cut_for_its_number_and_still_counted():
    base = "a" * NAME_CHARS_MAX
    second = next(names_after(base, {base}))
    third = next(names_after(base, {base, second}))

    assert (len(second), len(third)) == (NAME_CHARS_MAX, NAME_CHARS_MAX)
    assert (second[-2:], third[-2:]) == ("-2", "-3")
