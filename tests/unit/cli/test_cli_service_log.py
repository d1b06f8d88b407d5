"""The log of a daemon is bounded, and every line of it is in one of its two files."""

import os
from pathlib import Path

from gangline.cluster.service_log import ServiceLog


def test_a_long_log_becomes_the_old_one_and_a_fresh_one_begins(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    log = ServiceLog(path, descriptor=descriptor, bytes_max=1000)

    for n in range(300):
        log.write(f"line {n:10}\n")
    os.close(descriptor)

    old = path.with_suffix(".log.old")
    assert path.stat().st_size <= 1100 and old.stat().st_size <= 1100
    lines = [line for line in (old.read_text() + path.read_text()).splitlines() if line.startswith("line")]
    assert lines == [f"line {n:10}" for n in range(300 - len(lines), 300)]
    assert len(lines) > 60


def test_a_log_that_is_too_long_at_the_start_is_put_away(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    path.write_text("x" * 2000)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)

    ServiceLog(path, descriptor=descriptor, bytes_max=1000).write("new\n")
    os.close(descriptor)

    assert path.with_suffix(".log.old").read_text() == "x" * 2000
    assert path.read_text().endswith("new\n")


def test_standard_error_that_is_another_file_is_left_alone(tmp_path: Path) -> None:
    path, other = tmp_path / "server.log", tmp_path / "other"
    path.write_text("x" * 2000)
    with other.open("w") as opened:
        ServiceLog(path, descriptor=opened.fileno(), bytes_max=1000).write("a\udcff\n")

    assert path.stat().st_size == 2000
    assert other.read_text() == "a?\n"
