"""Replays of tiny traces, computed by hand; and what holds for every replay."""

import pytest

from gangline.errors import UserError
from gangline.placement import Policy
from gangline.simulate.figures import figures
from gangline.simulate.moves import Moves
from gangline.simulate.peers import first_fit
from gangline.simulate.policies import POLICIES
from gangline.simulate.replay import JobRun, Replay, check_trace, replay
from gangline.simulate.site import Site
from gangline.simulate.speeds import MODELS, Speeds
from gangline.simulate.trace import Mix, Trace, TraceJob, generate

DGX = Site(nodes=1)
PAIR = Site(nodes=2)


def job(name: str, arrival_s: float, gpus: int, work_s: float, **more: object) -> TraceJob:
    values = {"gpus_per_pod": 1, "model": "resnet50"} | more
    return TraceJob(name=name, arrival_s=arrival_s, gpus=gpus, work_s=work_s, **values)  # type: ignore[arg-type]


def run(
    policy: str, *jobs: TraceJob, site: Site = DGX, until_s: float = 1000.0, overlap: float = 0.7
) -> Replay:
    trace = Trace(jobs, 0.0, until_s)
    check_trace(trace, site)
    return replay(trace, site, POLICIES[policy](site, Policy()), Speeds(site, overlap))


def starts(outcome: Replay) -> dict[str, float]:
    return {found.job.name: found.start_s for found in outcome.runs}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_waits_until_its_gpus_are_free(policy):
    outcome = run(policy, job("a", 0, 8, 100), job("b", 10, 4, 50))

    assert starts(outcome) == {"a": 0, "b": 100}
    assert [found.completion_s for found in outcome.runs] == [100, 140]


@pytest.mark.parametrize(("policy", "start_s"), [("first-fit", 100), ("best-fit", 2), ("gangline", 2)])
def test_only_strict_fifo_lets_a_small_job_wait_behind_a_large_one(policy, start_s):
    outcome = run(policy, job("a", 0, 6, 100), job("b", 1, 4, 100), job("c", 2, 2, 10))

    assert starts(outcome)["c"] == start_s
    assert starts(outcome)["b"] == 100


@pytest.mark.parametrize(
    ("overdue_after_s", "started"), [(10, {"b": 100, "c": 150}), (100, {"b": 550, "c": 50})]
)
def test_room_is_kept_for_what_has_waited_longer_than_the_bound(overdue_after_s, started):
    trace = Trace((job("a", 0, 6, 100), job("b", 1, 8, 50), job("c", 50, 2, 500)), 0.0, 1000.0)
    scheduler = POLICIES["rack-only"](DGX, Policy(overdue_after_s=overdue_after_s, overdue_per_device_s=0.0))

    assert starts(replay(trace, DGX, scheduler, Speeds(DGX), has_fixed_durations=True)) == {"a": 0} | started


def test_the_bound_grows_with_the_gpus_that_a_job_asks_for():
    trace = Trace((job("a", 0, 6, 100), job("b", 1, 8, 50), job("c", 50, 2, 500)), 0.0, 1000.0)

    for per_device_s, start_s in ((2.0, 100), (20.0, 550)):
        scheduler = POLICIES["rack-only"](DGX, Policy(overdue_after_s=1.0, overdue_per_device_s=per_device_s))
        outcome = replay(trace, DGX, scheduler, Speeds(DGX), has_fixed_durations=True)
        assert starts(outcome)["b"] == start_s  # overdue after 16 s, before c comes, or after 160


@pytest.mark.parametrize(("whole_for_s", "start_s", "nodes"), [(0.0, 3, 2), (50.0, 53, 2), (200.0, 100, 1)])
def test_a_job_waits_for_a_node_of_its_own_before_it_is_cut(whole_for_s, start_s, nodes):
    jobs = (
        job("a", 0, 6, 100), job("b", 0, 6, 500), job("c", 3, 4, 50),
        job("d", 53, 1, 1),  # somebody is asked about then
    )  # fmt: skip
    scheduler = POLICIES["gangline"](PAIR, Policy(whole_for_s=whole_for_s))

    outcome = replay(Trace(jobs, 0.0, 1000.0), PAIR, scheduler, Speeds(PAIR), has_fixed_durations=True)

    (found,) = (run for run in outcome.runs if run.job.name == "c")
    assert (found.start_s, found.nodes) == (start_s, nodes)


