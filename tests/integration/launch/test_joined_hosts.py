"""Hosts that come by themselves, and go: real `gangline launch` processes, whose ranks need no torch."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

LIMIT_S = 40.0
RANK = """
import os, sys, time
from pathlib import Path
from gangline.train.elastic.board import Board
board, stop = Board.of(os.environ), Path(sys.argv[1])
while (place := board.join()) is not None:
    print("on", os.environ.get("HOSTNAME"), "rank", place["RANK"], "of", place["WORLD_SIZE"],
          "generation", board.generation, flush=True)
    while not board.is_changing():
        if stop.exists():
            sys.exit(0)
        time.sleep(0.02)
"""
SAID = re.compile(r"on (\w+) rank (\d+) of (\d+) generation (\d+)")


class Hosts:
    """Launches of one rendezvous, as hosts of these names."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.stop = folder, folder / "stop"
        self.script = folder / "rank.py"
        self.script.write_text(RANK)
        with socket.socket() as probe:
            probe.bind(("", 0))
            self.port = probe.getsockname()[1]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *words: str, job: str = "one") -> None:
        environment = os.environ | {
            "HOSTNAME": name,
            "PET_RDZV_ENDPOINT": f"localhost:{self.port}",
            "PET_RDZV_ID": job,
            "PET_NNODES": "1:3",
        }
        line = [sys.executable, "-m", "gangline", "launch", *words, "--", sys.executable, str(self.script)]
        with (self.folder / name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [*line, str(self.stop)], env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    def log(self, name: str) -> str:
        return (self.folder / name).read_text()

    def last(self) -> set[tuple[str, ...]]:
        """Return host, rank and size of all that the leader shows of the newest generation."""
        said = SAID.findall(self.log("leader"))
        return {one[:3] for one in said if one[3] == said[-1][3]}

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            logs = "\n".join(f"{name}: {self.log(name)}" for name in self.processes)
            assert time.monotonic() < deadline, f"waited for {what}: {logs}"
            time.sleep(0.05)

    def trains(self, *places: tuple[str, str, str]) -> None:
        self.wait_for(lambda: self.last() == set(places), str(places))


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path)
    yield hosts
    for process in hosts.processes.values():
        process.kill()
        process.wait()


def test_hosts_join_leave_when_asked_and_are_lost(hosts: Hosts) -> None:
    hosts.start("leader", "--max-restarts", "0")
    hosts.trains(("leader", "0", "1"))
    hosts.start("b")
    hosts.trains(("leader", "0", "2"), ("b", "1", "2"))
    hosts.start("c")
    hosts.trains(("leader", "0", "3"), ("b", "1", "3"), ("c", "2", "3"))

    hosts.processes["b"].terminate()
    hosts.trains(("leader", "0", "2"), ("c", "1", "2"))
    assert hosts.processes["b"].wait(LIMIT_S) == 128 + signal.SIGTERM
    assert "lost" not in hosts.log("leader")  # it left between two generations

    hosts.processes["c"].kill()
    hosts.trains(("leader", "0", "1"))
    hosts.start("c")
    hosts.trains(("leader", "0", "2"), ("c", "1", "2"))

    hosts.stop.touch()
    assert [hosts.processes[name].wait(LIMIT_S) for name in ("leader", "c")] == [0, 0]


def test_who_leads_is_missed_by_those_that_joined(hosts: Hosts) -> None:
    hosts.start("leader")
    hosts.trains(("leader", "0", "1"))
    hosts.start("b")
    hosts.trains(("leader", "0", "2"), ("b", "1", "2"))

    hosts.processes["leader"].kill()

    assert hosts.processes["b"].wait(LIMIT_S) == 1
    assert f"the leader at localhost:{hosts.port} is gone" in hosts.log("b")


def test_host_of_another_job_does_not_join(hosts: Hosts) -> None:
    hosts.start("leader")
    hosts.trains(("leader", "0", "1"))
    hosts.start("b", job="other")

    assert hosts.processes["b"].wait(LIMIT_S) == 1
    assert hosts.last() == {("leader", "0", "1")}
