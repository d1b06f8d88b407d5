"""Ends what ranks left behind that keeps ``mpirun`` waiting for their output. Imported by ``mpirun_wrapper``.

Open MPI 5 ends when every rank has ended and nobody holds the ranks' output any more. A rank that is killed
(out of memory, ``kill -9``) leaves its children, data loaders say, and they hold it: ``mpirun`` then waits
for ever. Ranks without MPI leave nothing behind either, see ``rank_supervisor``.

Read from /proc: Linux only, elsewhere nothing is done. Standard library only.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

LOOK_PERIOD_S = 1.0
WAIT_LIMIT_S = 5.0
"""How long ``mpirun`` may wait for what ranks left behind after the last one has ended on this host."""


class LeftBehind(NamedTuple):
    """A process that no rank has any more and that holds a rank's output."""

    pid: int
    command: str


def outputs_read_by(pid: int) -> set[str]:
    """Return the pipes and terminals whose output a process reads, as links of the other side name them."""
    found: set[str] = set()
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError, ValueError):
                if not link.lstat().st_mode & stat.S_IRUSR:
                    continue
                target = str(link.readlink())
                if target.startswith("pipe:"):
                    found.add(target)
                elif target == "/dev/ptmx":
                    # tty-index:	3
                    _, _, index = Path(f"/proc/{pid}/fdinfo/{link.name}").read_text().partition("tty-index:")
                    found.add(f"/dev/pts/{int(index.split()[0])}")
    return found


def _holds(pid: int, outputs: set[str]) -> bool:
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if str(link.readlink()) in outputs and link.lstat().st_mode & stat.S_IWUSR:
                    return True
    return False


def _is_below(pid: int, ancestor: int) -> bool:
    while pid > 1:
        pid = _parent_of(pid)
        if pid == ancestor:
            return True
    return False


def _parent_of(pid: int) -> int:
    """Return the parent of a process that runs; 0 where there is none."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return 0
    return 0 if state == b"Z" else int(parent)


class RanksOfLauncher:
    """The processes that write what one launcher reads: its ranks, then what they left behind."""

    def __init__(self, launcher: int) -> None:
        self._launcher = launcher
        self._rank = 0

    def left_behind(self) -> list[LeftBehind]:
        """Return what holds ranks' output although no rank runs on this host; a few microseconds else."""
        if self._rank and _is_below(self._rank, self._launcher):
            return []
        outputs = outputs_read_by(self._launcher)
        everyone = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        holders = [pid for pid in everyone if pid != self._launcher and _holds(pid, outputs)]
        self._rank = next((pid for pid in holders if _is_below(pid, self._launcher)), 0)
        return [] if self._rank else [LeftBehind(pid, _command(pid)) for pid in holders]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


@contextmanager
def leftovers_ended(launcher: int, say: Callable[[str], None]) -> Iterator[None]:
    """While a launcher is waited for, end what ranks left behind once it has waited long enough for it.

    Args:
        launcher: process id of ``mpirun``.
        say: takes a line for the user, once for each process that is ended.
    """
    is_over = threading.Event()
    threading.Thread(target=_end_leftovers, args=(launcher, is_over, say), daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def _end_leftovers(launcher: int, is_over: threading.Event, say: Callable[[str], None]) -> None:
    ranks = RanksOfLauncher(launcher)
    since: float | None = None
    asked: set[int] = set()
    while not is_over.wait(LOOK_PERIOD_S):
        found = ranks.left_behind()
        if not found:
            since = None
            continue
        since = time.monotonic() if since is None else since
        if time.monotonic() - since < WAIT_LIMIT_S:
            continue
        for one in found:
            if one.pid not in asked:
                say(
                    f"process {one.pid} (`{one.command[:80]}`) was left behind by a rank and is ended: "
                    "mpirun would wait for its output"
                )
            with suppress(OSError):
                os.kill(one.pid, signal.SIGKILL if one.pid in asked else signal.SIGTERM)
            asked.add(one.pid)
