"""Ranks of two pods that start again together, as processes with an agent between them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.launch.test_rank_agent import LIMIT_S, free_port, make_agent, until

from gangline.client.run.cluster_program import FIRST_POD_PROGRAMS, PROGRAMS
from gangline.launch.pods.programs import source_of

Start = Callable[..., list["subprocess.Popen[bytes]"]]

COUNT = """
import os, sys, time
tries = sys.argv[1] + "/" + os.environ["RANK"]
open(tries, "a").write("x")
print(os.environ["JOB_COMPLETION_INDEX"], os.path.getsize(tries), flush=True)
if os.path.getsize(tries) < int(sys.argv[2]):
    if os.environ["RANK"] == sys.argv[3]:
        files = [sys.argv[1] + "/" + rank for rank in "0123"]
        while {os.path.exists(file) and os.path.getsize(file) for file in files} != {os.path.getsize(tries)}:
            time.sleep(0.01)
        sys.exit(6)
    time.sleep(99)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    folder = make_agent(tmp_path / "programs")
    for name in (*PROGRAMS, *FIRST_POD_PROGRAMS):
        (folder / name).write_text(source_of(name))
    port = str(free_port())

    started: list[subprocess.Popen[bytes]] = []

    def run(*words: str, restarts: int) -> list[subprocess.Popen[bytes]]:
        line = [sys.executable, str(folder / "pod_ranks.py"), "--ranks", "4", "--per-pod", "2"]
        line += ["--master", "first", "--restarts", str(restarts), "--hosts", "127.0.0.1,127.0.0.1", "--"]
        environment = {"PATH": os.environ["PATH"], "GANGLINE_AGENT_PORT": port}
        started[:] = [
            subprocess.Popen(
                [*line, *words],
                env=environment | {"JOB_COMPLETION_INDEX": str(pod)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for pod in (0, 1)
        ]
        return started

    yield run
    for one in started:
        one.kill()
        one.wait()


@pytest.mark.parametrize("failing", ["1", "2"])
def test_a_failed_rank_has_those_of_all_pods_start_again(start: Start, tmp_path: Path, failing: str) -> None:
    pods = start("python3", "-c", COUNT, str(tmp_path), "3", failing, restarts=5)
    said = [pods[0].communicate(timeout=LIMIT_S)[0]]

    assert [pod.wait(LIMIT_S) for pod in pods] == [0, 0], said
    assert [(tmp_path / rank).stat().st_size for rank in "0123"] == [3] * 4
    last = {line for line in said[0].splitlines() if line.endswith(b" 3")}
    assert last == {b"[1,%d]<stdout>: %d 3" % (rank, rank // 2) for rank in range(4)}
    assert said[0].count(b"gangline: exit code 6: all ranks start again") == 2


def test_after_the_last_restart_the_first_pod_has_the_code_of_the_rank(start: Start, tmp_path: Path) -> None:
    first, second = start("python3", "-c", COUNT, str(tmp_path), "9", "3", restarts=1)
    out, _ = first.communicate(timeout=LIMIT_S)

    assert first.returncode == 6
    assert out.splitlines().count(b'@gangline {"kind":"rank-ended","rank":3,"code":6}') == 2
    second.terminate()
    assert second.wait(LIMIT_S) == 143


def test_a_pod_that_is_killed_counts_as_a_failure_and_is_waited_for(start: Start, tmp_path: Path) -> None:
    first, second = start("python3", "-c", COUNT, str(tmp_path), "2", "none", restarts=1)
    until(lambda: all((tmp_path / rank).exists() for rank in "0123"))
    second.kill()
    second.wait(LIMIT_S)
    back = subprocess.Popen(
        second.args,
        env={**os.environ, "JOB_COMPLETION_INDEX": "1", "GANGLINE_AGENT_PORT": _port_of(first)},
        stdout=subprocess.PIPE,
    )
    out, _ = first.communicate(timeout=LIMIT_S)

    assert (first.returncode, back.wait(LIMIT_S)) == (0, 0), out
    assert b"gangline: lost with their supervisor or pod: rank 2, 3" in out


def test_a_first_pod_that_is_asked_to_end_ends_the_ranks_of_all(start: Start, tmp_path: Path) -> None:
    first, second = start("python3", "-c", COUNT, str(tmp_path), "2", "none", restarts=1)
    until(lambda: all((tmp_path / rank).exists() for rank in "0123"))
    first.send_signal(signal.SIGTERM)

    first.communicate(timeout=LIMIT_S)
    assert first.returncode == 143
    assert [(tmp_path / rank).stat().st_size for rank in "0123"] == [1] * 4
    second.terminate()
    assert second.wait(LIMIT_S) == 143


def _port_of(process: subprocess.Popen[bytes]) -> str:
    words = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    return next(word.partition(b"=")[2].decode() for word in words if word.startswith(b"GANGLINE_AGENT_PORT"))
