"""A log is read through all files that it was rotated into, from the first that is kept."""

import pytest

from gangline.cluster.log_files import LogQuery, LogReader
from gangline.cluster.node.shim.logfile import LogFile


def lines(first, end):
    return b"".join(b"line %d\n" % number for number in range(first, end))


@pytest.fixture
def log(tmp_path):
    found = LogFile(str(tmp_path / "0.log"), rotate_bytes=200, keep_files=8)  # five lines each
    yield found
    found.close()


@pytest.fixture
def read_all(tmp_path):
    reader = LogReader(tmp_path / "0.log", LogQuery())
    yield lambda: b"".join(iter(reader.read, b""))
    reader.close()


def write(log, first, end):
    for number in range(first, end):
        log.write(b"stdout", b"line %d\n" % number)


def test_a_reader_that_is_overtaken_by_rotations_misses_nothing(log, read_all):
    write(log, 0, 3)
    assert read_all() == lines(0, 3)
    write(log, 3, 30)

    assert read_all() == lines(3, 30)
    write(log, 30, 31)
    assert read_all() == lines(30, 31)
    assert read_all() == b""


def test_a_log_is_read_from_the_oldest_file_that_is_kept(log, read_all):
    write(log, 0, 30)

    assert read_all() == lines(0, 30)


def test_files_that_were_removed_before_they_were_reached_are_left_out(log, read_all):
    write(log, 0, 3)
    read_all()
    write(log, 3, 100)
    left = read_all()

    assert left.startswith(b"line 3\nline 4\n")  # of the file that is still open
    assert left.endswith(lines(70, 100))
    numbers = [int(line.split()[1]) for line in left.splitlines()]
    assert numbers == sorted(set(numbers))


def test_the_last_lines_are_those_of_the_newest_file(log, tmp_path):
    write(log, 0, 13)
    reader = LogReader(tmp_path / "0.log", LogQuery(tail_lines=2))

    assert reader.read() == lines(11, 13)
    reader.close()
