"""The hook that ranks answer by, in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gangline.launch
from gangline.launch.rank_watch import watched
from gangline.train.rank_processes import RankReader, find_ranks
from gangline.train.stacks import STACK_SIGNAL

HOOK = Path(gangline.launch.__file__).parent / "rank_hook"
LIMIT_S = 60.0

# After the interpreter has ended, as MPI_Finalize runs in mpi4py, the process waits for a signal.
PAUSE_AT_THE_VERY_END = "import ctypes; ctypes.pythonapi.Py_AtExit(ctypes.CDLL(None).pause)"


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc where a process waits")
def test_a_rank_that_is_asked_after_its_interpreter_has_ended_goes_on():
    environment = {**os.environ, "RANK": "0", "PYTHONPATH": str(HOOK)}
    with subprocess.Popen([sys.executable, "-c", PAUSE_AT_THE_VERY_END], env=environment) as process:
        try:
            waits_for_a_signal(process.pid)
            process.send_signal(signal.SIGURG)
            has_taken_signals(process.pid)
            process.terminate()
            assert process.wait(LIMIT_S) == -signal.SIGTERM
        finally:
            process.kill()


# The main thread reads from a pipe, in C: EINTR comes back to it, as it would to a library. The other end
# tells each call's begin and result.
READ_IN_C = """
import ctypes, os, sys
own_watch = None
if sys.argv[1] == "train":
    from gangline.train.stacks import StackFile
    own_watch = StackFile()
libc, byte = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(1)
for _ in range(3):
    print("reads", flush=True)
    print(libc.read(0, byte, 1), ctypes.get_errno(), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc where a process waits")
@pytest.mark.parametrize("watch", ["hook", "train"])
def test_a_system_call_of_a_rank_that_is_asked_again_and_again_is_not_interrupted(watch):
    environment = {**os.environ, **watched({}, watch), "RANK": "0", "WORLD_SIZE": "1"}
    line = [sys.executable, "-c", READ_IN_C, watch]
    with subprocess.Popen(
        line, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=0
    ) as process:
        try:
            for _ in range(3):
                assert process.stdout.readline() == "reads\n"
                waits_in(process.pid, {"x86_64": "0", "aarch64": "63"})  # read
                reader = RankReader(find_ranks(watch)[0])  # another one has asked before: it knows of that
                for _ in range(3):
                    if watch == "train":
                        process.send_signal(STACK_SIGNAL)
                    else:
                        reader.look()
                        reader.ask()
                    has_taken_signals(process.pid)
                answers = reader.look().answers
                assert watch == "train" or [answer.is_alive for answer in answers] == [False]
                process.stdin.write("x")
                assert process.stdout.readline() == "1 0\n"
        finally:
            process.kill()


def waits_for_a_signal(pid: int) -> None:
    waits_in(pid, {"x86_64": "34", "aarch64": "73"})  # pause, ppoll there


def waits_in(pid: int, numbers: dict[str, str]) -> None:
    """Wait until a process is in a system call, given by its number on each kind of machine."""
    deadline = time.monotonic() + LIMIT_S
    while Path(f"/proc/{pid}/syscall").read_text().partition(" ")[0] != numbers[os.uname().machine]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_taken_signals(pid: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while "ShdPnd:\t0000000000000000" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.05)  # it has begun to handle it, and may be about to end by it
