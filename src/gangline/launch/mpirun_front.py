"""The ``mpirun`` that local images put before Open MPI's own on the PATH.

Called as ``mpirun_front.py REAL_MPIRUN MAJOR ARGUMENT...`` with ``python -I -S``; standard library only. It
starts the real one and passes on streams, signals and exit code, with three differences, all for Open MPI 5:

- options of Open MPI 4 that version 5 refuses with one dash (``-bind-to``, ``-map-by``) get the second;
- when a remote host is lost, Open MPI 5.0.11 says so and yet ends with code 0: here it ends with 1;
- a harmless warning about process groups (``launcher_noise``) is left out.

Cost: one small Python process beside the launcher, 15 ms at its start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # run with -I: no folder is on the path

from launcher_noise import LauncherNoise  # type: ignore[import-not-found,unused-ignore]

LOST_HOST = b"has lost communication with a remote daemon"
DRAIN_LIMIT_S = 1.0
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

_ONE_DASH = frozenset(["-bind-to", "-map-by", "-rank-by"])
_ONE_VALUE = frozenset(
    "n np c N npernode H host hostfile machinefile default-hostfile rankfile x wdir wd path prefix output "
    "output-filename timeout bind-to map-by rank-by cpu-set cpu-list stdin personality tune am app "
    "max-restarts runtime-options".split()
)
_TWO_VALUES = frozenset("mca gmca prtemca pmixmca omca gomca gprtemca gpmixmca".split())


def modern_options(arguments: list[str]) -> list[str]:
    """Return the command line with the options of Open MPI 4 as version 5 takes them.

    Only what stands before the program is touched; a further program after ``:`` has options again.
    """
    changed: list[str] = []
    index, in_options = 0, True
    while index < len(arguments):
        word = arguments[index]
        if word == ":":
            in_options = True
        elif in_options and not word.startswith("-"):
            in_options = False
        if not in_options or word == ":":
            changed.append(word)
            index += 1
            continue
        name = word.lstrip("-")
        values = 2 if name in _TWO_VALUES else 1 if name in _ONE_VALUE else 0
        changed.append(f"-{word}" if word in _ONE_DASH else word)
        changed += arguments[index + 1 : index + 1 + values]
        index += 1 + values
    return changed


class ErrorStream:
    """Passes the launcher's error stream on, without noise, and remembers a lost host."""

    def __init__(self, host: str) -> None:
        self.host_was_lost = False
        self._noise = LauncherNoise(host)
        self._tail = b""

    def feed(self, data: bytes) -> bytes:
        """Return what is to be shown of the next piece."""
        if not self.host_was_lost:
            window = self._tail + data
            self.host_was_lost = LOST_HOST in window
            self._tail = window[-len(LOST_HOST) :]
        shown: bytes = self._noise.feed(data)
        return shown

    def flush(self) -> bytes:
        """Return what is still held, at the end."""
        held: bytes = self._noise.flush()
        return held

    def pump(self, source: int, sink: int) -> None:
        """Copy until the source ends; a reader that went away ends nothing."""
        while data := os.read(source, 65536):
            _write_all(sink, self.feed(data))
        _write_all(sink, self.flush())


def _write_all(sink: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(sink, data) :]
        except BrokenPipeError:
            return


def run(real: str, arguments: list[str]) -> int:
    """Run the real launcher; return the exit code, 128 + N for signal N."""
    early: list[int] = []
    for number in _FORWARDED:  # before the start, so that no signal falls between the two
        signal.signal(number, lambda got, _: early.append(got))
    child = subprocess.Popen([real, *arguments], stderr=subprocess.PIPE)
    for number in _FORWARDED:
        signal.signal(number, lambda got, _: child.send_signal(got))
    for got in early:
        child.send_signal(got)
    assert child.stderr is not None
    stream = ErrorStream(os.uname().nodename)
    pump = threading.Thread(target=stream.pump, args=(child.stderr.fileno(), 2), daemon=True)
    pump.start()
    code = child.wait()
    pump.join(DRAIN_LIMIT_S)  # a process that the launcher left behind may hold the stream open
    if code == 0 and stream.host_was_lost:
        _write_all(2, b"\ngangline: a host was lost while the ranks ran; ending with code 1\n")
        return 1
    return 128 - code if code < 0 else code


def main() -> None:
    """Entry: REAL_MPIRUN MAJOR ARGUMENT..."""
    real, major, *arguments = sys.argv[1:]
    sys.exit(run(real, modern_options(arguments) if int(major) >= 5 else arguments))


if __name__ == "__main__":
    main()
