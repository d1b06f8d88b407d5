"""Functions and programs on ranks of the one-machine cluster, called from Python.

In scope: results, errors, bounds, interrupts of `Client.run`. Out of scope: how a function travels
(tests/unit/client), a cluster of a kubeconfig (test_client_context_e2e.py).
"""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

import gangline
from gangline.errors import JobFailedError, UnschedulableError, UserError


def rank_of(number: int = 0) -> int:
    return number + int(os.environ["RANK"])


def fail_on_one() -> None:
    if os.environ["RANK"] == "1":
        raise ValueError("boom")
    time.sleep(60)


def fail_everywhere() -> None:
    raise KeyError(os.environ["RANK"])


def vanish() -> None:
    os._exit(0)


def test_every_rank_returns_its_own(client: gangline.Client) -> None:
    assert client.run(rank_of, ranks=2, args=(10,)) == [10, 11]


def test_what_ranks_print_is_written_as_it_comes(client: gangline.Client) -> None:
    text: list[str] = []

    client.run(lambda: print("héllo"), ranks=2, write=text.append)

    assert sorted("".join(text).splitlines()) == ["[1] héllo", "héllo"]


def test_the_first_error_ends_the_others(client: gangline.Client) -> None:
    with pytest.raises(gangline.RanksFailedError, match="rank 1 raised ValueError: boom") as caught:
        client.run(fail_on_one, ranks=2)

    [error] = caught.value.errors.values()
    assert isinstance(error.exception, ValueError)
    assert "in fail_on_one" in error.traceback
    assert caught.value.__cause__ is error


def test_ranks_that_fail_together_all_tell(client: gangline.Client) -> None:
    with pytest.raises(gangline.RanksFailedError) as caught:
        client.run(fail_everywhere, ranks=2)

    assert {rank: error.kind for rank, error in caught.value.errors.items()} == {0: "KeyError", 1: "KeyError"}


def test_a_rank_that_ends_without_a_word_is_an_error(client: gangline.Client) -> None:
    with pytest.raises(gangline.RanksFailedError, match="not all its ranks returned"):
        client.run(vanish, ranks=1)


def test_large_results_arrive_whole(client: gangline.Client) -> None:
    results = client.run(lambda: os.urandom(2_900_000), ranks=2)

    assert [len(result) for result in results] == [2_900_000] * 2


def test_a_call_that_takes_too_long_leaves_no_job(client: gangline.Client) -> None:
    with pytest.raises(TimeoutError, match="longer than 2 s; its job is deleted"):
        client.run(lambda: time.sleep(60), ranks=1, timeout_s=2, name="slow")

    assert client.run(rank_of, name="slow") == [0]  # the name is free


def test_a_program_is_its_job_or_an_error(client: gangline.Client) -> None:
    job = client.run(["python", "-c", "print(1)"], ranks=2, name="program")
    assert (job.name, job.kind) == ("program", "MPIJob")

    with pytest.raises(JobFailedError) as caught:
        client.run(["python", "-c", "raise SystemExit(3)"])
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("what", "words"),
    [("python train.py", "or the words of a program"), ([], "or the words of a program")],
)
def test_what_is_neither_function_nor_program_is_refused(
    client: gangline.Client, what: str | list[str], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        client.run(what)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ranks": 0}, "ranks must be 1 to 1024"),
        ({"ranks": 2, "nodes": 3}, "nodes must be 1 to ranks, which are 2"),
        ({"kind": "mpi"}, "kind must be one of `job`"),
        ({"name": "My_Job"}, "--name must be lower-case"),
        ({"gpus_per_rank": -1}, "gpus_per_rank must be at least 0"),
        ({"pods": gangline.PodOptions(memory="1Gi")}, "belongs to programs on a cluster"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    client: gangline.Client, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        client.run(rank_of, **options)


def test_gpus_that_are_not_there_are_refused(client: gangline.Client) -> None:
    with pytest.raises(UnschedulableError):
        client.run(rank_of, gpus_per_rank=1)
