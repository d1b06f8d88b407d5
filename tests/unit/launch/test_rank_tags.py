"""Tags of mpirun become what people read; the format is that of Open MPI 5.0.11."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.launch.rank_tags import RankTags, split_line


def through(*pieces: bytes) -> bytes:
    tags = RankTags()
    return b"".join([tags.feed(piece) for piece in pieces] + [tags.flush()])


def test_rank_0_reads_as_the_program_wrote_it_and_others_say_their_rank() -> None:
    log = b"[1,0]<stdout>: step 1\n[1,11]<stderr>: oops\n--- from mpirun\n"

    assert through(log) == b"step 1\n[11] oops\n--- from mpirun\n"


@pytest.mark.parametrize("text", [b"[INFO] loading", b"[1] x", b"[1,2] pair", b"10%\r20%", b"[]"])
def test_other_text_is_left_alone(text: bytes) -> None:
    assert through(text + b"\n") == text + b"\n"


@pytest.mark.parametrize("words", [b"see [1,0]<stdout>: x", b"see [2,1]<stdout>: x", b"see [1,1] x"])
def test_the_program_may_write_similar_words_itself(words: bytes) -> None:
    assert through(b"[1,0]<stdout>: " + words + b"\n") == words + b"\n"


def test_the_tag_behind_a_line_without_its_end_begins_a_line() -> None:
    log = b"[1,1]<stdout>: no newline[1,0]<stdout>: none[1,0]<stderr>: either"

    assert through(log) == b"[1] no newline\nnone\neither\n"
    assert split_line(log) == [
        b"[1,1]<stdout>: no newline",
        b"[1,0]<stdout>: none",
        b"[1,0]<stderr>: either",
    ]


def test_a_launchers_line_is_not_taken_apart() -> None:
    assert through(b"see [1,1]<stdout>: x") == b"see [1,1]<stdout>: x"
    assert split_line(b"see [1,1]<stdout>: x") == [b"see [1,1]<stdout>: x"]


def test_progress_bars_pass_as_they_come() -> None:
    tags = RankTags()

    assert tags.feed(b"[1,0]<stderr>: \r 10%") == b"\r 10%"
    assert tags.feed(b"\r 20% [") == b"\r 20% "
    assert tags.feed(b"##") == b"[##"
    assert tags.feed(b"]\n[1,1]<stderr>: \r 10%\n") == b"]\n[1] \r 10%\n"


def test_an_empty_line_stays_one() -> None:
    assert through(b"[1,0]<stdout>: \n[1,0]<stdout>:\n") == b"\n\n"


LINES = st.lists(
    st.sampled_from(
        [
            b"[1,0]<stdout>: a",
            b"[1,3]<stderr>: b c",
            b"plain",
            b"[x",
            b"[1,",
            b"",
            b"[1,0]<stdout>: a[1,2]<stdout>: b",
        ]
    ),
    max_size=6,
).map(b"\n".join)


@given(LINES, st.integers(0, 120), st.integers(0, 120))
def test_pieces_do_not_matter(log: bytes, first: int, second: int) -> None:
    low, high = sorted((first, second))

    assert through(log) == through(log[:low], log[low:high], log[high:])
