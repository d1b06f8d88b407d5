"""Parts of the shim that need no shim: log files, processes, imports; and what is kept of old logs."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gangline.cluster.node.shim
from gangline.cluster.node.leftovers import Leftover, choose_expired
from gangline.cluster.node.shim.logfile import LINE_LIMIT_BYTES, UNFINISHED_S, LogFile
from gangline.cluster.node.shim.processes import descendants, environment_of, is_zombie


def records(path: Path) -> list[tuple[str, str, str]]:
    lines = path.read_text().splitlines()
    pattern = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (\w+) ([FP]) (.*)$")
    return [pattern.match(line).groups() for line in lines]


def test_log_that_cannot_be_rotated_loses_lines_and_nothing_else(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    log = LogFile(str(folder / "0.log"), rotate_bytes=10)
    shutil.rmtree(folder)

    log.write(b"stdout", b"longer than the limit\n")
    log.write(b"stdout", b"and more of it\n")
    log.close()


def test_log_lines_carry_time_stream_and_tag(tmp_path):
    log = LogFile(str(tmp_path / "0.log"))
    log.write(b"stdout", b"one\ntw")
    log.write(b"stderr", b"err\n")
    log.write(b"stdout", b"o\nrest")
    log.close()

    assert records(tmp_path / "0.log") == [
        ("stdout", "F", "one"),
        ("stderr", "F", "err"),
        ("stdout", "F", "two"),
        ("stdout", "F", "rest"),
    ]


def test_long_line_is_split_into_parts(tmp_path):
    log = LogFile(str(tmp_path / "0.log"))
    log.write(b"stdout", b"x" * 40000 + b"\n")
    log.close()

    found = records(tmp_path / "0.log")
    assert [tag for _, tag, _ in found] == ["P", "P", "F"]
    assert sum(len(text) for *_, text in found) == 40000


def test_a_line_that_stays_unfinished_is_written_in_parts(tmp_path):
    log = LogFile(str(tmp_path / "0.log"))
    log.write(b"stderr", b"\r 10%")
    due_s = log.due_s()
    log.write_unfinished(due_s - 0.001)
    assert records(tmp_path / "0.log") == []

    log.write_unfinished(due_s)
    assert log.due_s() is None
    log.write(b"stderr", b"\r 20%\nnext")
    log.write_unfinished(log.due_s())
    log.close()

    texts = (tmp_path / "0.log").read_bytes().split(b"\n")[:-1]
    assert [text.split(b" ", 2)[2] for text in texts] == [b"P \r 10%", b"F \r 20%", b"P next", b"F "]


def test_a_flood_of_carriage_returns_costs_no_more_than_its_bytes_and_ten_times_a_second(
    tmp_path, monkeypatch
):
    clock_s = 0.0
    monkeypatch.setattr("gangline.cluster.node.shim.logfile.time.monotonic", lambda: clock_s)
    log = LogFile(str(tmp_path / "0.log"))
    chunk = b"\r 10% of it" * 100
    written, looks = 0, 200
    for _ in range(looks):  # the shim looks after every piece: two milliseconds apart here
        log.write(b"stderr", chunk)
        written += len(chunk)
        log.write_unfinished(clock_s)
        clock_s += 0.002
    log.close()

    parts = looks * 0.002 / UNFINISHED_S + written / LINE_LIMIT_BYTES + 2
    assert (tmp_path / "0.log").stat().st_size <= written + parts * len(
        "2026-01-01T00:00:00.000000000Z stderr P \n"
    )


def test_log_is_rotated_between_lines_and_old_files_go(tmp_path):
    log = LogFile(str(tmp_path / "0.log"), rotate_bytes=200, keep_files=3)
    for number in range(30):
        log.write(b"stdout", b"line %d\n" % number)
    log.close()

    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    texts = [text for path in files[1:] + files[:1] for *_, text in records(path)]
    assert texts[-1] == "line 29"
    assert texts == sorted(texts, key=lambda text: int(text.split()[1]))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_descendants_are_found_and_told_from_zombies():
    command = "sleep 60 & echo $!; wait"
    with subprocess.Popen(
        ["sh", "-c", command], stdout=subprocess.PIPE, env={"MARK": "x", "PATH": "/bin"}
    ) as shell:
        child = int(shell.stdout.readline())
        try:
            while environment_of(child).get("MARK") != "x":  # at its exec its new memory has none yet
                pass
            assert descendants(shell.pid) == [child]
            assert descendants(shell.pid, without=[child]) == []
            assert not is_zombie(child)
        finally:
            subprocess.run(["kill", str(child)], check=True)
            shell.wait()
    assert is_zombie(shell.pid)


def test_shim_imports_nothing_but_the_standard_library_and_itself():
    imports = "import sys; sys.path.append(sys.argv[1]); import gangline.cluster.node.shim.fork_server"
    script = f"{imports}; print(*sys.modules)"
    root = str(Path(gangline.cluster.node.shim.__file__).parents[4])

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, root], capture_output=True, text=True, check=True
    )

    foreign = {name for name in done.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names}
    own = {name for name in foreign if name.startswith("gangline")}
    assert foreign - {"__main__"} == own
    assert all(name.startswith("gangline.cluster.node.shim") for name in own if name.count(".") > 2)


def folder(uid, used_at, size=1):
    return Leftover(Path(uid), uid, used_at, size)


def test_logs_of_gone_pods_go_when_old_and_the_oldest_when_too_big():
    folders = [folder("old", 0.0), folder("living", 0.0, 100), folder("a", 90.0, 6), folder("b", 95.0, 6)]

    found = choose_expired(folders, living={"living"}, now_s=100.0, age_max_s=50.0, bytes_max=10)

    assert [item.uid for item in found] == ["old", "a"]
