"""Who is named when no rank steps: the pure rule. Beats and stacks: tests/integration/train."""

from __future__ import annotations

import pytest

from gangline.train.stall_detection import (
    SILENT_AFTER_S,
    Heartbeat,
    Notices,
    Silence,
    silence_line,
    silent_ranks,
    speaks,
    watchers,
)


def beat(
    rank: int, *, step: int = 240, age_s: float = 30, beat_age_s: float = 1, **more: object
) -> Heartbeat:
    waits_s = float(more.pop("waits_s", 0.0))  # type: ignore[arg-type]
    idle_s = float(more.pop("idle_s", age_s))  # type: ignore[arg-type]
    return Heartbeat(rank, step, age_s, idle_s, beat_age_s, waits_s, **more)  # type: ignore[arg-type]


def named(beats: list[Heartbeat]) -> list[tuple[int, str]]:
    return [(one.rank, one.kind) for one in silent_ranks(beats)]


def test_rank_outside_the_collective_in_which_the_others_wait_is_named() -> None:
    beats = [beat(0, waits_s=29), beat(1, stack="a.py:57 load", step_s=0.75), beat(2, waits_s=29)]

    (silence,) = silent_ranks(beats)
    assert (silence.rank, silence.step, silence.waiting) == (1, 240, 2)
    assert silence_line(silence, "node-2") == (
        "rank 1 on node-2 is still in step 241 after 30 s (steps took up to 0.8 s until now); "
        "2 other ranks wait for it; its stack: a.py:57 load"
    )
    assert silence_line(silence, "node-2", counts=False) == (
        "rank 1 on node-2 has not got on for 30 s; 2 other ranks wait for it; its stack: a.py:57 load"
    )


def test_collective_is_named_in_which_the_others_wait() -> None:
    waits = {"waits_s": 40, "waits_in": "all_reduce 12 (25.0 MB)"}
    (silence,) = silent_ranks([beat(0, **waits), beat(1)])

    assert "; 1 other rank waits for it in all_reduce 12 (25.0 MB)" in silence_line(silence, "a")


def test_rank_that_says_nothing_is_named_with_the_step_that_its_peers_have_done() -> None:
    (silence,) = silent_ranks([beat(0, waits_s=20), beat(1, step=237, beat_age_s=20)])

    assert (silence.rank, silence.kind, silence.step) == (1, "stale", 240)


@pytest.mark.parametrize(
    ("first", "is_second_heard"),
    [(beat(0), False), (beat(0, beat_age_s=20), True), (beat(0, is_over=True), True)],
    ids=["is there", "says nothing", "has ended properly"],
)
def test_second_watcher_speaks_when_the_first_does_not(first: Heartbeat, is_second_heard: bool) -> None:
    beats = [first, beat(1), beat(2)]

    assert speaks(1, [0, 1, 2], beats, SILENT_AFTER_S) is is_second_heard
    assert not speaks(2, [0, 1, 2], beats, SILENT_AFTER_S)


def test_nobody_is_named_while_a_rank_steps() -> None:
    assert named([beat(0, age_s=2), beat(1, beat_age_s=60), beat(2, waits_s=20)]) == []


def test_rank_that_steps_is_not_named_by_one_that_is_ready_long_before_it() -> None:
    """Ranks with uneven work and no all-reduce in their steps: the first waits at the end."""
    waiting = beat(0, step=500, age_s=600, waits_s=600)

    assert named([waiting, beat(1, step=300, age_s=2)]) == []
    assert named([waiting, beat(1, step=300, age_s=2), beat(2, step=200, age_s=50)]) == [(2, "busy")]


def test_nobody_is_named_while_all_compute() -> None:
    assert named([beat(0), beat(1)]) == []
    assert named([beat(0, age_s=600), beat(1, age_s=600)]) == []


def test_stopped_process_is_named_as_soon_as_others_wait() -> None:
    stopped = beat(1, age_s=16, beat_age_s=16, is_halted=True)

    assert named([beat(0, age_s=16), stopped]) == []
    assert named([beat(0, age_s=16, waits_s=8), stopped]) == [(1, "stale")]
    assert named([beat(0, age_s=16, waits_s=8), beat(1, age_s=16, beat_age_s=16)]) == []


def test_stopped_process_is_named_though_all_others_are_in_a_long_step() -> None:
    stopped = beat(1, beat_age_s=20, is_halted=True)

    (silence,) = silent_ranks([beat(0, step_s=100), stopped])
    assert silence_line(silence, "node-2", state="its process is stopped") == (
        "rank 1 on node-2 silent since step 240 (30 s); no other rank waits for it yet; "
        "its process is stopped"
    )