def test_ends_come_before_arrivals_of_the_same_moment():
    outcome = run("first-fit", job("a", 0, 8, 100), job("b", 100, 8, 10))

    assert starts(outcome) == {"a": 0, "b": 100}


def test_the_wires_decide_how_long_a_job_runs():
    # Free are seven GPUs. The quad 4-7 is as fast as 0-3; the lowest ids, 1-4, have no ring of NVLinks.
    jobs = job("a", 0, 1, 500), job("b", 1, 4, 100, model="vgg16")
    by_wires, by_ids = (
        run("gangline", *jobs, overlap=0.0).runs[1],
        run("rack-only", *jobs, overlap=0.0).runs[1],
    )

    assert (by_wires.speed, by_wires.end_s) == (1.0, 101.0)
    assert by_ids.speed < 1.0
    assert by_ids.end_s == pytest.approx(1 + 100 / by_ids.speed)


def test_fixed_durations_do_not_depend_on_the_wires():
    trace = Trace((job("a", 0, 1, 500), job("b", 1, 4, 100, model="vgg16")), 0.0, 1000.0)
    scheduler = POLICIES["rack-only"](DGX, Policy())

    outcome = replay(trace, DGX, scheduler, Speeds(DGX, 0.0), has_fixed_durations=True)

    assert outcome.runs[1].speed < 1.0
    assert outcome.runs[1].end_s == 101


@pytest.mark.parametrize("policy", POLICIES)
def test_a_limit_is_what_the_scheduler_is_told_and_ends_nobody(policy):
    outcome = run(policy, job("a", 0, 8, 100, limit_s=30.0), job("b", 0, 8, 10))

    assert starts(outcome) == {"a": 0, "b": 100}


@pytest.mark.parametrize("policy", POLICIES)
def test_figures_of_one_job_on_two_nodes(policy):
    trace = Trace((job("a", 0, 1, 600),), 0.0, 1000.0)
    outcome = replay(trace, PAIR, POLICIES[policy](PAIR, Policy()), Speeds(PAIR))

    found = figures(outcome, trace, PAIR)

    # 600 s with 15 free GPUs, 7 of them beside the job; 400 s with 16 free GPUs on whole nodes.
    assert found.utilisation == pytest.approx(600 / 16_000)
    assert found.goodput == found.utilisation
    assert found.fragmentation == pytest.approx(600 * 7 / (600 * 15 + 400 * 16), abs=1e-6)
    assert (found.jobs, found.gangs, found.completion_mean_s, found.wait_mean_s) == (1, 0, 600, 0)


def test_jobs_before_the_measured_span_hold_gpus_and_are_not_counted():
    trace = Trace((job("a", 0, 8, 150), job("b", 100, 8, 100)), 100.0, 200.0)
    outcome = replay(trace, DGX, POLICIES["gangline"](DGX, Policy()), Speeds(DGX))

    found = figures(outcome, trace, DGX)

    assert (found.jobs, found.wait_mean_s, found.completion_mean_s, found.utilisation) == (1, 50, 150, 1)


def test_goodput_counts_each_gpu_with_the_speed_of_its_job():
    jobs = (job("a", 0, 1, 100), job("b", 0, 4, 100, model="vgg16"))
    trace = Trace(jobs, 0.0, 100.0)
    outcome = replay(trace, DGX, POLICIES["rack-only"](DGX, Policy()), Speeds(DGX, 0.0))

    found = figures(outcome, trace, DGX)

    speed = outcome.runs[1].speed
    assert found.utilisation == pytest.approx(5 / 8)
    assert found.goodput == pytest.approx((1 + 4 * speed) / 8, abs=1e-6)


