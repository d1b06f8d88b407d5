"""Ranks as real processes, watched from outside: the hook of their start, /proc, and what is said in the end.

The clock that the watch is given goes ten times as fast as the processes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gangline.launch.rank_watch import RANKS_OF, watched
from gangline.train import rank_processes
from gangline.train.rank_processes import find_ranks
from gangline.train.rank_watch import RankWatch
from gangline.train.waiting import LOOK_PERIOD_S

HASTE = 10
BIN = Path(sys.executable).parent
MPIRUN = ["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none"]
MPI_SCRIPT = """
import sys, time
from mpi4py import MPI
def spin():
    while True:
        pass
def step():
    MPI.COMM_WORLD.Barrier()
while True:
    if sys.argv[1] == "hang" and MPI.COMM_WORLD.rank == 1:
        spin()
    step()
    time.sleep(0.05)
"""

TORCH_SCRIPT = """
import sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
def spin():
    while True:
        pass
dist.init_process_group("gloo")
how, rank = sys.argv[1], dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(10, 10))
print("up", flush=True)
for step in range(1000000):
    if step == 20 and rank == 1 and how == "spin":
        spin()
    if step == 20 and rank == 1 and how == "sleep":
        time.sleep(600)
    if step % 20 == 19 and rank == 0 and how == "evaluate":
        time.sleep(8)
    if how != "backward":
        dist.all_reduce(torch.ones(1))
    model(torch.ones(2, 10)).sum().backward()
    time.sleep(0.02)
"""


def follow(
    watch: RankWatch, seconds: float, until: Callable[[list[str]], bool] = lambda _: False
) -> list[str]:
    """Return what is said while the watch believes that so much time passes, or until that is enough."""
    said: list[str] = []
    now_s = HASTE * time.monotonic()
    until_s = now_s + seconds
    while now_s < until_s and not until(said):
        time.sleep(LOOK_PERIOD_S / HASTE)
        now_s = HASTE * time.monotonic()
        said += [one.text for _, one in watch.look(now_s)]
    return said


def test_mpi4py_rank_that_never_reaches_the_barrier_is_named(ranks, program: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(MPI_SCRIPT)
    run_mpi(ranks, tmp_path, program, "hang")

    (line,) = follow(RankWatch(program), 600, bool)

    assert line.startswith("1 other rank has waited for rank 1 for ")
    assert re.search(r"is at script.py:[56] spin < script.py:11 <module>", line)
    assert "waits at script.py:8 step" in line


def test_mpi4py_ranks_that_get_on_are_never_named(ranks, program: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(MPI_SCRIPT)
    run_mpi(ranks, tmp_path, program, "go on")
    wait_for_ranks(program, 2)

    assert follow(RankWatch(program), 120) == []


def test_stopped_rank_is_named_and_its_going_on_too(ranks, program: str, tmp_path: Path) -> None:
    start(ranks, tmp_path, program, 2, "import time\ntime.sleep(300)")
    wait_for_ranks(program, 2)
    watch = RankWatch(program)
    follow(watch, 20)
    ranks.processes[1].send_signal(signal.SIGSTOP)

    (line,) = follow(watch, 200, bool)
    pid = ranks.processes[1].pid
    assert line == (
        f"rank 1 (process {pid}) is stopped (SIGSTOP or a terminal); continue with kill -CONT {pid}"
    )
    ranks.processes[1].send_signal(signal.SIGCONT)
    assert follow(watch, 200, bool) == ["rank 1 goes on"]


@pytest.mark.parametrize("script", ["while True:\n    pass", "import time\ntime.sleep(300)"])
def test_programs_without_collectives_are_let_be(ranks, program: str, tmp_path: Path, script: str) -> None:
    start(ranks, tmp_path, program, 2, script)
    wait_for_ranks(program, 2)

    assert follow(RankWatch(program), 120) == []
    assert all(Path(rank.channel).stat().st_size == 0 for rank in find_ranks(program))


# torch ---------------------------------------------------------------------------------------------------


def start_torch(ranks, torch_python: str, folder: Path, program: str, how: str) -> RankWatch:
    (folder / "script.py").write_text(TORCH_SCRIPT)
    ranks.start(torch_python, folder / "script.py", 2, how, **watched({}, program))
    ranks.wait_for(lambda: "up" in ranks.log(0) and "up" in ranks.log(1), "both ranks")
    wait_for_ranks(program, 2)
    return RankWatch(program)


@pytest.mark.parametrize(
    ("how", "place"), [("spin", "script.py:[67] spin < script.py:14"), ("sleep", "script.py:16 <module>")]
)
@pytest.mark.train
def test_rank_outside_of_the_all_reduce_is_named_with_its_place(
    ranks, torch_python, tmp_path: Path, program: str, how: str, place: str
) -> None:
    watch = start_torch(ranks, torch_python, tmp_path, program, how)

    (line,) = follow(watch, 600, bool)

    assert line.startswith("1 other rank has waited for rank 1 for ")
    assert re.search(rf"; rank 1 \(process {ranks.processes[1].pid}\) is at {place}", line)
    assert re.search(r"; rank 0 \(process \d+\) waits at \S+ \w+", line)


@pytest.mark.train
def test_stopped_rank_is_named_and_the_steps_go_on_afterwards(
    ranks, torch_python, tmp_path: Path, program: str
) -> None:
    watch = start_torch(ranks, torch_python, tmp_path, program, "backward")
    pid = ranks.processes[1].pid
    follow(watch, 20)
    ranks.processes[1].send_signal(signal.SIGSTOP)

    (line,) = follow(watch, 100, bool)
    assert line.startswith(f"rank 1 (process {pid}) is stopped")
    assert follow(watch, 200) == []
    ranks.processes[1].send_signal(signal.SIGCONT)
    (line,) = follow(watch, 100, bool)
    assert line.startswith("rank 1 goes on; others had waited ")


@pytest.mark.train
def test_evaluation_on_rank_0_is_told_once_and_ends_nothing(
    ranks, torch_python, tmp_path: Path, program: str
) -> None:
    """80 s of the watch's time each: in the first epoch it is told, in those that follow it is not."""
    watch = start_torch(ranks, torch_python, tmp_path, program, "evaluate")

    first, second = follow(watch, 400)

    assert first.startswith("1 other rank has waited for rank 0 for ")
    assert second.startswith("rank 0 goes on; ")
    assert all(process.poll() is None for process in ranks.processes)


