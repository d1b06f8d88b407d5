"""The hook that ranks answer by, in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gangline.launch

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


def waits_for_a_signal(pid: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    pause = {"x86_64": "34", "aarch64": "73"}[os.uname().machine]  # number of the system call; ppoll there
    while Path(f"/proc/{pid}/syscall").read_text().partition(" ")[0] != pause:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_taken_signals(pid: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while "ShdPnd:\t0000000000000000" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.05)  # it has begun to handle it, and may be about to end by it