def test_a_gang_is_best_placed_alone_on_the_empty_cluster():
    site = Site(nodes=20)
    speeds = Speeds(site)

    assert speeds.relative(job("a", 0, 4, 1, model="vgg16"), {0: 0b1111}) == 1.0
    assert speeds.relative(job("a", 0, 16, 1, gpus_per_pod=8), {0: 0xFF, 1: 0xFF}) == 1.0
    assert speeds.relative(job("a", 0, 4, 1, model="alexnet"), {0: 0b11, 10: 0b11}) < 0.5


def test_a_wider_way_out_of_the_rack_makes_a_cut_gang_faster():
    narrow, wide = Site(nodes=20), Site(nodes=20, rack_oversubscription=1)
    cut = {0: 0b11, 10: 0b11}

    assert Speeds(narrow).step_s("vgg16", cut) > Speeds(wide).step_s("vgg16", cut)


def small_day(seed: int, weight: str = "gpus") -> Trace:
    return generate(
        Mix(load=0.95, gpus=64, weight=weight, models=MODELS, warm_up_s=3600, day_s=4 * 3600, seed=seed)
    )


def most_held(runs: tuple[JobRun, ...]) -> int:
    """Return the most GPUs that are held at one moment."""
    steps = sorted(
        [(start_s, 1, found.job.gpus) for found in runs for start_s, _ in found.spans]
        + [(end_s, 0, -found.job.gpus) for found in runs for _, end_s in found.spans]
    )
    held = most = 0
    for _, _, change in steps:
        held += change
        most = max(most, held)
    return most


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_no_job_is_lost_and_capacity_is_never_exceeded(policy, seed):
    site, trace = Site(nodes=8, nodes_per_rack=4), small_day(seed)

    outcome = replay(trace, site, POLICIES[policy](site, Policy()), Speeds(site))

    assert sorted(found.job.name for found in outcome.runs) == [found.name for found in trace.jobs]
    assert all(found.start_s >= found.job.arrival_s and found.end_s > found.start_s for found in outcome.runs)
    assert most_held(outcome.runs) <= 64
    span = 64 * (trace.until_s - trace.from_s)
    assert outcome.busy_gpu_s + outcome.free_gpu_s == pytest.approx(span)
    assert 0 < outcome.useful_gpu_s <= outcome.busy_gpu_s * 1.000001


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_trace_gives_the_same_replay(policy):
    site, trace = Site(nodes=8), small_day(3)

    first, second = (replay(trace, site, POLICIES[policy](site, Policy()), Speeds(site)) for _ in range(2))

    assert first == second


class Generous:
    """Gives the same GPUs to everybody."""

    def __init__(self, masks: dict[int, int]) -> None:
        self.masks = masks
        self.waiting: list[TraceJob] = []

    def submit(self, job: TraceJob) -> None:
        self.waiting.append(job)

    def finish(self, job: TraceJob) -> None:
        pass

    def decide(self, now_s: float) -> Moves:
        started, self.waiting = [(found, self.masks) for found in self.waiting], []
        return Moves(started)


@pytest.mark.parametrize(
    ("masks", "words"), [({0: 0b11}, "not free"), ({0: 0b1}, "asks for 2"), ({}, "asks for 2")]
)
def test_a_policy_that_hands_out_wrong_gpus_is_found_out(masks, words):
    trace = Trace((job("a", 0, 2, 10), job("b", 1, 2, 10)), 0.0, 100.0)

    with pytest.raises(ValueError, match=words):
        replay(trace, DGX, Generous(masks), Speeds(DGX))


def test_a_job_that_never_fits_is_refused_at_the_start():
    with pytest.raises(UserError, match="9 pods of 1 GPUs"):
        check_trace(Trace((job("a", 0, 9, 1),), 0, 1), DGX)
    with pytest.raises(UserError, match="trains `gpt`"):
        check_trace(Trace((job("a", 0, 1, 1, model="gpt"),), 0, 1), DGX)


def test_first_fit_fills_nodes_by_name():
    import numpy as np

    assert first_fit(np.array([0, 3, 1, 5]), 5) == {1: 3, 2: 1, 3: 1}
