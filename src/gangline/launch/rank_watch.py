"""Has ranks watched that run on this machine and are started without a cluster: who hangs is said.

The watching is done by a process of its own (`gangline.train.rank_watch`, started by its path), which writes
to standard error. It finds ranks by a variable and asks them by what is put first on their PYTHONPATH.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

WATCH_AFTER_S = 3.0
"""Shorter runs are not watched: nothing could be said of them."""
RANKS_OF = "GANGLINE_RANKS_OF"
"""``PROGRAM/PLACE``; the same as in `gangline.train.rank_processes`, which this package does not import."""
_HOOK = Path(__file__).with_name("rank_hook")
_WATCH = Path(__file__).parents[1] / "train" / "rank_watch.py"


def name_of_program() -> str:
    """Return a name for the program that this process starts, which no other on this machine has."""
    return f"{os.getpid()}-{time.time_ns()}"


def watched(environment: Mapping[str, str], program: str) -> dict[str, str]:
    """Return the environment with which the ranks of a program can be found and asked.

    Args:
        environment: that they would have otherwise.
        program: its name, without a ``/``.
    """
    own_path = os.pathsep.join(filter(None, (str(_HOOK), environment.get("PYTHONPATH", ""))))
    return {**environment, "PYTHONPATH": own_path, RANKS_OF: f"{program}/"}


@contextmanager
def watching(program: str) -> Iterator[None]:
    """Watch a program's ranks meanwhile; where that cannot be, they run unwatched."""
    process: subprocess.Popen[bytes] | None = None
    if sys.platform.startswith("linux"):
        with suppress(OSError):
            line = [sys.executable, "-I", "-S", str(_WATCH), program]
            # Standard input is held open by this process alone: its end, in whatever way, is the watch's.
            process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()


async def watch_until_cancelled(program: str) -> None:
    """Watch a program's ranks from a little later on; with an empty name there are none on this machine."""
    await asyncio.sleep(WATCH_AFTER_S if program else float("inf"))
    with watching(program):
        await asyncio.Event().wait()
