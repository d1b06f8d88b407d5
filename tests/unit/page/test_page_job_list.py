"""The list whatever happens to it: always what sorting all rows anew would give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gangline.page.job_list import JobList
from gangline.page.rows import JobRow, Window, chosen

NAMES = st.sampled_from("abcdef")
STATES = st.sampled_from(["RUNNING", "QUEUING", "PENDING", "FAILED"])
ROWS = st.builds(
    lambda name, state, gpus, reason: JobRow(
        f"job/ns/{name}", "Job", "ns", name, state, reason, "2026", gpus=gpus
    ),
    NAMES,
    STATES,
    st.integers(0, 2),
    st.sampled_from(["", "needs room"]),
)
WINDOWS = st.builds(
    Window,
    st.sampled_from(["", "room", "a"]),
    st.sampled_from([(), ("PENDING",), ("RUNNING", "FAILED")]),
    st.sampled_from(["-created", "name", "-gpus", "state"]),
)


@given(st.lists(st.tuples(ROWS, st.booleans(), WINDOWS), max_size=30))
def test_every_order_is_that_of_sorting_anew(steps: list[tuple[JobRow, bool, Window]]) -> None:
    jobs, rows = JobList(), dict[str, JobRow]()
    for row, is_dropped, window in steps:
        if is_dropped:
            jobs.drop(row.key)
            rows.pop(row.key, None)
        else:
            jobs.put(row)
            rows[row.key] = row

        assert list(jobs.chosen(window)) == chosen(rows.values(), window)
        states = ["PENDING" if one.state == "QUEUING" else one.state for one in rows.values()]
        assert jobs.counts() == {state: states.count(state) for state in states}


def test_a_row_that_did_not_change_is_no_change() -> None:
    jobs, row = JobList(), JobRow("job/ns/a", "Job", "ns", "a", "RUNNING")
    jobs.put(row)
    before = jobs.version
    jobs.put(row)

    assert jobs.version == before
