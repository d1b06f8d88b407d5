"""What a failed job's log still tells after the run."""

from __future__ import annotations

import pytest

from gangline.client.jobs.past_failure import read_output

REPORT = """\
[1,0]<stdout>:epoch 1
[1,3]<stderr>:ValueError: boom
--------------------------------------------------------------------------
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-vm-1@1,3]
   Exit code:    3
--------------------------------------------------------------------------
"""


@pytest.mark.parametrize("has_tags", [False, True])
def test_the_rank_that_failed_is_found_in_a_log(has_tags: bool) -> None:
    failure = read_output(REPORT.encode(), has_tags=has_tags).failure(3)

    assert failure is not None
    assert (failure.cause.rank, failure.cause.ending, failure.lines) == (
        3,
        "exited with code 3",
        ("ValueError: boom",),
    )


def test_an_empty_log_leaves_the_exit_code() -> None:
    failure = read_output(b"", has_tags=False).failure(7)

    assert failure is not None
    assert str(failure.cause) == "the launcher exited with code 7"