def test_rank_locked_in_c_code_counts_as_in_its_long_step_until_others_wait() -> None:
    assert named([beat(0, step_s=100), beat(1, beat_age_s=20)]) == []
    assert named([beat(0, step_s=100, waits_s=8), beat(1, beat_age_s=20)]) == [(1, "stale")]


def busy(step_s: float, into_step_s: float) -> list[Heartbeat]:
    """Rank 1 hangs where its step began; the others came to its end in time, and wait."""
    waits_s = max(0.0, into_step_s - step_s)
    return [beat(0, age_s=into_step_s, waits_s=waits_s, step_s=step_s), beat(1, age_s=into_step_s)]


@pytest.mark.parametrize(
    ("step_s", "last_quiet_s", "first_named_s"),
    [(1, 25, 26), (8, 25, 26), (12, 36, 37), (25, 45, 46), (38, 52, 54), (100, 125, 126), (1000, 1044, 1045)],
)
def test_longer_step_is_waited_for_longer_and_never_longer_than_45_s_of_the_others_waiting(
    step_s: float, last_quiet_s: float, first_named_s: float
) -> None:
    assert named(busy(step_s, last_quiet_s)) == []
    assert named(busy(step_s, first_named_s)) == [(1, "busy")]


def test_gradients_that_come_back_within_a_step_do_not_hide_who_hangs_later_in_it() -> None:
    beats = [beat(0, age_s=90, idle_s=46, waits_s=45, step_s=80), beat(1, age_s=90, idle_s=46)]

    (silence,) = silent_ranks(beats)
    assert silence_line(silence, "b") == (
        "rank 1 on b is still in step 241 after 90 s (steps took up to 80 s until now); "
        "1 other rank waits for it"
    )


def test_all_that_say_nothing_are_named() -> None:
    mute = {"beat_age_s": 20}
    assert named([beat(0, **mute), beat(1), beat(2, **mute)]) == [(0, "stale"), (2, "stale")]


def test_watchers_are_on_as_many_nodes_as_there_are() -> None:
    assert watchers(["a", "a", "b", "b", "c", "c"]) == [0, 2, 4, 1, 3, 5]
    assert watchers(["a"]) == [0]
    assert watchers([f"node-{rank}" for rank in range(1000)]) == list(range(16))
    assert watchers(["a"] * 1000) == list(range(16))


def test_all_wait_in_different_collectives() -> None:
    assert named([beat(0, waits_s=29), beat(1, waits_s=29, step=239)]) == [(1, "mixed")]


def test_rank_that_ended_is_not_waited_for() -> None:
    assert named([beat(0, waits_s=29), beat(1, is_over=True, beat_age_s=99)]) == [(0, "mixed")]


def test_the_lowest_step_is_to_blame_among_busy_ranks() -> None:
    assert named([beat(0, waits_s=29), beat(1, step=239), beat(2)]) == [(1, "busy")]


def late(step: int, waited_s: float, kind: str = "busy") -> Silence:
    return Silence(1, step, waited_s, kind, waiting=3, stack="", waited_s=waited_s)


def test_silence_is_told_once_and_its_end_once() -> None:
    notices = Notices()
    first = notices.news([late(240, 46)])
    notices.told(first)

    assert [one.rank for one in first] == [1]
    assert notices.news([late(240, 51)]) == []
    assert notices.over([late(240, 51)], {1: 240}) == []
    assert notices.over([], {1: 241}) == [1]
    assert notices.over([], {1: 242}) == []


def test_rank_that_is_late_in_every_step_is_named_once_until_it_is_later_than_usual() -> None:
    notices = Notices()
    notices.told(notices.news([late(240, 46)]))
    notices.news([late(240, 60)])
    notices.news([])
    notices.over([], {1: 241})

    assert notices.news([late(241, 46)]) == []
    notices.news([late(241, 61)])
    notices.news([])
    assert notices.news([late(242, 90)]) == []
    assert [one.step for one in notices.news([late(242, 92)])] == [242]


def test_rank_that_was_late_long_ago_or_is_stopped_now_is_named_at_once() -> None:
    notices = Notices()
    notices.told(notices.news([late(240, 46)]))
    notices.news([])
    notices.over([], {1: 241})

    assert notices.news([late(241, 10, "stale")])
    assert notices.news([late(300, 46)])
