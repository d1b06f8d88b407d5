"""One harmless line of Open MPI 5 is left out; everything else passes at once and unchanged."""

import pytest

from gangline.launch.wrapper.launcher_noise import LauncherNoise

NOISE = (
    b"[pi-launcher:07744] plm:ssh: Warning: setpgid(7750,7750) failed in parent with "
    b"errno=Permission denied(13)\n"
)


def through(*pieces):
    noise = LauncherNoise("pi-launcher")
    return [noise.feed(piece) for piece in pieces] + [noise.flush()]


def test_the_line_is_left_out_wherever_it_stands():
    assert b"".join(through(NOISE + b"one\n" + NOISE + b"two\n")) == b"one\ntwo\n"


@pytest.mark.parametrize("cut", [1, 5, 13, 30, len(NOISE) - 1])
def test_it_is_left_out_when_it_comes_in_pieces(cut):
    assert b"".join(through(NOISE[:cut], NOISE[cut:], b"one\n")) == b"one\n"


@pytest.mark.parametrize(
    "piece", [b"progress 10%\r", b"no end of line", b"[1,0]<stdout>: x", b"[INFO] x", b"a\n\nb"]
)
def test_other_text_passes_at_once(piece):
    assert through(piece)[0] == piece


def test_other_lines_of_the_launcher_pass_when_they_end():
    assert through(b"[pi-launcher:1] something", b" else\n", b"x") == [
        b"",
        b"[pi-launcher:1] something else\n",
        b"x",
        b"",
    ]


def test_the_words_inside_a_line_are_the_programs_own():
    assert b"".join(through(b"see ", NOISE)) == b"see " + NOISE


def test_what_is_held_at_the_end_is_not_lost():
    assert through(b"[pi-laun") == [b"", b"[pi-laun"]


DASHES = b"-" * 74 + b"\n"
BLOCK = (
    DASHES
    + b"We attempted to remove a file, but were unable to do so:\n\n"
    + b"  Path:  /tmp/prted.6/1/11\n  Error: No such file or directory\n"
    + DASHES
)


def test_a_folder_that_is_gone_already_is_not_worth_a_block():
    assert b"".join(through(b"[4] 4\n" + BLOCK + b"[1] 1\n" + BLOCK + b"\0")) == b"[4] 4\n[1] 1\n"
    assert b"".join(through(BLOCK + b"\0[15] 15\n")) == b"[15] 15\n"


@pytest.mark.parametrize("cut", range(1, len(BLOCK), 7))
def test_the_block_is_left_out_when_it_comes_in_pieces(cut):
    assert b"".join(through(b"a\n" + BLOCK[:cut], BLOCK[cut:] + b"b\n")) == b"a\nb\n"


@pytest.mark.parametrize(
    "other",
    [
        BLOCK.replace(b"No such file or directory", b"Permission denied"),
        BLOCK.replace(b"/tmp/prted.6", b"/data/mine"),
        DASHES + b"total images/sec: 10.0\n" + DASHES,
        DASHES * 3,
    ],
)
def test_other_blocks_pass_unchanged(other):
    assert b"".join(through(b"x\n" + other + b"y\n")) == b"x\n" + other + b"y\n"
    assert b"".join(through(other[:100])) == other[:100]
