"""Who is named when ranks are looked at from outside: made-up looks, made-up time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.train.waiting import LOOK_PERIOD_S, ObservedRank, RankStack, Said, World

TORCH, MPI, CUDA = frozenset({"torch"}), frozenset({"mpi"}), frozenset({"torch", "cuda"})
OWN = (("/code/train.py", 12, "step"), ("/code/train.py", 30, "<module>"))
GLOO = (("/v/site-packages/torch/distributed/distributed_c10d.py", 99, "all_reduce"), *OWN)
BACKWARD = (("/v/site-packages/torch/autograd/graph.py", 979, "_engine_run_backward"), *OWN)
LOADING = (("/code/data.py", 57, "load"), *OWN[1:])


@dataclass
class Doing:
    """What a rank does: how much processor it uses, where it is, whether it runs Python."""

    frames: tuple[tuple[str, int, str], ...] = OWN
    line: str = ""
    cpu: float = 1.0
    is_native: bool = False
    is_stopped: bool = False
    can_answer: bool = True
    libraries: frozenset[str] = TORCH


COMPUTES = Doing()
SLEEPS = Doing(cpu=0.0, frames=LOADING)
ALL_REDUCE = Doing(GLOO, cpu=0.0, is_native=True)
BACKWARD_PASS = Doing(BACKWARD, cpu=0.0, is_native=True)
LONG_BACKWARD_PASS = Doing(BACKWARD, cpu=1.0, is_native=True)
LONG_CALL = Doing(OWN, "u, s, v = numpy.linalg.svd(a)", is_native=True)
BARRIER = Doing(OWN, "comm.Barrier()", is_native=True, libraries=MPI)
STOPPED = Doing(is_stopped=True, cpu=0.0)
UNSEEN = Doing(can_answer=False, libraries=frozenset())
ENDED: Doing | None = None


@dataclass
class Ranks:
    """Ranks of a program whose looks are made here; `go_on` lets time pass."""

    size: int
    now_s: float = 100.0
    said: list[tuple[float, Said]] = field(default_factory=list)
    asked: int = 0

    def __post_init__(self) -> None:
        self.world = World(self.size)
        self._looks = {rank: ObservedRank(rank, 4000 + rank) for rank in range(self.size)}
        self._calls: dict[int, Doing | None] = {}
        self._asked: list[int] = []

    def go_on(self, seconds: float, *doing: Doing | None) -> list[str]:
        """Return what is said while ranks do this; doing something else is another call."""
        before = len(self.said)
        began_s = self.now_s
        while self.now_s < began_s + seconds:
            self.now_s += LOOK_PERIOD_S
            looks = []
            for rank, what in enumerate(doing):
                is_new = self._calls.get(rank) is not what
                self._calls[rank] = what
                if what is not None:
                    self._looks[rank] = self._next(rank, what, is_new)
                    looks.append(self._looks[rank])
            self.world.take(looks, self.now_s)
            self._asked = self.world.to_ask(self.now_s)
            self.asked += len(self._asked)
            self.said += [(self.now_s - began_s, said) for said in self.world.news()]
        return [said.text for _, said in self.said[before:]]

    def _next(self, rank: int, what: Doing, is_new: bool) -> ObservedRank:
        last = self._looks[rank]
        used_s = what.cpu * LOOK_PERIOD_S
        answers = (RankStack(what.frames, what.line, not what.is_native),) if rank in self._asked else ()
        return replace(
            last,
            cpu_s=last.cpu_s + used_s,
            main_cpu_s=last.main_cpu_s + used_s,
            stopped=(last.pid,) if what.is_stopped else (),
            can_answer=what.can_answer,
            libraries=what.libraries,
            answers=() if what.is_stopped or not what.can_answer else answers,
            ran_since=is_new,
        )


def test_a_stopped_rank_is_named_in_seconds_with_what_to_do_and_once() -> None:
    ranks = Ranks(2)
    ranks.go_on(30, COMPUTES, COMPUTES)

    assert ranks.go_on(6, COMPUTES, STOPPED) == [
        "rank 1 (process 4001) is stopped (SIGSTOP or a terminal); continue with kill -CONT 4001"
    ]
    assert ranks.go_on(200, ALL_REDUCE, STOPPED) == []
    assert ranks.go_on(10, COMPUTES, COMPUTES) == ["rank 1 goes on; others had waited 198 s"]


def test_a_single_rank_that_is_stopped_is_named_and_so_are_all_ranks() -> None:
    assert "rank 0 (process 4000) is stopped" in Ranks(1).go_on(10, STOPPED)[0]
    (line,) = Ranks(3).go_on(60, STOPPED, STOPPED, STOPPED)
    assert line.startswith("ranks 0, 1, 2 are stopped") and line.endswith("kill -CONT 4000 4001 4002")


@pytest.mark.parametrize("waits", [ALL_REDUCE, BACKWARD_PASS, BARRIER], ids=["gloo", "backward", "mpi"])
@pytest.mark.parametrize("hangs", [COMPUTES, SLEEPS, LONG_CALL], ids=["computes", "sleeps", "native call"])
def test_who_keeps_others_waiting_is_named_within_a_minute_with_its_place(waits: Doing, hangs: Doing) -> None:
    ranks = Ranks(3)
    hangs = replace(hangs, libraries=waits.libraries)
    ranks.go_on(20, *[replace(COMPUTES, libraries=waits.libraries)] * 3)

    (line,) = ranks.go_on(120, waits, hangs, waits)

    at = ranks.said[0][0]
    assert 45 <= at <= 58
    place = "data.py:57 load" if hangs.frames == LOADING else "train.py:12 step"
    assert line.startswith("2 other ranks have waited for rank 1 for 4")
    assert (
        f"; rank 1 (process 4001) is at {place} < train.py:30 <module>; rank 0 (process 4000) waits at "
        in line
    )


def test_evaluation_on_one_rank_is_told_once_and_not_in_the_next_epoch() -> None:
    ranks = Ranks(2)
    said = []
    for _ in range(5):
        said += ranks.go_on(60, COMPUTES, COMPUTES)
        said += ranks.go_on(70, SLEEPS, ALL_REDUCE)

    assert [one.split(";")[0] for one in said] == [
        "1 other rank has waited for rank 0 for 46 s",
        "rank 0 goes on",
    ]


def test_an_evaluation_of_half_a_minute_is_not_told() -> None:
    ranks = Ranks(2)
    for _ in range(20):
        assert ranks.go_on(30, SLEEPS, ALL_REDUCE) == []
        assert ranks.go_on(4, COMPUTES, COMPUTES) == []


@pytest.mark.parametrize(
    "doing",
    [
        [COMPUTES, COMPUTES],
        [SLEEPS, SLEEPS],
        [SLEEPS, COMPUTES],
        [LONG_CALL, LONG_CALL],
        [LONG_CALL, SLEEPS],
        [LONG_BACKWARD_PASS, COMPUTES],
        [LONG_BACKWARD_PASS, SLEEPS],
        [replace(LONG_CALL, cpu=0.0), COMPUTES],
    ],
    ids=[
        "compute",
        "load",
        "one loads",
        "native",
        "one native",
        "long backward pass",
        "long backward pass beside a sleeper",
        "native sleep",
    ],
)
def test_nobody_is_named_where_nobody_waits_in_a_collective(doing: list[Doing]) -> None:
    assert Ranks(2).go_on(600, *doing) == []


def test_a_program_without_a_library_of_collectives_is_not_even_asked() -> None:
    ranks = Ranks(2)

    assert ranks.go_on(600, *[replace(SLEEPS, libraries=frozenset())] * 2) == []
    assert ranks.asked == 0


def test_ranks_of_torch_that_compute_are_not_asked() -> None:
    ranks = Ranks(2)
    ranks.go_on(600, COMPUTES, COMPUTES)

    assert ranks.asked == 0


def test_calls_of_different_names_that_all_wait_are_told_with_their_places() -> None:
    (line,) = Ranks(2).go_on(100, ALL_REDUCE, BACKWARD_PASS)

    assert line.startswith(
        "all 2 ranks have waited for 46 s, at different calls; rank 0 (process 4000) waits"
    )
    assert "distributed_c10d.py:99 all_reduce < train.py:12 step" in line
    assert "rank 1 (process 4001) waits at graph.py:979" in line


def test_a_rank_that_has_ended_is_told_where_the_others_wait_on() -> None:
    ranks = Ranks(2)
    ranks.go_on(10, COMPUTES, COMPUTES)

    (line,) = ranks.go_on(100, ALL_REDUCE, ENDED)

    assert line.startswith("all ranks that still run have waited for 46 s; rank 0 (process 4000) waits at")
    assert line.endswith("; rank 1 has ended")


def test_ranks_on_other_machines_are_said_not_to_be_seen() -> None:
    ranks = Ranks(4)

    (line,) = ranks.go_on(100, ALL_REDUCE, ALL_REDUCE)

    assert line.startswith(
        "all ranks that run on this machine have waited for 46 s; rank 0 (process 4000) waits at"
    )
    assert line.endswith("; ranks 2, 3 cannot be seen from here")


def test_a_rank_that_cannot_be_asked_is_named_and_that_is_said_once() -> None:
    ranks = Ranks(2)
    ranks.go_on(60, COMPUTES, UNSEEN)

    (line,) = ranks.go_on(300, ALL_REDUCE, UNSEEN)

    assert "rank 1 (process 4001) cannot be asked where it is: no Python, or one with -I, -S or -E" in line


def test_many_ranks_make_one_short_line() -> None:
    (line,) = Ranks(64).go_on(100, ALL_REDUCE, *[SLEEPS] * 63)

    assert line.startswith("1 other rank has waited for ranks 1, 2, 3 and 60 more for 46 s; ")
    assert len(line) < 500


def test_ranks_that_watch_themselves_are_left_to_that_unless_stopped() -> None:
    class Themselves(Ranks):
        def _next(self, rank: int, what: Doing, is_new: bool) -> ObservedRank:
            return replace(super()._next(rank, what, is_new), tells_itself=True)

    ranks = Themselves(2)

    assert ranks.go_on(300, ALL_REDUCE, COMPUTES) == []
    assert ranks.asked == 0
    assert "rank 1 (process 4001) is stopped" in ranks.go_on(10, ALL_REDUCE, STOPPED)[0]


def test_a_rank_that_was_in_a_collective_a_moment_ago_is_not_blamed() -> None:
    """Ranks 2 and 3 step in a group of their own while rank 0 waits for rank 1."""
    ranks = Ranks(4)
    said = []
    for _ in range(6):
        said += ranks.go_on(10, ALL_REDUCE, COMPUTES, ALL_REDUCE, COMPUTES)
        said += ranks.go_on(10, ALL_REDUCE, COMPUTES, COMPUTES, ALL_REDUCE)

    (line,) = said
    assert "waited for rank 1 for" in line


def test_a_gpus_rank_waits_busily_and_two_that_do_are_no_news() -> None:
    sync = Doing(OWN, "loss.item()", is_native=True, libraries=CUDA)

    (line,) = Ranks(2).go_on(100, sync, replace(SLEEPS, libraries=CUDA))
    assert line.startswith("1 other rank has waited for rank 1 for 4")
    assert Ranks(2).go_on(600, sync, replace(sync)) == []


def test_a_machine_that_was_held_up_starts_anew() -> None:
    ranks = Ranks(2)
    ranks.go_on(44, ALL_REDUCE, COMPUTES)
    ranks.now_s += 3600

    assert ranks.go_on(40, ALL_REDUCE, COMPUTES) == []
    assert len(ranks.go_on(30, ALL_REDUCE, COMPUTES)) == 1


STEPS = st.lists(
    st.tuples(
        st.floats(min_value=2, max_value=40),
        st.lists(st.sampled_from([0, 1, 2, 3, 4, 5]), min_size=3, max_size=3),
    ),
    max_size=12,
)
KINDS = (COMPUTES, SLEEPS, ALL_REDUCE, BACKWARD_PASS, LONG_CALL, LONG_BACKWARD_PASS)


@settings(max_examples=50, deadline=None)
@given(STEPS, st.sampled_from([TORCH, MPI | TORCH, CUDA]))
def test_no_rank_is_named_while_all_get_on_within_forty_seconds(
    steps: list[tuple[float, list[int]]], libraries: frozenset[str]
) -> None:
    ranks = Ranks(3)
    for seconds, kinds in steps:
        # Each is a call of its own, even where it is of the same kind as the one before.
        assert ranks.go_on(seconds, *(replace(KINDS[kind], libraries=libraries) for kind in kinds)) == []
