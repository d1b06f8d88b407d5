"""Lines of many ranks; the prefixes are Horovod's documented ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangline.launch.rank_output import RankOutput, horovod_prefix


def collect(**options: object) -> tuple[RankOutput, list[tuple[str, bytes]]]:
    shown: list[tuple[str, bytes]] = []
    return RankOutput(lambda stream, line: shown.append((stream, line)), **options), shown  # type: ignore[arg-type]


def test_lines_of_two_ranks_never_mix() -> None:
    output, shown = collect()
    output.feed(0, "stdout", b"ab")
    output.feed(1, "stdout", b"one\n")
    output.feed(0, "stdout", b"c\nrest")
    output.end_rank(0)

    assert shown == [("stdout", b"[1] one\n"), ("stdout", b"abc\n"), ("stdout", b"rest\n")]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_horovods_prefix_stands_before_every_line_and_every_carriage_return(size: int) -> None:
    output, shown = collect(prefix=horovod_prefix)
    text = b"first line\rfirst line again\nsecond line\r\n"
    for start in range(0, len(text), size):
        output.feed(123, "stdout", text[start : start + size])

    assert b"".join(line for _, line in shown) == (
        b"[123]<stdout>:first line\r[123]<stdout>:first line again\n[123]<stdout>:second line\r\n"
    )


def test_output_goes_to_a_folder_for_each_rank_with_equally_long_names(tmp_path: Path) -> None:
    output, _ = collect(folder=tmp_path, size=11)
    output.feed(3, "stdout", b"out\n")
    output.feed(10, "stderr", b"err")
    output.close()

    assert (tmp_path / "rank.03" / "stdout").read_bytes() == b"out\n"
    assert (tmp_path / "rank.10" / "stderr").read_bytes() == b"err"