@pytest.mark.train
def test_ranks_that_step_are_neither_named_nor_asked(
    ranks, torch_python, tmp_path: Path, program: str
) -> None:
    watch = start_torch(ranks, torch_python, tmp_path, program, "step")

    assert follow(watch, 150) == []
    for rank in find_ranks(program):
        assert Path(rank.channel).stat().st_size < 4096


# The hook ------------------------------------------------------------------------------------------------


def test_sitecustomize_and_path_of_the_user_are_kept(ranks, program: str, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.from_users_own = 7")
    (own / "helper.py").write_text("there = 1")
    script = "import helper\nprint(from_users_own, helper.there, flush=True)\nimport time; time.sleep(300)"

    start(ranks, tmp_path, program, 1, script, PYTHONPATH=str(own))

    ranks.wait_for(lambda: ranks.log(0) == "7 1\n", "the user's own")
    assert [bool(rank.channel) for rank in find_ranks(program)] == [True]


@pytest.mark.parametrize("option", ["-S", "-I", "-E"])
def test_python_that_does_not_import_the_hook_runs_and_is_seen_unable_to_answer(
    ranks, program: str, tmp_path: Path, option: str
) -> None:
    (tmp_path / "script.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(300)")
    (tmp_path / "run.sh").write_text(f"exec {sys.executable} {option} script.py")
    ranks.start("sh", tmp_path / "run.sh", 1, **watched({}, program))

    ranks.wait_for(lambda: ranks.log(0) == "up\n", "the rank")
    assert [rank.channel for rank in find_ranks(program)] == [""]


def test_what_is_no_rank_has_neither_handler_nor_file(tmp_path: Path) -> None:
    script = (
        "import signal, os\n"
        "print(signal.getsignal(signal.SIGURG) == signal.SIG_DFL, os.listdir('/proc/self/fd'))"
    )
    environment = {name: value for name, value in os.environ.items() if not name.endswith("RANK")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=watched(environment, "x"),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith("True") and "'100'" not in done.stdout


def test_own_handler_and_closed_files_are_the_programs_own_business(
    ranks, program: str, tmp_path: Path
) -> None:
    script = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGURG, lambda *_: print('mine', flush=True))\n"
        "os.closerange(3, 1000)\n"
        "kept = open('kept', 'w')\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(300)"
    )
    start(ranks, tmp_path, program, 1, script)
    ranks.wait_for(lambda: "up" in ranks.log(0), "the rank")

    (rank,) = find_ranks(program)
    assert rank.channel == ""
    ranks.processes[0].send_signal(signal.SIGURG)
    ranks.wait_for(lambda: "mine" in ranks.log(0), "its handler")


def test_worker_processes_of_a_rank_are_not_taken_for_it(ranks, program: str, tmp_path: Path) -> None:
    script = "import os, time\nprint(os.fork(), flush=True)\ntime.sleep(300)"
    start(ranks, tmp_path, program, 1, script)
    ranks.wait_for(lambda: ranks.log(0).count("\n") == 2, "the worker")
    worker = int(max(ranks.log(0).split(), key=int))
    try:
        (rank,) = find_ranks(program)
        assert rank.pid == ranks.processes[0].pid
        assert rank.pids == (rank.pid, worker)
    finally:
        os.kill(worker, signal.SIGKILL)


def test_channel_that_becomes_another_file_is_not_written(ranks, program: str, tmp_path: Path) -> None:
    """The watch may be root, the link in /proc is the rank's to change."""
    kept = tmp_path / "kept"
    kept.write_text("text")

    with pytest.raises(FileNotFoundError), rank_processes._channel(str(kept), os.O_RDWR):
        pass
    assert kept.read_text() == "text"


def start(ranks, folder: Path, program: str, size: int, script: str, **more: str) -> None:
    (folder / "script.py").write_text(script)
    ranks.start(sys.executable, folder / "script.py", size, **watched(more, program))


def run_mpi(ranks, folder: Path, program: str, how: str) -> None:
    """Start two ranks with the MPI of this environment."""
    environment = watched(os.environ, program) | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "OMPI_MCA_pml": "ob1",
        **{f"{name}_ALLOW_RUN_AS_ROOT{more}": "1" for name in ("OMPI", "PRTE") for more in ("", "_CONFIRM")},
    }
    ranks.processes.append(
        subprocess.Popen([*MPIRUN, sys.executable, "script.py", how], env=environment, cwd=folder)
    )


def wait_for_ranks(program: str, count: int) -> None:
    deadline = time.monotonic() + 100
    while sum(bool(rank.channel) for rank in find_ranks(program)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def program() -> Iterator[str]:
    """A name for the program of this test; nothing of it is left afterwards."""
    name = f"test-{os.getpid()}-{time.time_ns()}"
    yield name
    for rank in find_ranks(name):
        for pid in rank.pids:
            os.kill(pid, signal.SIGKILL)


def test_both_packages_mean_the_same_variable() -> None:
    assert RANKS_OF == rank_processes.RANKS_OF
