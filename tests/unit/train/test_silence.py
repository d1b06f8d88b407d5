"""Who is named when no rank steps: the pure rule. Beats and stacks: tests/integration/train."""

from __future__ import annotations

from gangline.train.silence import Beat, silence_line, silent_ranks, watchers


def beat(rank: int, *, step: int = 240, age_s: float = 30, beat_age_s: float = 1, **more: object) -> Beat:
    waits = bool(more.pop("waits", False))
    return Beat(rank, step, age_s, beat_age_s, waits, **more)  # type: ignore[arg-type]


def named(beats: list[Beat]) -> list[tuple[int, str]]:
    return [(one.rank, one.kind) for one in silent_ranks(beats)]


def test_rank_outside_the_collective_in_which_the_others_wait_is_named() -> None:
    beats = [beat(0, waits=True), beat(1, stack="a.py:57 load"), beat(2, waits=True)]

    (silence,) = silent_ranks(beats)
    assert (silence.rank, silence.step, silence.waiting) == (1, 240, 2)
    assert silence_line(silence, "node-2") == (
        "rank 1 on node-2 silent since step 240 (30 s); 2 other ranks wait for it; its stack: a.py:57 load"
    )


def test_rank_that_says_nothing_is_named_with_the_step_that_its_peers_have_done() -> None:
    (silence,) = silent_ranks([beat(0, waits=True), beat(1, step=237, beat_age_s=20)])

    assert (silence.rank, silence.kind, silence.step) == (1, "stale", 240)


def test_nobody_is_named_while_a_rank_steps() -> None:
    assert named([beat(0, age_s=2), beat(1, beat_age_s=60), beat(2, waits=True)]) == []


def test_nobody_is_named_while_all_compute() -> None:
    assert named([beat(0), beat(1)]) == []


def test_long_steps_are_waited_for() -> None:
    assert named([beat(0, waits=True, step_s=20), beat(1)]) == []
    assert named([beat(0, waits=True, age_s=46, step_s=20), beat(1, age_s=46)]) == [(1, "busy")]


def test_name_is_out_within_a_minute_unless_one_step_takes_most_of_that() -> None:
    busy = [beat(0, waits=True, age_s=50, step_s=25), beat(1, age_s=50)]
    assert named(busy) == [(1, "busy")]
    long = [beat(0, waits=True, age_s=50, step_s=40), beat(1, age_s=50)]
    assert named(long) == []


def test_rank_that_says_nothing_is_not_waited_for_because_steps_are_long() -> None:
    assert named([beat(0, waits=True, step_s=40), beat(1, beat_age_s=20)]) == [(1, "stale")]


def test_all_that_say_nothing_are_named() -> None:
    mute = {"beat_age_s": 20}
    assert named([beat(0, **mute), beat(1), beat(2, **mute)]) == [(0, "stale"), (2, "stale")]


def test_watchers_are_on_as_many_nodes_as_there_are() -> None:
    assert watchers(["a", "a", "b", "b", "c", "c"]) == [0, 2, 4, 1, 3, 5]
    assert watchers(["a"]) == [0]
    assert watchers([f"node-{rank}" for rank in range(1000)]) == list(range(16))
    assert watchers(["a"] * 1000) == list(range(16))


def test_all_wait_in_different_collectives() -> None:
    assert named([beat(0, waits=True), beat(1, waits=True, step=239)]) == [(1, "mixed")]


def test_rank_that_ended_is_not_waited_for() -> None:
    assert named([beat(0, waits=True), beat(1, is_over=True, beat_age_s=99)]) == [(0, "mixed")]


def test_the_lowest_step_is_to_blame_among_busy_ranks() -> None:
    assert named([beat(0, waits=True), beat(1, step=239), beat(2)]) == [(1, "busy")]
