"""What holds of every suspension, on random traces: nobody is forgotten, and the bounds are kept."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.placement import Policy, SuspensionBounds
from gangline.simulate.policies import POLICIES
from gangline.simulate.replay import replay
from gangline.simulate.site import Site
from gangline.simulate.speeds import Speeds
from gangline.simulate.trace import Trace, TraceJob

SITE = Site(nodes=2)
SPEEDS = Speeds(SITE)
HOUR = 3600.0

jobs = st.lists(
    st.tuples(
        st.integers(0, 600),
        st.sampled_from([1, 2, 4, 8, 16]),
        st.sampled_from([0.1, 1.0, 5.0, 20.0]),
    ),
    min_size=2,
    max_size=12,
).map(
    lambda drawn: tuple(
        TraceJob(
            f"job-{number:02}", 60.0 * minute, gpus, min(gpus, 8) if gpus > 8 else 1, "vgg16", hours * HOUR
        )
        for number, (minute, gpus, hours) in enumerate(sorted(drawn))
    )
)


@given(
    jobs,
    st.sampled_from([600.0, HOUR]),
    st.integers(0, 3),
    st.sampled_from([1.0, 8.0, 32.0]),
    st.sampled_from([300.0, 1e9]),
)
@settings(max_examples=20, deadline=None)
def test_every_job_ends_and_every_suspension_keeps_the_bounds(
    drawn, min_run_s, suspensions_max, hours, short_wait_s
):
    bounds = SuspensionBounds(
        min_run_s=min_run_s,
        suspensions_max=suspensions_max,
        long_after_device_s=hours * HOUR,
        short_wait_s=short_wait_s,
    )
    restart_s = 120.0

    outcome = replay(
        Trace(drawn, 0.0, HOUR),
        SITE,
        POLICIES["resumable"](SITE, Policy(suspension=bounds)),
        SPEEDS,
        has_fixed_durations=True,
        restart_s=restart_s,
    )

    assert sorted(run.job.name for run in outcome.runs) == [job.name for job in drawn]  # none is forgotten
    for run in outcome.runs:
        assert run.suspensions <= suspensions_max
        had_s = 0.0
        for since_s, until_s in run.spans[:-1]:
            assert until_s - since_s >= min_run_s - 1  # the clock of the cluster has whole seconds
            had_s += until_s - since_s
            if short_wait_s == 1e9:  # nobody waits for so long: only those beyond the boundary
                assert had_s * run.job.gpus >= hours * HOUR - run.job.gpus
        held_s = sum(until_s - since_s for since_s, until_s in run.spans)
        assert held_s == pytest.approx(run.job.work_s + restart_s * run.suspensions)  # no work is lost
