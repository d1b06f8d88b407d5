"""Free pairs and quads of a node, by its links."""

from __future__ import annotations

import pytest

from gangline.cluster.gpu_use import Sample
from gangline.page.node_cards import linked_sets, use_columns

# DGX-1V: 0-3 and 4-7 are joined each with each; across 0-4, 1-5, 2-6, 3-7. Source: NVIDIA DGX-1 white paper.
_JOINED = {(a, b) for half in (range(4), range(4, 8)) for a in half for b in half if a != b}
_JOINED |= {(a, a + 4) for a in range(4)} | {(a + 4, a) for a in range(4)}
DGX1 = [["X" if a == b else "NV1" if (a, b) in _JOINED else "SYS" for b in range(8)] for a in range(8)]
PCIE = [["X" if a == b else "PHB" for b in range(4)] for a in range(4)]


@pytest.mark.parametrize(
    ("links", "free", "pairs", "quads"),
    [
        (DGX1, range(8), 4, 2),
        (DGX1, {0, 5}, 0, 0),  # no link between them
        (DGX1, {0, 4}, 1, 0),
        (DGX1, {0, 1, 4, 5}, 2, 1),  # a ring 0-1-5-4
        (DGX1, {0, 1, 6, 7}, 2, 0),
        (PCIE, range(4), 2, 1),  # without NVLink all are alike
        (PCIE, {2}, 0, 0),
    ],
)
def test_sets_count_where_links_join_them(
    links: list[list[str]], free: set[int], pairs: int, quads: int
) -> None:
    assert (linked_sets(links, frozenset(free), 2), linked_sets(links, frozenset(free), 4)) == (pairs, quads)


def test_use_has_a_gap_where_nobody_looked() -> None:
    samples = [Sample(1000, 1, 8), Sample(1010, 2, 8), Sample(5000, 3, 8)]

    assert use_columns(samples) == {
        "time": [1000, 1010, 1020, 5000],
        "used": [1, 2, None, 3],
        "total": [8, 8, None, 8],
    }
    assert use_columns([]) == {"time": [], "used": [], "total": []}
