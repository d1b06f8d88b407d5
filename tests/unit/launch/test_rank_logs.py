"""Folders of ranks' output are bounded by size and age."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gangline.launch.rank_logs import LOG_AGE_MAX_S, RankLogs
from gangline.launch.rank_tags import untagged


def test_a_file_that_is_full_is_put_aside_once(tmp_path: Path) -> None:
    logs = RankLogs(tmp_path, 12, bytes_max=10)
    for text in (b"one\n", b"two\n", b"three\n", b"four\n", b"five, which is longer than ten\n"):
        logs.write(3, "stdout", text)
    logs.close()

    assert (tmp_path / "rank.03" / "stdout").read_bytes() == b"five, which is longer than ten\n"
    assert (tmp_path / "rank.03" / "stdout.1").read_bytes() == b"four\n"


def test_what_is_old_is_removed_at_a_start_and_nothing_else(tmp_path: Path) -> None:
    for name in ("rank.0/stdout", "rank.0/notes", "rank.1/stderr"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
        os.utime(path, (time.time() - LOG_AGE_MAX_S - 1,) * 2)
    (tmp_path / "rank.1/stderr").touch()

    RankLogs(tmp_path, 2)

    assert not (tmp_path / "rank.0/stdout").exists()
    assert (tmp_path / "rank.0/notes").exists()
    assert (tmp_path / "rank.1/stderr").exists()


def test_lines_of_two_ranks_in_one_are_told_apart() -> None:
    assert untagged(b"[7,0]<stdout>: a[7,1]<stderr>: b\n") == [(0, "stdout", b"a\n"), (1, "stderr", b"b\n")]
    assert untagged(b"mpirun says this\n") == []
