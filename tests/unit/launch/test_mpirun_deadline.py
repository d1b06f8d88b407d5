"""Ranks that never begin end an `mpirun` at its deadline; its output passes as it is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gangline.launch import mpirun_deadline
from gangline.launch.hosts import Host, RankHost, plan_ranks
from gangline.launch.mpirun_deadline import Beginnings, run_until_begun, saying_command
from gangline.launch.rank_start import StartError
from gangline.train.stacks import process_state

BEGAN = ["[1,0]<stdout>: gangline-rank-began 0 a\n", "[1] gangline-rank-began 1 b\n"]
LIMIT_S = 60.0


@pytest.fixture
def places() -> list[RankHost]:
    return plan_ranks([Host("a", 1), Host("b", 1)], 2)


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_lines_of_ranks_that_begin_are_not_shown(places: list[RankHost], size: int) -> None:
    beginnings, shown = Beginnings(places), b""
    log = f"[1,0]<stdout>: x\n{BEGAN[0]}[1,0]<stdout>: 50 %\r60 %\n{BEGAN[1]}last".encode()
    for start in range(0, len(log), size):
        shown += beginnings.feed(log[start : start + size])

    assert shown + beginnings.flush() == b"[1,0]<stdout>: x\n[1,0]<stdout>: 50 %\r60 %\nlast"
    assert beginnings.all_began
    assert [state.state for state in beginnings.states] == ["runs on a", "runs on b"]


def test_nothing_is_held_back_once_all_have_begun(places: list[RankHost]) -> None:
    beginnings = Beginnings(places)
    beginnings.feed("".join(BEGAN).encode())

    assert beginnings.feed(b"half a line") == b"half a line"


def test_line_like_a_rank_that_is_not_there_is_shown(places: list[RankHost]) -> None:
    assert Beginnings(places).feed(b"gangline-rank-began 7 a\n") == b"gangline-rank-began 7 a\n"


def both_ranks(script: str) -> list[str]:
    """Return a stand-in for mpirun: two ranks one after the other."""
    command = " ".join(f"'{word}'" for word in saying_command(["sh", "-c", "REPLACED"]))
    line = "; ".join(f"OMPI_COMM_WORLD_RANK={rank} {command}" for rank in (0, 1))
    return ["sh", "-c", line.replace("REPLACED", script)]


def test_exit_code_and_output_of_mpirun_are_handed_on(places: list[RankHost], capfd) -> None:
    line = both_ranks("echo hello; exit 3")

    assert run_until_begun(line, os.environ, places, LIMIT_S) == 3
    assert capfd.readouterr().out == "hello\nhello\n"


def run_until_there(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Let the start's time be up once a file is written and the output until then was read."""
    looks = 0

    def monotonic() -> float:
        nonlocal looks
        looks += file.exists() and file.stat().st_size > 0
        return 0.0 if looks <= 4 else 1e6  # two looks in each turn

    monkeypatch.setattr(mpirun_deadline, "time", SimpleNamespace(monotonic=monotonic))


def test_start_that_hangs_ends_with_the_state_of_every_rank(
    places: list[RankHost], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ["sh", "-c", "echo gangline-rank-began 0 node-a; echo $$ > pid; exec sleep 600"]
    monkeypatch.chdir(tmp_path)
    run_until_there(monkeypatch, tmp_path / "pid")

    with pytest.raises(StartError) as caught:
        run_until_begun(line, os.environ, places, 1.0)

    message = caught.value.render()
    assert "not all ranks were started within 1 s; all were ended" in message
    assert "runs on node-a" in message
    assert "not started by mpirun yet" in message
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_launcher_that_does_not_end_is_killed_with_all_that_it_started(
    places: list[RankHost], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ["sh", "-c", "trap '' TERM; (trap '' TERM; exec sleep 600) & echo $! > child; wait"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mpirun_deadline, "END_LIMIT_S", 0.2)
    run_until_there(monkeypatch, tmp_path / "child")

    with pytest.raises(StartError):
        run_until_begun(line, os.environ, places, 0.1)

    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + LIMIT_S
    while process_state(child) != "its process has ended":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_reader_that_leaves_ends_mpirun(places: list[RankHost], tmp_path: Path) -> None:
    program = (
        "import os, sys; from gangline.launch.hosts import Host, plan_ranks; "
        "from gangline.launch.mpirun_deadline import run_until_begun; "
        "sys.exit(run_until_begun(['sh', '-c', 'yes'], os.environ, plan_ranks([Host('a', 1)], 1), 20))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stderr
    assert process.stdout.readline() == "y\n"
    process.stdout.close()

    assert process.wait(LIMIT_S) == 141
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
