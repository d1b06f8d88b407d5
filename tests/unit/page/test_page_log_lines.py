"""A log as lines that know their rank."""

from __future__ import annotations

from gangline.page.log_lines import LINE_CHARS_MAX, LINES_MAX, RANKS_MAX, Line, Lines


def fed(*pieces: bytes, has_ranks: bool = True) -> Lines:
    lines = Lines(has_ranks=has_ranks)
    for piece in pieces:
        lines.feed(piece)
    return lines


def test_lines_come_whole_and_know_their_rank() -> None:
    lines = fed(b"one\n[3] tw", b"o\n[12] three")

    assert lines.since(0) == (0, [Line(0, "one"), Line(3, "two")])
    lines.flush()
    assert lines.since(2) == (0, [Line(12, "three")])


def test_the_last_line_of_each_rank_is_known() -> None:
    assert fed(b"one\n[3] two\n[3] three\n\n[3] \n").last == {0: "one", 3: "three"}


def test_a_bar_that_a_rank_redraws_is_that_ranks() -> None:
    assert fed(b"[3] \r 10%\r 20%\n").last == {3: " 20%"}


def test_last_lines_of_a_bounded_number_of_ranks_are_known() -> None:
    lines = fed(b"begins\n", *(b"[%d] loss 0.5\n" % step for step in range(1, 2 * RANKS_MAX)), b"ends\n")

    assert (len(lines.last), lines.last[0]) == (RANKS_MAX, "ends")


def test_without_tags_nobody_says_who_wrote_a_line() -> None:
    assert fed(b"[3] a list\n", has_ranks=False).since(0) == (0, [Line(None, "[3] a list")])


def test_of_a_bar_that_is_redrawn_the_last_is_shown() -> None:
    assert fed(b"10%\r20%\r30%\r\n").since(0)[1] == [Line(0, "30%")]


def test_what_is_not_kept_any_more_is_counted() -> None:
    lines = fed(b"".join(b"%d\n" % number for number in range(LINES_MAX + 5)))

    missing, kept = lines.since(2)
    assert (missing, kept[0].text, kept[-1].text) == (3, "5", str(LINES_MAX + 4))
    assert lines.since(LINES_MAX + 5) == (0, [])


def test_a_line_without_end_is_cut() -> None:
    lines = fed(b"x" * (LINE_CHARS_MAX + 1))

    assert lines.since(0)[1] == [Line(0, "x" * LINE_CHARS_MAX)]


def test_a_character_may_lie_in_two_pieces() -> None:
    text = "é ✓".encode()

    assert fed(text[:1], text[1:4], text[4:] + b"\n").since(0)[1] == [Line(0, "é ✓")]
