"""Traces: what is drawn, and what is read from files."""

from math import exp
from statistics import median

import pytest

from gangline.errors import UserError
from gangline.simulate.trace import Mix, Trace, TraceJob, generate, gpus_per_pod
from gangline.simulate.trace_text import read_trace, write_csv

MIX = Mix(load=0.8, gpus=800, models=("resnet50", "vgg16"))


@pytest.fixture(scope="module")
def drawn() -> Trace:
    return generate(MIX)


def load_of(trace: Trace, gpus: int) -> float:
    """Return the share of GPUs held if every job started when it arrives."""
    held = sum(
        job.gpus * max(min(job.arrival_s + job.work_s, trace.until_s) - max(job.arrival_s, trace.from_s), 0)
        for job in trace.jobs
    )
    return held / gpus / (trace.until_s - trace.from_s)


@pytest.mark.parametrize("load", [0.6, 0.8, 0.95])
@pytest.mark.parametrize("weight", ["jobs", "gpus"])
def test_the_load_of_the_measured_span_is_the_one_asked_for(load, weight):
    trace = generate(Mix(load=load, gpus=320, weight=weight, seed=5))

    assert load_of(trace, 320) == pytest.approx(load, rel=1e-4)


def test_the_same_seed_gives_the_same_bytes():
    first, again, other = (write_csv(generate(Mix(load=0.8, gpus=80, seed=seed))) for seed in (0, 0, 1))

    assert first == again != other


def test_gpu_counts_follow_the_histogram(drawn):
    jobs = drawn.jobs
    singles = sum(job.gpus == 1 for job in jobs) / len(jobs)

    # 76,627 of 82,247 jobs; the spread of 6,000 draws is 0.3 %.
    assert singles == pytest.approx(76_627 / 82_247, abs=0.01)
    assert {job.gpus for job in jobs} <= {1, 2, 4, 8, 12, 16, 24, 32, 64, 128}


def test_weighted_by_gpus_most_jobs_are_gangs():
    mix = Mix(load=0.8, gpus=2000, weight="gpus")

    # 1,643 jobs with 8 GPUs weigh 13,144 of 107,235.
    assert mix.shares()[8] == pytest.approx(13_144 / 107_235)
    assert sum(mix.shares().values()) == pytest.approx(1)


def test_counts_beyond_the_cluster_are_left_out():
    assert max(Mix(load=0.8, gpus=16).shares()) == 16


def test_durations_are_log_normal_and_arrivals_poisson(drawn):
    trace = drawn
    arrived = [job for job in trace.jobs if job.arrival_s > 0]
    expected = MIX.jobs_per_s * trace.until_s

    assert MIX.mean_s == pytest.approx(3600 * exp(1.125))
    assert len(arrived) == pytest.approx(expected, abs=5 * expected**0.5)
    assert median(job.work_s for job in arrived) / trace.stretch == pytest.approx(3600, rel=0.1)
    assert [job.arrival_s for job in trace.jobs] == sorted(job.arrival_s for job in trace.jobs)


def test_pods_have_one_gpu_up_to_eight_and_whole_nodes_beyond():
    assert {count: gpus_per_pod(count) for count in (1, 2, 4, 8, 12, 16, 24, 128)} == {
        1: 1, 2: 1, 4: 1, 8: 1, 12: 4, 16: 8, 24: 8, 128: 8,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"load": 0.0}, "load must be above 0"),
        ({"load": 3.0}, "at most 200 %"),
        ({"median_s": 0.0}, "median above 0"),
        ({"weight": "nodes"}, "must be one of jobs, gpus"),
        ({"median_s": 0.001}, "would have"),
    ],
)
def test_wrong_parameters_are_refused(change, words):
    with pytest.raises(UserError, match=words):
        generate(Mix(**({"load": 0.8, "gpus": 2000} | change)))


def read(text: str, **more: float) -> Trace:
    return read_trace(text, name="jobs.csv", models=("resnet50",), **more)  # type: ignore[arg-type]


def test_a_written_trace_is_read_back():
    jobs = generate(Mix(load=0.8, gpus=64, day_s=3600, warm_up_s=0)).jobs

    assert read(write_csv(Trace(jobs, 0, 3600))).jobs == jobs


def test_columns_of_other_simulators_are_understood():
    heading = "job_id,num_gpu,submit_time,model_name,duration,interval"
    text = f"{heading}\n7,16,50,vgg16,90,1\n3,1,20,,60.5,1\n8,0,9,,1,1\n"

    trace = read(text)

    assert trace.jobs == (
        TraceJob("3", 0.0, 1, 1, "resnet50", 60.5),
        TraceJob("7", 30.0, 16, 8, "vgg16", 90.0),
    )
    assert all(trace.is_measured(job) for job in trace.jobs)


def test_dates_are_arrivals_too():
    text = "timestamp,duration,num_gpus\n2017-10-03 06:14:51,100,1\n2017-10-03T06:15:51Z,100,2\n"

    assert [job.arrival_s for job in read(text).jobs] == [0, 60]


def test_json_is_a_list_or_an_object_with_jobs():
    rows = '[{"name": "a", "arrival_s": 0, "gpus": 2, "work_s": 5, "gpus_per_pod": 2, "limit_s": 9}]'

    for text in (rows, f'{{"jobs": {rows}}}'):
        assert read(text).jobs == (TraceJob("a", 0.0, 2, 2, "resnet50", 5.0, 9.0),)


def test_what_arrives_during_the_warm_up_is_not_counted():
    trace = read("arrival_s,gpus,work_s\n0,1,9\n100,1,9\n", warm_up_s=50)

    assert [trace.is_measured(job) for job in trace.jobs] == [False, True]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("arrival_s,gpus\n0,1\n", "row 1 of jobs.csv has no `work_s` or `duration`"),
        ("arrival_s,gpus,work_s\n0,1,5\n1,1.5,5\n", "row 2 of jobs.csv: gpus must be a whole number"),
        ("arrival_s,gpus,work_s\nsoon,1,5\n", "arrival_s must be seconds of at least 0 .found `soon`."),
        ("arrival_s,gpus,work_s\n0,1,-5\n", "work_s must be seconds"),
        ("arrival_s,gpus,work_s\n", "has no job with GPUs"),
        ("name,arrival_s,gpus,work_s\na,0,1,5\na,0,1,5\n", "names a job twice"),
        ("[1]", "must hold a list of jobs"),
        ("{", "cannot be read as JSON"),
        ("", "has no job with GPUs"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_row(text, words):
    with pytest.raises(UserError, match=words):
        read(text)
