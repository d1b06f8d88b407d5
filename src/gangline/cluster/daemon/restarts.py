"""Daemons that were started again: how soon, how often, and what the next command says of it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from gangline import clock
from gangline.cluster.paths import ClusterPaths

DELAY_FIRST_S = 0.2
DELAY_MAX_S = 30.0
SETTLED_S = 10.0
"""A daemon that lived this long was fine: the pauses start anew."""
NOTICES_BYTES_MAX = 4096


class RestartDelay:
    """How long to wait before a daemon is started again: 0.2 s, twice as long after each quick end, 30 s."""

    def __init__(self) -> None:
        self._next_s = DELAY_FIRST_S

    def after(self, lived_s: float) -> float:
        """Return the pause in seconds after a life of that many."""
        if lived_s > SETTLED_S:
            self._next_s = DELAY_FIRST_S
        delay_s = self._next_s
        self._next_s = min(2 * delay_s, DELAY_MAX_S)
        return delay_s


class Restarts(msgspec.Struct, frozen=True):
    """How often a daemon was started again since the cluster was started.

    Attributes:
        count: times.
        last: when last, RFC 3339; empty for never.
        why: what had become of it, for a reader.
    """

    count: int = 0
    last: str = ""
    why: str = ""


def note_restart(paths: ClusterPaths, process: str, pid: int, why: str) -> None:
    """Note that ``server`` or ``agent`` is started again, for ``gangline status`` and the next command."""
    before = read_restarts(paths, process)
    now = Restarts(before.count + 1, clock.format_time(clock.now()), f"process {pid} {why}")
    draft = _path(paths, process).with_suffix(".new")
    draft.write_text(json.dumps(asdict(now)), encoding="utf-8")
    draft.replace(_path(paths, process))
    with _notices(paths).open("a") as notices:
        if notices.tell() < NOTICES_BYTES_MAX:
            notices.write(f"{process} {pid} {why}\n")


def read_restarts(paths: ClusterPaths, process: str) -> Restarts:
    """Return what was noted of a daemon."""
    try:
        return Restarts(**json.loads(_path(paths, process).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return Restarts()


def forget_restarts(paths: ClusterPaths) -> None:
    """Count from nothing: the cluster is started by a command."""
    for path in paths.state.glob("*.restarts"):
        path.unlink(missing_ok=True)


def take_notices(paths: ClusterPaths) -> list[tuple[str, int, str]]:
    """Return and forget the restarts that no command has told yet: process, its former id, what it met."""
    path = _notices(paths)
    try:
        lines = path.read_text().splitlines()
        path.unlink()
    except FileNotFoundError:
        return []
    words = [line.split(" ", 2) for line in lines]
    return [(one[0], int(one[1]), one[2]) for one in words if len(one) == 3 and one[1].isdigit()]


def _path(paths: ClusterPaths, process: str) -> Path:
    return paths.state / f"{process}.restarts"


def _notices(paths: ClusterPaths) -> Path:
    return paths.state / "notices"
