"""Hosts that come by themselves, and go: real `gangline launch` processes, whose ranks need no torch."""

from __future__ import annotations

import json
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
RANK = Path(__file__).with_name("bare_rank.py")
SAID = re.compile(r"on (\w+) rank (\d+) of (\d+) generation (\d+)")


class Hosts:
    """Launches of one rendezvous, as hosts of these names."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.stop = folder, folder / "stop"
        with socket.socket() as probe:
            probe.bind(("", 0))
            self.port = probe.getsockname()[1]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *words: str, job: str = "one", hostname: str = "") -> None:
        environment = os.environ | {
            "HOSTNAME": hostname or name,
            "PET_RDZV_ENDPOINT": f"localhost:{self.port}",
            "PET_RDZV_ID": job,
            "PET_NNODES": "1:3",
        }
        line = [sys.executable, "-m", "gangline", "launch", *words, "--", sys.executable, str(RANK)]
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

    assert hosts.processes["b"].wait(LIMIT_S) == 2
    assert "a host of job `other` came to the leader of another one" in hosts.log("b")
    assert hosts.last() == {("leader", "0", "1")}


def test_second_host_of_a_name_is_refused_while_the_first_answers(hosts: Hosts) -> None:
    hosts.start("leader")
    hosts.trains(("leader", "0", "1"))
    hosts.start("b")
    hosts.trains(("leader", "0", "2"), ("b", "1", "2"))

    hosts.start("other", hostname="b")
    assert hosts.processes["other"].wait(LIMIT_S) == 2
    assert "a host named `b` came to join, and a host at 127.0.0.1 has that name" in hosts.log("other")
    hosts.start("localhost")
    assert hosts.processes["localhost"].wait(LIMIT_S) == 2
    assert "the leader's own host has that name" in hosts.log("localhost")

    hosts.stop.touch()
    assert [hosts.processes[name].wait(LIMIT_S) for name in ("leader", "b")] == [0, 0]
    assert "generation 3" not in hosts.log("leader")


def test_second_host_of_a_name_takes_the_place_of_one_that_answers_no_more(hosts: Hosts) -> None:
    hosts.start("leader", "--max-restarts", "0")
    hosts.trains(("leader", "0", "1"))
    hosts.start("b")
    hosts.trains(("leader", "0", "2"), ("b", "1", "2"))

    hosts.processes["b"].send_signal(signal.SIGSTOP)
    hosts.start("again", hostname="b")
    hosts.wait_for(lambda: "generation 4" in hosts.log("leader"), "the one that came")
    hosts.trains(("leader", "0", "2"), ("b", "1", "2"))
    assert hosts.log("leader").count("it answers no more, and has come anew") == 1

    hosts.processes["b"].send_signal(signal.SIGCONT)  # what it had to say counts no more
    assert hosts.processes["b"].wait(LIMIT_S) == 1
    assert hosts.last() == {("leader", "0", "2"), ("b", "1", "2")}
    hosts.stop.touch()
    assert [hosts.processes[name].wait(LIMIT_S) for name in ("leader", "again")] == [0, 0]


class BareHost:
    """A host that says what it likes."""

    def __init__(self, port: int, name: str) -> None:
        self._connection = socket.create_connection(("localhost", port), LIMIT_S)
        self._lines = self._connection.makefile("rb")
        self._connection.sendall(json.dumps({"host": name, "slots": 1, "job": "one"}).encode() + b"\n")

    def __enter__(self) -> BareHost:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def started(self) -> int:
        """Wait for the number of the rank that it is to start."""
        while "start" not in (command := json.loads(self._lines.readline())):
            pass
        (number,) = command["start"]
        return int(number)

    def say(self, event: str, number: int, payload: str = "") -> None:
        self._connection.sendall(f"{event} {number} {len(payload)}\n{payload}".encode())


def test_host_speaks_of_its_own_ranks_alone(hosts: Hosts) -> None:
    hosts.start("leader", "--max-restarts", "0")
    hosts.trains(("leader", "0", "1"))
    with BareHost(hosts.port, "bare") as bare:
        own = bare.started()
        for number in (own - 1, own + 1):
            bare.say("out", number, "words of another\n")
            bare.say("failed", number, "it cannot")
            bare.say("exit", number, "137")
        bare.say("out", own, "own words\n")
        hosts.wait_for(lambda: "own words" in hosts.log("leader"), "its words")
        bare.say("exit", own, "no code")
        hosts.wait_for(
            lambda: "host bare was lost: it said what no host says" in hosts.log("leader"), "its end"
        )
    hosts.start("b")
    hosts.trains(("leader", "0", "2"), ("b", "1", "2"))

    assert "words of another" not in hosts.log("leader")
    assert "worker" not in hosts.log("leader")
