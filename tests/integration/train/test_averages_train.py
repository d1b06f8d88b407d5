"""session.parallel() averages as torch does, whatever a script asks for; sessions end in words."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

pytestmark = pytest.mark.train

SCRIPT = Path(__file__).with_name("averages_script.py")
WAYS = pytest.mark.parametrize("way", ["memory", "gloo"])


@pytest.mark.parametrize(("size", "way"), [(4, "memory"), (2, "gloo"), (1, "memory")])
def test_groups_sparse_gradients_hooks_and_join_are_averaged_as_by_torch(
    ranks, torch_python, size, way
) -> None:
    ranks.start(torch_python, SCRIPT, size, "averages", way)

    assert ranks.wait() == [0] * size, ranks.log(0)
    assert all("as torch" in ranks.log(rank) for rank in range(size))


def test_session_begins_again_after_its_end(ranks, torch_python) -> None:
    ranks.start(torch_python, SCRIPT, 2, "again")

    assert ranks.wait() == [0, 0], ranks.log(0) + ranks.log(1)
    assert "three sessions" in ranks.log(1)


@WAYS
def test_lost_rank_arrives_as_its_own_error_with_its_number(ranks, torch_python, way) -> None:
    ranks.start(torch_python, SCRIPT, 2, "lost", way)

    assert ranks.wait() == [0, -signal.SIGKILL], ranks.log(0)
    assert re.search(r"^lost \(1,\) rank 1 .*ended while others waited", ranks.log(0), re.MULTILINE)


@WAYS
def test_rank_that_ends_before_the_others_is_named_within_a_minute(ranks, torch_python, way) -> None:
    ranks.start(torch_python, SCRIPT, 2, "uneven", way)

    assert ranks.wait() == [1, 1], ranks.log(0)
    for rank in range(2):
        found = re.search(
            # over shared memory the end of its process may be seen first
            r"^uneven \(1,\) (\d+) rank 1 (?:on \S+ ended the training|ended) while",
            ranks.log(rank),
            re.MULTILINE,
        )
        assert found, ranks.log(rank)
        assert int(found[1]) < 120  # 25 to 35 s on an idle machine


def test_rank_that_ends_before_a_collective_of_the_script_is_named(ranks, torch_python) -> None:
    ranks.start(torch_python, SCRIPT, 2, "uneven-collective")

    assert ranks.wait() == [1, 1], ranks.log(0)
    for rank in range(2):
        assert re.search(
            r"PeerLostError: rank 1 (?:on \S+ ended the training|ended) while", ranks.log(rank)
        ), ranks.log(rank)
