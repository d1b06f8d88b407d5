"""Functions on their way to ranks and back.

In scope: what `call_function` writes for what a function does, read by `Results`, without a cluster. Out of
scope: launchers and logs in between (tests/e2e/client).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangline.client.functions import RESULTS_BYTES_MAX, Results, pack_function
from gangline.errors import UserError
from gangline.launch.pods import call_function
from gangline.launch.rank_tags import RankTags
from gangline.train.records import RECORD_BYTES_MAX, RecordFilter


def raise_value_error() -> None:
    raise ValueError("no good")


def leave(code: object) -> None:
    sys.exit(code)  # type: ignore[arg-type]


class Rank:
    """A rank that calls a function in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "function"

    def call(
        self, function: Callable[..., object], *args: object, rank: int = 0, ranks: int = 1
    ) -> subprocess.CompletedProcess[bytes]:
        path = [entry for entry in sys.path if entry] + [str(Path(__file__).parent)]
        self.file.write_bytes(pack_function(function, args, {}, ranks=ranks, path=path))
        return self.start(rank)

    def start(self, rank: int = 0) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "GANGLINE_FUNCTION": str(self.file), "RANK": str(rank)}
        line = [sys.executable, call_function.__file__]
        return subprocess.run(line, env=environment, capture_output=True, check=False, timeout=60)


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


def read(*outputs: bytes) -> Results[Any]:
    results: Results[Any] = Results()
    for output in outputs:
        for record in RecordFilter().feed(output)[1]:
            results.take(record)
    return results


@pytest.mark.parametrize("value", [None, 7, "text", {"a": [1, 2.5]}, b"x" * 100_000])
def test_what_a_function_returns_comes_back(rank: Rank, value: object) -> None:
    done = rank.call(lambda: value, rank=1, ranks=2)

    assert done.returncode == 0, done.stderr
    assert read(done.stdout).returned() == {1: value}
    assert not read(done.stdout).is_complete  # rank 0 is to come


def test_a_closure_travels_and_what_is_printed_stays_apart(rank: Rank) -> None:
    factor = 3

    def scaled(number: int) -> int:
        print("before", end="")
        return factor * number

    done = rank.call(scaled, 5)

    shown, _ = RecordFilter().feed(done.stdout)
    assert shown == b"before"
    assert read(done.stdout).returned() == {0: 15}


def test_what_it_raises_comes_back_with_its_traceback_and_class(rank: Rank) -> None:
    done = rank.call(raise_value_error, rank=3)

    error = read(done.stdout).raised()[3]
    assert done.returncode == 1
    assert (error.rank, error.kind, error.message) == (3, "ValueError", "no good")
    assert isinstance(error.exception, ValueError)
    assert "in raise_value_error" in error.traceback
    assert "call_function.py" not in error.traceback
    assert b"ValueError: no good" in done.stderr


@pytest.mark.parametrize(("code", "exit_code", "words"), [(3, 3, "3"), ("bad", 1, "bad"), (None, 0, "")])
def test_an_exit_is_an_error_unless_it_is_one_of_success(
    rank: Rank, code: object, exit_code: int, words: str
) -> None:
    done = rank.call(leave, code)

    results = read(done.stdout)
    assert done.returncode == exit_code
    assert [error.message for error in results.raised().values()] == ([words] if exit_code else [])
    assert results.returned() == ({} if exit_code else {0: None})


def test_a_result_that_cannot_be_pickled_is_an_error_of_its_rank(rank: Rank) -> None:
    done = rank.call(lambda: (number for number in range(3)))

    error = read(done.stdout).raised()[0]
    assert "cannot be pickled, of type `generator`" in error.message


def test_a_result_has_a_bound_that_ranks_share(rank: Rank) -> None:
    ranks = 1024
    most = RESULTS_BYTES_MAX // ranks

    assert read(rank.call(lambda: b"x" * (most - 100), ranks=ranks).stdout).returned()
    error = read(rank.call(lambda: b"x" * most, ranks=ranks).stdout).raised()[0]
    assert f"may send {most}" in error.message


def test_each_record_is_below_what_a_pipe_takes_whole(rank: Rank) -> None:
    done = rank.call(lambda: os.urandom(100_000))

    assert max(map(len, done.stdout.splitlines())) < RECORD_BYTES_MAX


def test_records_come_through_the_tags_of_a_launcher(rank: Rank) -> None:
    done = rank.call(lambda: "whole", rank=1)
    tagged = b"".join(b"[1,1]<stdout>: " + line + b"\n" for line in done.stdout.splitlines())

    assert read(RankTags().feed(tagged)).returned() == {1: "whole"}


@pytest.mark.parametrize("lost", [0, 1])
def test_a_result_that_did_not_arrive_whole_is_an_error(rank: Rank, lost: int) -> None:
    lines = rank.call(lambda: b"x" * 5_000).stdout.splitlines(keepends=True)

    damaged = read(b"".join(line for index, line in enumerate(lines) if index != lost))
    assert damaged.raised()[0].kind == "DamagedResult"
    assert damaged.returned() == {}


def test_another_attempt_replaces_what_came_before(rank: Rank) -> None:
    first, second = rank.call(lambda: "first" * 1000).stdout, rank.call(lambda: "second").stdout
    half = b"".join(first.splitlines(keepends=True)[:2])

    assert read(half, second).returned() == {0: "second"}


def test_another_python_is_told_in_words(rank: Rank) -> None:
    rank.call(lambda: None)
    head, _, rest = rank.file.read_bytes().partition(b"\n")
    rank.file.write_bytes(json.dumps({**json.loads(head), "python": [3, 8]}).encode() + b"\n" + rest)

    error = read(rank.start().stdout).raised()[0]
    assert "sent by Python 3.8" in error.message
    assert "use an image with Python 3.8" in error.message


def test_an_argument_that_cannot_be_pickled_is_refused_at_once() -> None:
    with pytest.raises(UserError, match="cannot send function `leave` to ranks"):
        pack_function(leave, [(number for number in range(3))], {}, ranks=1)
