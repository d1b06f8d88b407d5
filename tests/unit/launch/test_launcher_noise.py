"""One harmless line of Open MPI 5 is left out; everything else passes at once and unchanged."""

import pytest

from gangline.launch.launcher_noise import LauncherNoise

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
