"""Heartbeats over real sockets, and an inspector that looks at a real process; without torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.train.heartbeat import HeartbeatSocket, place_of
from gangline.train.process_inspector import ProcessInspector, ask, look_at
from gangline.train.rendezvous import process_name

LIMIT_S = 60.0


def fact_of(pid: int) -> dict[str, Any]:
    return {"pid": pid, "process": process_name(pid), "stack_file": ""}


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_beat_arrives_and_a_strangers_does_not() -> None:
    one, two, stranger = HeartbeatSocket(), HeartbeatSocket(), HeartbeatSocket()
    facts = [
        {"node": "a", "addresses": [], "beat_key": socket.key, "beat_port": socket.port}
        for socket in (one, two)
    ]
    place = place_of(facts, 0, 1, two.port)
    assert place is not None

    stranger.send(0, {"step": 6}, [place])
    one.send(0, {"step": 7}, [place])

    deadline, found = time.monotonic() + LIMIT_S, []
    while not found and time.monotonic() < deadline:
        found = two.receive(facts)
    assert [(rank, beat["step"]) for rank, beat in found] == [(0, 7)]
    for socket in (one, two, stranger):
        socket.close()


def test_ranks_of_other_nodes_are_reached_at_their_address() -> None:
    facts: list[dict[str, Any]] = [
        {"node": "a", "addresses": ["10.0.0.1"]},
        {"node": "b", "addresses": ["10.0.0.2", "192.168.0.2"]},
        {"node": "c", "addresses": []},
    ]

    assert place_of(facts, 0, 1, 5000) == ("10.0.0.2", 5000)
    assert place_of(facts, 0, 1, 0) is None
    assert place_of(facts, 0, 2, 5000) is None


def test_inspector_tells_of_processes_of_its_node(sleeper: subprocess.Popen[bytes]) -> None:
    stopped = fact_of(sleeper.pid)
    gone = {**fact_of(os.getpid()), "process": "another process with this id"}
    sleeper.send_signal(signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    inspector = ProcessInspector("the key")
    try:
        place = ("127.0.0.1", inspector.port)

        answers = ask([(place, "the key", 3, stopped), (place, "the key", 5, gone)])

        assert answers[3][0].startswith("its process is stopped (SIGSTOP or a terminal)")
        assert answers[5] == ("its process has ended", "")
        assert look_at(stopped) == answers[3]
    finally:
        inspector.close()


def test_inspector_ends_with_its_starter(tmp_path: Any) -> None:
    line = "import sys; from gangline.train.process_inspector import ProcessInspector"
    line += "; inspector = ProcessInspector('k'); print(inspector._process.pid, flush=True)"
    starter = subprocess.Popen(
        [sys.executable, "-c", f"{line}; sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert starter.stdin and starter.stdout
    inspector = int(starter.stdout.readline())
    assert process_name(inspector)

    starter.kill()
    starter.communicate()

    deadline = time.monotonic() + LIMIT_S
    while _runs(inspector):
        assert time.monotonic() < deadline, "the inspector goes on"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    """Return whether a process runs; one that nobody has waited for yet does not."""
    from gangline.train.stacks import process_state

    return bool(process_name(pid)) and process_state(pid) != "its process has ended"


WATCHED_RANK = """
import json, os, sys, time
from pathlib import Path
from gangline.train.heartbeat import HeartbeatSocket
from gangline.train.environment import Ranks
from gangline.train.traffic import Traffic
from gangline.train.rendezvous import process_name
from gangline.train.stacks import StackFile
from gangline.train.silence.watch import Watch

class NoStore:
    def set(self, key, value): pass
    def check(self, keys): return False

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
beats, stack_file = HeartbeatSocket(), StackFile()
mine = {"node": f"node-{rank}", "addresses": ["127.0.0.1"], "pid": os.getpid()}
mine |= {"process": process_name(os.getpid()), "stack_file": stack_file.path}
mine |= {"beat_port": beats.port, "beat_key": beats.key}
Path(f"draft-{rank}").write_text(json.dumps(mine))
Path(f"draft-{rank}").rename(f"fact-{rank}")
files = [Path(f"fact-{other}") for other in range(size)]
while not all(file.exists() for file in files):
    time.sleep(0.01)
facts = [json.loads(file.read_text()) for file in files]
place = Ranks(rank, size, local_rank=0, local_size=1)
watch = Watch(place, facts, NoStore(), Traffic(), stack_file, beats, silent_after_s=2)
watch.start()
watch.expect_steps(0)
while len(watch._seen) < size - 1:
    time.sleep(0.01)
print("heard all", flush=True)
time.sleep(600)
"""


def test_ranks_of_other_nodes_that_stop_are_named_without_a_store(ranks: Any, tmp_path: Path) -> None:
    """Rank 0 among them, with which the store lies; what their nodes see is told."""
    script = tmp_path / "script.py"
    script.write_text(WATCHED_RANK)
    ranks.start(sys.executable, script, 3)
    ranks.wait_for(lambda: "heard all" in ranks.log(2), "beats of all ranks")

    for process in ranks.processes[:2]:
        process.send_signal(signal.SIGSTOP)

    ranks.wait_for(lambda: ranks.log(2).count('"kind":"silence"') == 2, "the silence of two ranks")
    told = sorted(line for line in ranks.log(2).splitlines() if "silent since step 0" in line)
    assert [line.split()[1:5] for line in told] == [
        ["rank", "0", "on", "node-0"],
        ["rank", "1", "on", "node-1"],
    ]
    assert all("its process is stopped" in line for line in told)
    assert '"kind":"silence"' not in ranks.log(1)
