"""Peers of Gangline's policy, and suspension, on tiny traces computed by hand."""

import numpy as np
import pytest

from gangline.placement import Policy, SuspensionBounds
from gangline.simulate.peers import EasyScheduler, by_domains, emptiest
from gangline.simulate.policies import POLICIES
from gangline.simulate.replay import Replay, replay
from gangline.simulate.site import Site
from gangline.simulate.speeds import Speeds
from gangline.simulate.trace import Trace, TraceJob

DGX = Site(nodes=1)
HOUR = 3600.0


def job(name: str, arrival_s: float, gpus: int, work_s: float) -> TraceJob:
    return TraceJob(
        name=name, arrival_s=arrival_s, gpus=gpus, gpus_per_pod=1, model="resnet50", work_s=work_s
    )


def run(policy: str, *jobs: TraceJob, site: Site = DGX, restart_s: float = 120.0, **bounds: float) -> Replay:
    scheduler = POLICIES[policy](site, Policy(suspension=SuspensionBounds(**bounds)))  # type: ignore[arg-type]
    trace = Trace(jobs, 0.0, 1000.0)
    return replay(trace, site, scheduler, Speeds(site), has_fixed_durations=True, restart_s=restart_s)


def spans(outcome: Replay, name: str) -> list[tuple[float, float]]:
    (found,) = (one for one in outcome.runs if one.job.name == name)
    return list(found.spans)


@pytest.mark.parametrize(("work_s", "start_s"), [(60, 2), (400, 150)])
def test_easy_lets_a_job_pass_that_is_over_when_the_first_can_start(work_s, start_s):
    jobs = job("a", 0, 6, 100), job("b", 1, 8, 50), job("c", 2, 2, work_s)
    scheduler = EasyScheduler(DGX, by_domains(DGX), 1.0, 1.0)  # users know

    outcome = replay(Trace(jobs, 0.0, 1000.0), DGX, scheduler, Speeds(DGX), has_fixed_durations=True)

    assert spans(outcome, "b")[0][0] == 100
    assert spans(outcome, "c")[0][0] == start_s


def test_easy_lets_a_long_job_pass_on_what_the_first_leaves():
    jobs = job("a", 0, 6, 100), job("b", 1, 7, 50), job("c", 2, 1, 400)
    scheduler = EasyScheduler(DGX, by_domains(DGX), 1.0, 1.0)

    outcome = replay(Trace(jobs, 0.0, 1000.0), DGX, scheduler, Speeds(DGX), has_fixed_durations=True)

    assert spans(outcome, "b")[0][0] == 100
    assert spans(outcome, "c")[0][0] == 2


def test_what_users_say_lies_in_its_range_and_is_the_same_again():
    scheduler = EasyScheduler(DGX, by_domains(DGX), 0.3, 10.0)
    factors = [scheduler.estimate_s(job(f"j{number}", 0, 1, 100)) / 100 for number in range(500)]

    assert min(factors) >= 0.3
    assert max(factors) <= 10
    assert min(factors) < 0.4
    assert max(factors) > 9
    assert scheduler.estimate_s(job("j7", 5, 2, 100)) == 100 * factors[7]


def test_a_job_that_ran_longer_than_its_user_said_delays_nobody_for_ever():
    jobs = [job("a", 0, 6, 1000), *(job(f"b{number}", 1 + number, 8, 10) for number in range(3))]
    scheduler = EasyScheduler(DGX, by_domains(DGX), 0.3, 0.3)

    outcome = replay(Trace(tuple(jobs), 0.0, 1.0), DGX, scheduler, Speeds(DGX), has_fixed_durations=True)

    assert [spans(outcome, f"b{number}")[0][0] for number in range(3)] == [1000, 1010, 1020]


def test_racks_are_packed_and_the_fullest_goes_first():
    site = Site(nodes=6, nodes_per_rack=3)
    share = by_domains(site)

    assert share(np.array([1, 1, 8, 8, 8, 8]), 9) == {2: 8, 0: 1}
    assert share(np.array([8, 8, 7, 8, 8, 8]), 3) == {2: 3}
    assert sum(share(np.array([4, 4, 4, 4, 4, 4]), 20).values()) == 20


def test_kube_schedulers_default_scores_spread_a_gang():
    outcome = run("kube-gangs", job("a", 0, 4, 100), site=Site(nodes=2))

    assert outcome.runs[0].nodes == 2
    assert emptiest(np.array([0, 3, 1, 5]), 5) == {3: 3, 1: 2}


@pytest.mark.parametrize("policy", ["resumable", "las"])
def test_a_job_that_has_had_much_is_suspended_for_one_that_has_had_little(policy):
    outcome = run(policy, job("a", 0, 8, 10 * HOUR), job("b", 5 * HOUR, 8, HOUR))

    # 40 GPU-hours after five; the restart costs two minutes
    assert spans(outcome, "b") == [(5 * HOUR, 6 * HOUR)]
    assert spans(outcome, "a") == [(0, 5 * HOUR), (6 * HOUR, 11 * HOUR + 120)]


def test_a_job_that_has_had_little_is_not_suspended():
    outcome = run("resumable", job("a", 0, 8, 10 * HOUR), job("b", 3 * HOUR, 8, HOUR), short_wait_s=2 * HOUR)

    # 32 GPU-hours after four
    assert spans(outcome, "b") == [(4 * HOUR, 5 * HOUR)]


def test_it_is_once_one_that_has_had_less_has_waited_for_minutes():
    outcome = run("resumable", job("a", 0, 8, 10 * HOUR), job("b", 3 * HOUR, 8, HOUR), short_wait_s=300)

    assert spans(outcome, "b") == [(3 * HOUR + 300, 4 * HOUR + 300)]
    assert spans(outcome, "a") == [(0, 3 * HOUR + 300), (4 * HOUR + 300, 11 * HOUR + 120)]


def test_a_job_is_suspended_a_few_times_at_most():
    late = [job(f"b{number}", (5 + 2 * number) * HOUR, 8, HOUR) for number in range(4)]
    outcome = run("resumable", job("a", 0, 8, 20 * HOUR), *late, suspensions_max=2)

    assert len(spans(outcome, "a")) == 3


def test_a_job_runs_for_a_minimum_time_each_time():
    late = [job(f"b{number}", (5 + 1.1 * number) * HOUR, 8, HOUR) for number in range(2)]
    outcome = run("resumable", job("a", 0, 8, 20 * HOUR), *late, min_run_s=1800)

    assert [round((until - since) / HOUR, 3) for since, until in spans(outcome, "a")[:2]] == [5, 0.5]


def test_nobody_is_suspended_where_jobs_cannot_go_on():
    outcome = run("gangline", job("a", 0, 8, 10 * HOUR), job("b", 5 * HOUR, 8, HOUR))

    assert spans(outcome, "a") == [(0, 10 * HOUR)]
