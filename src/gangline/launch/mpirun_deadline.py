"""Run an ``mpirun`` line as it is, and end a start in which some rank never begins.

Each rank says a line when it begins, which is taken out of the output; everything else passes as it comes.
Once all have begun nothing is looked at any more. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from gangline.launch.hosts import RankHost
from gangline.launch.rank_start import RankState, StartError, state_table
from gangline.launch.rank_watch import name_of_program, watched, watching

END_LIMIT_S = 10.0
"""How long ``mpirun`` has for ending its ranks before it is killed."""
HELD_BYTES_MAX = 4096
EXIT_READER_LEFT = 128 + signal.SIGPIPE
_READ_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1
_MARK = "gangline-rank-began"
_BEGAN = re.compile(rb"gangline-rank-began (\d+) (\S+)\r?$")
_SAY = f'echo "{_MARK} ${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-0}}}} $(uname -n)"; exec "$@"'


def saying_command(command: Sequence[str]) -> list[str]:
    """Return a rank's command that says first that it begins."""
    return ["sh", "-c", _SAY, "horovodrun", *command]


class Beginnings:
    """Takes the lines of ranks that begin out of the output of ``mpirun``; keeps the state of every rank."""

    def __init__(self, places: Sequence[RankHost]) -> None:
        self.states = [RankState(place, "not started by mpirun yet") for place in places]
        self._begun: set[int] = set()
        self._held = b""

    @property
    def all_began(self) -> bool:
        """Whether every rank has said its line."""
        return len(self._begun) == len(self.states)

    def feed(self, data: bytes) -> bytes:
        """Return what is to be shown now; half a line is held back while ranks are still missing."""
        *lines, self._held = (self._held + data).split(b"\n")
        shown = b"".join(line + b"\n" for line in lines if not self._note(line))
        if self.all_began or len(self._held) > HELD_BYTES_MAX:
            shown, self._held = shown + self._held, b""
        return shown

    def flush(self) -> bytes:
        """Return what is still held at the end."""
        shown, self._held = self._held, b""
        return shown

    def _note(self, line: bytes) -> bool:
        match = _BEGAN.search(line)
        if match is None or int(match[1]) >= len(self.states):
            return False
        self._begun.add(int(match[1]))
        self.states[int(match[1])].to(f"runs on {match[2].decode(errors='replace')}")
        return True


def run_until_begun(
    line: Sequence[str], environment: Mapping[str, str], places: Sequence[RankHost], limit_s: float
) -> int:
    """Run ``mpirun`` to its end, signals handed on, and return its exit code.

    Args:
        line: whose ranks run a `saying_command`.
        environment: of ``mpirun``.
        places: of all ranks.
        limit_s: until when all ranks must have begun.

    Raises:
        StartError: they had not; ``mpirun`` was ended, and the message has a table of their states.
    """
    program = name_of_program()
    process = subprocess.Popen(
        line,
        env=watched(environment, program),
        stdout=subprocess.PIPE,
        preexec_fn=_end_with_parent,  # noqa: PLW1509 - there are no threads
    )
    before = {number: signal.signal(number, _forward_to(process)) for number in _signals()}
    beginnings = Beginnings(places)
    try:
        with watching(program):
            if _show_until_end(process, beginnings, limit_s):
                code = process.wait()
                return code if code >= 0 else 128 - code
        raise StartError(
            f"not all ranks were started within {limit_s:.0f} s; all were ended"
            f"\n\n{state_table(beginnings.states, time.monotonic())}",
            hint="`gangline check --hosts …` says what is wrong; --start-timeout waits longer",
        )
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_READER_LEFT
    finally:
        _end(process)
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_until_end(process: subprocess.Popen[bytes], beginnings: Beginnings, limit_s: float) -> bool:
    """Show the output until it ends; False where not all ranks have begun in time."""
    assert process.stdout is not None
    deadline = time.monotonic() + limit_s
    while beginnings.all_began or deadline > time.monotonic():
        left = None if beginnings.all_began else max(0.0, deadline - time.monotonic())
        if not select.select([process.stdout], [], [], left)[0]:
            continue
        data = os.read(process.stdout.fileno(), _READ_BYTES)
        _show(beginnings.feed(data) if data else beginnings.flush())
        if not data:
            return True
    return False


def _signals() -> list[signal.Signals]:
    """Return the signals to hand on; a terminal sends Ctrl-C to ``mpirun`` by itself."""
    given = [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
    return given if sys.stdin is not None and sys.stdin.isatty() else [*given, signal.SIGINT]


def _forward_to(process: subprocess.Popen[bytes]) -> Callable[[int, FrameType | None], None]:
    def forward(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(number)

    return forward


def _end_with_parent() -> None:
    """Have the kernel end ``mpirun`` when this launcher is killed."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _show(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_LIMIT_S)
    if process.poll() is None:
        # A launcher that waits for a host's daemon stays in spite of the signal, and so do its shells.
        for pid in [*_descendants(process.pid), process.pid]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _descendants(pid: int) -> list[int]:
    """Return the processes that a process and its children have started, as far as this system tells."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = list(children.get(pid, []))
    for one in found:
        found += children.get(one, [])
    return found
