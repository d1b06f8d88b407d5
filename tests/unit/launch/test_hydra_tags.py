"""Pieces of ranks become whole tagged lines; the format is that of MPICH 5.0.2 and Intel MPI 2021.18."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.launch.hydra_tags import HydraTags
from gangline.launch.rank_failure import find_failure


def through(*pieces: bytes) -> bytes:
    tags = HydraTags()
    return b"".join([tags.feed(piece) for piece in pieces] + [tags.flush()])


def test_pieces_of_two_ranks_in_one_line_become_a_line_of_each() -> None:
    log = b"[0,0]<piece>: par[0,1]<piece>: par[0,0]<piece>: tial 0\n[0,1]<piece>: tial 1\n"

    assert through(log) == b"[0,0]<stdout>: partial 0\n[0,1]<stdout>: partial 1\n"


def test_lines_without_an_end_get_one_at_the_end_of_the_log() -> None:
    assert through(b"[0,1]<piece>: no end") == b"[0,1]<stdout>: no end\n"


@pytest.mark.parametrize(
    "text", [b"[INFO] x", b"[1] x", b"[1,0]<stdout>: of Open MPI", b"= BAD TERMINATION", b""]
)
def test_other_lines_pass_as_they_are(text: bytes) -> None:
    assert through(text + b"\n") == text + b"\n"


def test_exit_codes_are_shown_only_when_one_is_not_0() -> None:
    assert through(b"[mpiexec@a-launcher] Exit codes: [a:0] 0,0 [b:1] 0,0\n") == b""
    assert through(b"[mpiexec@a-launcher] Exit codes: [a] 0,0\n[b] 0,0\n") == b""
    failed = b"[mpiexec@a-launcher] Exit codes: [a] 0,0\n[b] 768,0\nmore\n"
    assert through(failed) == b"[mpiexec@a-launcher] Exit codes: [a] 0,0 [b] 768,0\nmore\n"


@pytest.mark.parametrize(
    ("codes", "rank", "what"),
    [
        ("[a] 0,768 [b] 0,0", 1, "exited with code 3"),
        ("[a:0] 9,0 [b:1] 256,9", 2, "exited with code 1"),
        ("[a] 0,0 [b] 0,11", 3, "was killed by signal 11 (SIGSEGV)"),
        ("[a] 9,9 [b] 11,9", 2, "was killed by signal 11 (SIGSEGV)"),
        ("[a] 0,0 [b] 0,9", 3, "was killed by signal 9 (SIGKILL)"),
        ("[a] 9,9 [b] 9,9", None, "was killed by signal 9 (SIGKILL)"),
    ],
)
def test_the_list_of_wait_statuses_names_the_rank_that_failed(
    codes: str, rank: int | None, what: str
) -> None:
    failure = find_failure([f"[mpiexec@x] Exit codes: {codes}"], 3)

    assert failure is not None
    assert (failure.cause.rank, failure.cause.ending) == (rank, what)


def test_a_call_of_mpi_abort_says_more_than_the_codes_of_those_it_ended() -> None:
    lines = [
        "[0,3]<stdout>: Abort(7) on node 3 (rank 3 in comm 0): application called MPI_Abort(comm=0x84, 7)",
        "[mpiexec@x] Exit codes: [a:0] 9,9 [b:0] 1792,1792",
    ]
    failure = find_failure(lines, 7)

    assert failure is not None
    assert (failure.cause.rank, failure.cause.ending) == (3, "called MPI_Abort with code 7")


def test_an_exception_is_named_and_not_the_call_that_ended_the_others() -> None:
    lines = [
        '[0,1]<stderr>: @gangline {"kind":"rank-raised","rank":1,"error":"KeyError"}',
        "[0,1]<stdout>: Abort(1) on node 1 (rank 1 in comm 0): application called MPI_Abort(comm=0x84, 1)",
    ]
    failure = find_failure(lines, 1)

    assert failure is not None
    assert (failure.cause.rank, failure.cause.ending, failure.cause.exit_code) == (1, "raised KeyError", 1)


def test_an_exception_is_named_when_hydra_ended_before_it_passed_on_the_call_of_mpi_abort() -> None:
    failure = find_failure(['[1] @gangline {"kind":"rank-raised","rank":1,"error":"KeyError"}'], 1)

    assert failure is not None
    assert (failure.cause.rank, failure.cause.ending, failure.cause.exit_code) == (1, "raised KeyError", 1)


def test_a_program_of_another_mpi_is_told_before_what_its_ranks_ended_with() -> None:
    lines = [
        "[mpiexec@x] Exit codes: [a] 3584,3584",
        '@gangline {"kind": "mpi-mismatch", "what": '
        '"the program was built for Open MPI, but `mpirun` is of MPICH"}',
    ]
    failure = find_failure(lines, 78)

    assert failure is not None
    assert (failure.cause.rank, failure.cause.ending) == (
        None,
        "the program was built for Open MPI, but `mpirun` is of MPICH",
    )


LINES = st.lists(st.tuples(st.integers(0, 3), st.text(alphabet="ab[]<,> 01", max_size=8)), max_size=12)


@given(lines=LINES, cuts=st.lists(st.integers(0, 400), max_size=6))
def test_however_a_log_is_cut_every_ranks_lines_come_out_whole(
    lines: list[tuple[int, str]], cuts: list[int]
) -> None:
    log = b"".join(b"[0,%d]<piece>: %s\n" % (rank, text.encode()) for rank, text in lines)
    edges = [0, *sorted(min(cut, len(log)) for cut in cuts), len(log)]
    pieces = [log[start:end] for start, end in pairwise(edges)]

    want = b"".join(b"[0,%d]<stdout>: %s\n" % (rank, text.encode()) for rank, text in lines)
    assert through(*pieces) == want
