"""Pieces of ranks become tagged lines, and unfinished lines appear; the format is that of Open MPI 5.0.11."""

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from gangline.launch.wrapper.rank_pieces import LINE_BYTES_MAX, SHOWN_AFTER_S, RankPieces

LATER_S = SHOWN_AFTER_S + 0.01


def through(*pieces: bytes) -> bytes:
    ranks = RankPieces()
    return b"".join([ranks.feed(piece, 0.0) for piece in pieces] + [ranks.flush()])


def test_every_line_of_a_piece_gets_its_tag() -> None:
    log = b"[1,1]<stdout>: a\nb\n[1,0]<stderr>: c\n"

    assert through(log) == b"[1,1]<stdout>: a\n[1,1]<stdout>: b\n[1,0]<stderr>: c\n"


def test_a_line_in_pieces_is_put_together_while_others_speak() -> None:
    log = b"[1,0]<stdout>: par[1,1]<stdout>: other\n[1,0]<stdout>: tial\n"

    assert through(log) == b"[1,1]<stdout>: other\n[1,0]<stdout>: partial\n"


def test_a_progress_bar_grows() -> None:
    ranks = RankPieces()
    shown = []
    for step in range(3):
        shown.append(ranks.feed(b"[1,0]<stderr>: \r %d0%%" % step, step))
        due = ranks.due_s()
        assert due is not None and due <= step + LATER_S
        shown.append(ranks.show(step + LATER_S))

    assert shown == [b"", b"[1,0]<stderr>: \r 00%", b"", b"\r 10%", b"", b"\r 20%"]
    assert ranks.due_s() is None
    assert ranks.feed(b"[1,0]<stderr>: \n", 4.0) == b"\n"
    assert ranks.flush() == b""


def test_a_line_that_is_finished_soon_is_written_once() -> None:
    ranks = RankPieces()
    ranks.feed(b"[1,0]<stdout>: half", 0.0)

    assert ranks.show(SHOWN_AFTER_S / 2) == b""
    assert ranks.feed(b"[1,0]<stdout>:  a line\n", SHOWN_AFTER_S / 2) == b"[1,0]<stdout>: half a line\n"


def test_rank_0s_bar_is_shown_and_anothers_waits_for_its_end() -> None:
    ranks = RankPieces()
    ranks.feed(b"[1,1]<stderr>: \r 10%[1,0]<stderr>: \r 10%", 0.0)

    assert ranks.show(1.0) == b"[1,0]<stderr>: \r 10%"
    assert ranks.show(2.0) == b""
    ended = ranks.feed(b"[1,1]<stderr>: \r 20%\n", 2.0)
    assert ended == b"\n[1,1]<stderr>: \r 10%\r 20%\n"
    ranks.feed(b"[1,0]<stderr>: \r 20%", 3.0)
    assert ranks.show(4.0) == b"[1,0]<stderr>: \r 20%"


def test_rank_0_takes_the_place_of_another_that_is_shown() -> None:
    ranks = RankPieces()
    ranks.feed(b"[1,3]<stdout>: sure?", 0.0)
    assert ranks.show(1.0) == b"[1,3]<stdout>: sure?"

    ranks.feed(b"[1,0]<stdout>: yes", 1.0)
    assert ranks.show(2.0) == b"\n[1,0]<stdout>: yes"


def test_memory_of_a_line_without_end_is_bounded() -> None:
    ranks = RankPieces()
    shown = ranks.feed(b"[1,1]<stdout>: " + b"\rx" * LINE_BYTES_MAX, 0.0)

    assert shown == b"[1,1]<stdout>: " + b"\rx" * LINE_BYTES_MAX
    assert ranks.due_s() is None


def test_what_only_looks_like_the_beginning_of_a_tag_appears_too() -> None:
    ranks = RankPieces()
    ranks.feed(b"[1,0]<stderr>: 10% [", 0.0)

    assert ranks.show(LATER_S) + ranks.show(2 * LATER_S) == b"[1,0]<stderr>: 10% ["


WORDS = st.text(alphabet="ab\r\n 01", max_size=12).map(str.encode)


@given(
    pieces=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([b"stdout", b"stderr"]), WORDS), max_size=12
    ),
    cuts=st.lists(st.integers(0, 500), max_size=6),
    late=st.booleans(),
)
def test_nothing_is_lost_and_every_line_begins_with_its_tag(
    pieces: list[tuple[int, bytes, bytes]], cuts: list[int], late: bool
) -> None:
    log = b"".join(b"[1,%d]<%s>: %s" % piece for piece in pieces)
    ends = list(accumulate(len(b"[1,%d]<%s>: %s" % piece) for piece in pieces))
    edges = sorted([0, *ends, *(min(cut, len(log)) for cut in cuts)])
    ranks, shown, now_s = RankPieces(), b"", 0.0
    for start, end in pairwise(edges):
        shown += ranks.feed(log[start:end], now_s)
        if late and end in ends:  # the launcher writes a tag with its piece
            now_s += 1.0
            shown += ranks.show(now_s)
    shown += ranks.flush()

    written: dict[bytes, bytes] = {}
    for rank, stream, words in pieces:
        tag = b"[1,%d]<%s>: " % (rank, stream)
        written[tag] = written.get(tag, b"") + words
    for line in shown.split(b"\n")[:-1]:
        assert any(line.startswith(tag) for tag in written), line
    for tag, text in written.items():
        got = b"".join(line.removeprefix(tag) for line in shown.split(b"\n") if line.startswith(tag))
        assert got == text.replace(b"\n", b"")
