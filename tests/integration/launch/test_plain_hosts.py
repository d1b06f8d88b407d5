"""`gangline launch`, `gangline check` and `horovodrun` over three hosts with OpenSSH servers of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gangline.launch.preflight import ask as preflight
from plain_hosts import PlainHosts

pytestmark = pytest.mark.root

BIN = Path(sys.executable).parent
GANGLINE = str(BIN / "gangline")
HOROVODRUN = [sys.executable, "-m", "gangline.launch.horovodrun"]
SAY_PLACE = "echo $RANK/$WORLD_SIZE on $(hostname), local $LOCAL_RANK/$LOCAL_WORLD_SIZE, at $MASTER_ADDR"
MODES = pytest.mark.parametrize("mode", ["--mpi", "--no-mpi"])


@MODES
def test_ranks_run_on_the_hosts_that_the_plan_says_and_know_their_place(hosts: PlainHosts, mode: str) -> None:
    done = hosts.run(
        "h1", [GANGLINE, "launch", "-H", "h1:1,h2:2,h3:4", "-n", "4", mode, "--", "sh", "-c", SAY_PLACE]
    )

    assert done.returncode == 0, done.stderr
    assert {re.sub(r"^\[\d\] ", "", line) for line in done.stdout.splitlines()} == {
        "0/4 on h1, local 0/1, at h1",
        "1/4 on h2, local 0/2, at h1",
        "2/4 on h2, local 1/2, at h1",
        "3/4 on h3, local 0/1, at h1",
    }
    assert "preflight: 3 of 3 hosts answered" in done.stderr


@MODES
def test_programs_are_found_on_the_users_path_first(hosts: PlainHosts, mode: str, tmp_path: Path) -> None:
    """Where the MPI lies beside a Python, as its wheel does, that Python is not meant."""
    for name in ("python", "only-here"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho the right {name}\n")
        (tmp_path / name).chmod(0o755)

    for name in ("python", "only-here"):
        line = [GANGLINE, "launch", "-H", "h1:1,h2:1", mode, "--", name, "train.py"]
        done = hosts.run("h1", line, PATH=f"{tmp_path}:{os.environ['PATH']}")

        assert done.stdout.count(f"the right {name}\n") == 2, done.stdout + done.stderr


@MODES
def test_the_first_failed_rank_is_named_and_ends_all(hosts: PlainHosts, mode: str) -> None:
    mark = f"31.{os.getpid()}{mode.count('-')}"
    script = f"[ $RANK = 2 ] && exit 7; sleep {mark}1"

    done = hosts.run("h1", [GANGLINE, "launch", "-H", "h1:1,h2:2", mode, "--", "sh", "-c", script])

    assert done.returncode == 7
    assert "rank 2 of 3 on `h2` exited with code 7; all other ranks were ended" in done.stderr
    wait_until(lambda: not hosts.processes(mark))


@MODES
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ranks_end_with_the_launcher(
    hosts: PlainHosts, mode: str, number: signal.Signals, tmp_path: Path
) -> None:
    mark = f"27.{os.getpid()}{int(number)}{mode.count('-')}"
    line = [GANGLINE, "launch", "-H", "h1:1,h2:1", mode, "--", "sh", "-c", f"echo up; exec sleep {mark}1"]
    with (tmp_path / "log").open("wb") as log:
        launcher = subprocess.Popen(
            hosts.command("h1", *line), stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    wait_until(lambda: (tmp_path / "log").read_bytes().count(b"up\n") == 2)

    launcher.send_signal(number)

    code = launcher.wait(60)
    wait_until(lambda: not [line for line in hosts.processes(mark) if line.startswith("sleep")])
    if number == signal.SIGINT:
        assert code == 130, (tmp_path / "log").read_text()


def test_a_program_that_a_host_lacks_is_found_before_the_start(hosts: PlainHosts) -> None:
    done = hosts.run("h1", [GANGLINE, "launch", "-H", "h1:1,h2:1", "--", "no-such-program"])

    assert done.returncode == 3
    assert "program: h2: `no-such-program` is not on its PATH" in done.stderr
    assert "nothing was started" in done.stderr


def test_check_names_every_class_of_fault_with_its_fix_in_under_five_seconds(hosts: PlainHosts) -> None:
    """h1 and h2 are well; nobody has h9; 10.99.0.77 does not answer; h3 has no ssh server at this port."""
    hosts.serve("h1", 2200)
    hosts.serve("h2", 2200)
    line = [
        GANGLINE,
        "check",
        "-H",
        "h1,h2,h3,h9,10.99.0.77",
        "-p",
        "2200",
        "--interface",
        "eth7",
        "-o",
        "json",
    ]

    done = hosts.run("h1", line)
    answer = json.loads(done.stdout)

    assert (done.returncode, answer["ok"]) == (3, False)
    assert {(one["class"], one["host"]) for one in answer["findings"]} == {
        ("interface", "h1"),
        ("interface", "h2"),
        ("remote-shell", "h3"),
        ("name", "h9"),
        ("remote-shell", "10.99.0.77"),
    }
    assert all(one["fix"] for one in answer["findings"])
    assert preflight.LIMIT_S < 5
    assert answer["seconds"] < preflight.LIMIT_S + 5  # a busy machine takes its time for ending the shells
    assert answer["hosts"][0]["reaches"] == {"h2": True}


def test_check_of_healthy_hosts(hosts: PlainHosts) -> None:
    done = hosts.run("h1", [GANGLINE, "check", "-H", "h1:2,h2:2,h3:2"])

    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["CHECK", "ok", "ok", "ok"]


def test_another_mpi_on_a_host_is_found(hosts: PlainHosts, tmp_path: Path) -> None:
    """This machine's mpirun says 4.1.4 here; the hosts have the one beside Gangline."""
    program = tmp_path / "bin" / "mpirun"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\n[ "$(hostname)" = h1 ] && echo "mpirun (Open MPI) 4.1.4" && exit\n'
        'echo "mpirun (Open MPI) 5.0.11"\n'
    )
    program.chmod(0o755)

    done = hosts.run("h1", [GANGLINE, "check", "-H", "h1,h2"], PATH=f"{program.parent}:{os.environ['PATH']}")

    assert done.returncode == 3
    assert "error[mpi-mismatch]: h2:" in done.stderr


