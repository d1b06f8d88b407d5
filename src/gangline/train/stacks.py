"""Where a rank is: its own main thread's stack, or that of another process on this node.

A process that still runs Python tells its stack itself. One that is hung inside C code with the interpreter
locked is asked by a signal, upon which faulthandler writes the stack without the interpreter's help; py-spy
is asked where it is installed.
"""

from __future__ import annotations

import faulthandler
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO

FRAMES_MAX = 5
_PACKAGES = ("site-packages", "dist-packages", "/lib/python3", "<frozen")
"""Parts of the names of files that are not the user's."""
ANSWER_LIMIT_S = 1.0
PYSPY_LIMIT_S = 10.0
STACK_SIGNAL: int | None = int(signal.SIGRTMIN) + 7 if hasattr(signal, "SIGRTMIN") else None
"""Far from the signals that launchers and schedulers send."""

_LINE = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_PYSPY_LINE = re.compile(r"^ +(\S+) \((.+):(\d+)\)$", re.MULTILINE)
_STATES = {
    "T": "its process is stopped (SIGSTOP or a terminal); continue it with kill -CONT {pid}{where}",
    "t": "its process is held by a debugger",
    "Z": "its process has ended",
    "X": "its process has ended",
    "D": "its process hangs in the kernel, as on a file system that does not answer",
}
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of include/linux/proc_ns.h: the machine's own processes, outside of any container."""
ENDED = ("Z", "X")
_HALTED = ("its process is stopped", "its process is held", "its process has ended")


class StackFile:
    """An unlinked file into which faulthandler writes when this process gets STACK_SIGNAL."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        if STACK_SIGNAL is None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(STACK_SIGNAL) == signal.SIG_DFL:
            self._file = tempfile.TemporaryFile(prefix="gangline-stack-")  # noqa: SIM115 - open as long as we are
            faulthandler.register(STACK_SIGNAL, file=self._file, all_threads=False)

    @property
    def path(self) -> str:
        """Where another process of this user and node reads it, ``""`` when there is none."""
        return f"/proc/{os.getpid()}/fd/{self._file.fileno()}" if self._file else ""

    def close(self) -> None:
        """Take the signal's default back."""
        if self._file is not None and STACK_SIGNAL is not None:
            faulthandler.unregister(STACK_SIGNAL)
            self._file.close()
            self._file = None


def main_frames() -> list[FrameType]:
    """Return the frames of this process's main thread, innermost first."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def collective_of(frames: list[FrameType]) -> FrameType | None:
    """Return the call of torch.distributed that the innermost frames belong to: there a rank waits."""
    found = None
    for frame in frames:
        if "torch/distributed/" not in frame.f_code.co_filename:
            break
        found = frame
    return found


def describe(frames: list[FrameType]) -> str:
    """Return ``train.py:57 load < train.py:90 main``: the innermost frames, those of packages left out."""
    places = [(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name) for frame in frames]
    return shorten(places)


def shorten(places: Sequence[tuple[str, int, str]]) -> str:
    """Return places in files as `describe` does: file, line and function of each, innermost first."""
    own = [place for place in places if not any(part in place[0] for part in _PACKAGES)]
    chosen = (list(places[:1]) if places and places[0] not in own[:1] else []) + own
    return " < ".join(f"{file.rpartition('/')[2]}:{line} {name}" for file, line, name in chosen[:FRAMES_MAX])


def process_letter(pid: int) -> str:
    """Return the kernel's letter for the state of a process, X when it is gone and ``""`` without /proc."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return "X" if Path("/proc/self/stat").exists() else ""


def process_state(pid: int) -> str:
    """Return what the kernel says of a process where it is out of the ordinary, else ``""``."""
    return _STATES.get(process_letter(pid), "").format(pid=pid, where=_where_pids_count())


def _where_pids_count() -> str:
    """Return what is to be said of process ids here; the reader of a pod's log is not inside of the pod."""
    try:
        is_first = os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE  # noqa: PTH115 - no path
    except OSError:
        return ""
    return "" if is_first else " inside its pod or container"


def is_halted(state: str) -> bool:
    """Return whether a state, as `process_state` says it, means that the process surely computes nothing."""
    return state.startswith(_HALTED)


def stack_of(pid: int, stack_file: str) -> str:
    """Return the main thread's stack of another process of this user and node, ``""`` unknown."""
    return _ask_faulthandler(pid, stack_file) or _ask_pyspy(pid)


def _ask_faulthandler(pid: int, stack_file: str) -> str:
    path = Path(stack_file)
    try:
        before = path.stat().st_size
        if STACK_SIGNAL is None or not stack_file:
            return ""
        os.kill(pid, STACK_SIGNAL)
        limit = time.monotonic() + ANSWER_LIMIT_S
        while path.stat().st_size == before and time.monotonic() < limit:
            time.sleep(0.02)
        text = path.read_bytes()[before:].decode(errors="replace")
    except OSError:
        return ""
    return shorten([(file, int(line), name) for file, line, name in _LINE.findall(text)])


def _ask_pyspy(pid: int) -> str:
    program = shutil.which("py-spy")
    if program is None:
        return ""
    with suppress(OSError, subprocess.SubprocessError):
        text = subprocess.run(
            [program, "dump", "--nonblocking", "--pid", str(pid)],
            capture_output=True,
            text=True,
            timeout=PYSPY_LIMIT_S,
            check=False,
        ).stdout
        head, _, main = text.partition('"MainThread"')
        found = _PYSPY_LINE.findall((main or head).partition("\nThread")[0])
        return shorten([(file, int(line), name) for name, file, line in found])
    return ""
