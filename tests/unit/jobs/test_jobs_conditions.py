"""The list of a job's conditions: the column STATE shows the last one's type, so that one must hold."""

import pytest

from gangline.api.core import Condition
from gangline.jobs.conditions import true_last


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], []),
        ([("Created", "True"), ("Running", "True")], ["Created", "Running"]),
        (
            [("Created", "True"), ("Running", "False"), ("Suspended", "True")],
            ["Created", "Running", "Suspended"],
        ),
        ([("Created", "True"), ("Suspended", "False")], ["Suspended", "Created"]),
        (
            [("Created", "True"), ("Succeeded", "True"), ("Running", "False")],
            ["Created", "Running", "Succeeded"],
        ),
        ([("Running", "False")], ["Running"]),
    ],
)
def test_the_last_condition_is_one_that_holds(before, after):
    conditions = [Condition(type=type_, status=status) for type_, status in before]

    assert [condition.type for condition in true_last(conditions)] == after