@pytest.mark.parametrize("mode", [["--mpi"], ["--gloo"]])
def test_horovodrun_starts_as_many_ranks_as_asked_for_over_another_port(
    hosts: PlainHosts, mode: list[str]
) -> None:
    for name in ("h2", "h3"):
        hosts.serve(name, 2300)
    rank = "${HOROVOD_RANK:-$OMPI_COMM_WORLD_RANK}/${HOROVOD_SIZE:-$OMPI_COMM_WORLD_SIZE}"
    script = f"echo {rank} on $(hostname) over $NCCL_SOCKET_IFNAME"

    done = hosts.run(
        "h1", [*HOROVODRUN, *mode, "-np", "3", "-H", "h2:2,h3:2", "-p", "2300", "sh", "-c", script]
    )

    assert done.returncode == 0, done.stderr
    assert {re.sub(r"^\[[\d,]+\]<stdout>: ?", "", line) for line in done.stdout.splitlines()} == {
        "0/3 on h2 over eth0",
        "1/3 on h2 over eth0",
        "2/3 on h3 over eth0",
    }


@pytest.mark.parametrize(
    ("mode", "others", "silent"),
    [
        ("--no-mpi", "its host answered, waits for the others", "waits for its host"),
        ("--mpi", "not started by mpirun yet", "its host did not answer"),
    ],
)
def test_a_start_that_hangs_ends_at_its_deadline_with_the_state_of_every_rank(
    hosts: PlainHosts, tmp_path: Path, mode: str, others: str, silent: str
) -> None:
    """h2's remote shell connects and says nothing."""
    mark = f"29.{os.getpid()}{mode.count('-')}"
    shell = tmp_path / "slow-shell"
    shell.write_text(
        f'#!/bin/sh\nfor word in "$@"; do [ "$word" = h2 ] && exec sleep {mark}1; done\nexec ssh "$@"\n'
    )
    shell.chmod(0o755)
    line = [GANGLINE, "launch", "-H", "h1:1,h2:2", mode, "--remote-shell", str(shell), "--start-timeout", "5"]

    done = hosts.run("h1", [*line, "--", "true"])

    assert done.returncode == 3
    assert "not all ranks were started within 5 s; all were ended" in done.stderr
    assert re.search(rf"^0 +h1 +{others}", done.stderr, re.MULTILINE), done.stderr
    assert re.search(rf"^1-2 +h2 +{silent}", done.stderr, re.MULTILINE), done.stderr
    wait_until(lambda: not [line for line in hosts.processes(mark) if line.startswith("sleep")])


