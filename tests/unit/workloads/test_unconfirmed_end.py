"""Pods that were deleted and whose node does not say that they ended."""

from datetime import UTC, datetime, timedelta

from gangline.workloads.unconfirmed_end import END_LATE_S, UnconfirmedEnd, unconfirmed_end

DUE = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
ENDS = [
    UnconfirmedEnd("w-1", "n2", "2026-05-01T12:00:00Z"),
    UnconfirmedEnd("w-0", "n1", "2026-05-01T12:00:00Z"),
    UnconfirmedEnd("w-2", "n2", "2026-05-01T12:05:00Z"),
]


def test_nodes_have_time_to_confirm_an_end_after_the_grace_of_the_pod():
    assert unconfirmed_end(ENDS, DUE) == (None, END_LATE_S)
    assert unconfirmed_end([], DUE) == (None, None)


def test_a_late_end_says_which_node_does_not_answer_and_both_ways_on():
    found, again_s = unconfirmed_end(ENDS, DUE + timedelta(seconds=END_LATE_S))

    assert found is not None
    assert found.kind == "Terminating"
    assert str(found) == (
        "pod w-0 (and 1 more) was deleted, and node n1 does not confirm its end: if it is lost, "
        "`kubectl delete node n1` or the taint node.kubernetes.io/out-of-service lets it go"
    )
    assert again_s == 300