ANSWERS_QUESTIONS_ONLY = """#!/bin/sh
case "$SSH_ORIGINAL_COMMAND" in
*prted*|*orted*|*hydra*) while kill -0 $PPID 2>/dev/null; do sleep 0.1; done ;;
*) exec sh -c "$SSH_ORIGINAL_COMMAND" ;;
esac
"""


def test_horovodruns_mpirun_ends_at_its_deadline_though_a_host_never_starts_its_daemon(
    hosts: PlainHosts, tmp_path: Path
) -> None:
    """h3's ssh server takes the connection and answers the questions before the start, and then no more."""
    script = tmp_path / "hang"
    script.write_text(ANSWERS_QUESTIONS_ONLY)
    script.chmod(0o755)
    for name in hosts.names:
        hosts.serve(name, 2400, **({"ForceCommand": script} if name == "h3" else {}))
    before = {name: hosts.sessions(name).keys() for name in hosts.names}
    line = [*HOROVODRUN, "--mpi", "--start-timeout", "10", "-p", "2400", "-H", "h1:1,h2:1,h3:1", "-np", "3"]

    done = hosts.run("h1", [*line, "sh", "-c", "echo never"])  # has a limit of its own

    assert done.returncode == 3, done.stdout + done.stderr
    assert "never" not in done.stdout
    assert "not all ranks were started within 10 s; all were ended" in done.stderr
    for rank, host in enumerate(hosts.names):
        state = rf"^{rank} +{host} +not started by mpirun yet"
        assert re.search(state, done.stderr, re.MULTILINE), done.stderr
    wait_until(lambda: all(hosts.sessions(name).keys() <= before[name] for name in hosts.names))


@pytest.fixture
def unreachable(hosts: PlainHosts) -> Iterator[None]:
    """Let h2 not reach h3 while a test runs."""
    for word in ("add", "del"):
        hosts.run("h2", f"ip route {word} prohibit 10.99.0.3/32".split())
        if word == "add":
            yield


@pytest.mark.usefixtures("unreachable")
def test_hosts_that_do_not_reach_each_other_are_found_although_ssh_reaches_both(hosts: PlainHosts) -> None:
    done = hosts.run("h1", [GANGLINE, "check", "-H", "h1,h2,h3", "-o", "json"])

    assert done.returncode == 3
    faults = {(one["class"], one["host"]) for one in json.loads(done.stdout)["findings"]}
    assert faults == {("port", "h2"), ("port", "h3")}


@pytest.mark.parametrize("mode", ["--mpi", "--no-mpi"])
def test_a_host_that_is_lost_ends_all_and_is_named(hosts: PlainHosts, mode: str, tmp_path: Path) -> None:
    mark = f"28.{os.getpid()}{mode.count('-')}"
    line = [GANGLINE, "launch", "-H", "h1:1,h2:1", mode, "--", "sh", "-c", f"echo up; exec sleep {mark}1"]
    with (tmp_path / "log").open("wb") as log:
        launcher = subprocess.Popen(
            hosts.command("h1", *line), stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    wait_until(lambda: (tmp_path / "log").read_bytes().count(b"up\n") == 2)

    hosts.end_sessions("h2")

    code, log_text = launcher.wait(60), (tmp_path / "log").read_text()
    assert code == 1, log_text
    assert re.search(r"^error\[job-failed\]: .*host `h2`", log_text, re.MULTILINE), log_text
    wait_until(lambda: not [line for line in hosts.processes(mark) if line.startswith("sleep")])


def wait_until(is_so: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
