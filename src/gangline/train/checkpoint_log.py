"""When trainings of a node last saved their state, by the records in their containers' logs.

Logs are in the format of the CRI: a time, the stream, ``F`` or ``P``, then the line. The time of the line is
the node's, which is what counts for who reads it.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TypeVar

from gangline.clock import format_time, parse_time
from gangline.train.records import MARK, parse_record

KIND = "checkpoint"
"""Of the record that rank 0 writes once a step is complete on disk."""

LOOK_BYTES_MAX = 4 << 20
"""Of what is new in a log the end is read: the newest checkpoint is what is asked for."""

Key = TypeVar("Key", bound=Hashable)


class CheckpointLogs:
    """Reads what is new in the logs of pods."""

    def __init__(self) -> None:
        self._places: dict[Path, tuple[int, int]] = {}

    def news(self, folders: Mapping[Key, Path]) -> dict[Key, str]:
        """Return when the pods saved last, RFC 3339, of those that have saved since the last look.

        Args:
            folders: of the logs of each pod that runs, ``CONTAINER/N.log`` in it; others are forgotten.

        Cost: one stat for each log, and reading what is new in it, at most 4 MiB.
        """
        places, self._places = self._places, {}
        found = {}
        for key, folder in folders.items():
            times = [time for log in folder.glob("*/*.log") if (time := self._newest(log, places.get(log)))]
            if times:
                found[key] = max(times)
        return found

    def _newest(self, log: Path, place: tuple[int, int] | None) -> str:
        """Return the time of the last checkpoint in what is new, whole lines only."""
        try:
            with log.open("rb") as file:
                status = os.fstat(file.fileno())
                inode, read_to = place or (status.st_ino, 0)
                if inode != status.st_ino or read_to > status.st_size:  # begun anew
                    read_to = 0
                file.seek(max(read_to, status.st_size - LOOK_BYTES_MAX))
                whole, end, rest = file.read(LOOK_BYTES_MAX).rpartition(b"\n")
                self._places[log] = (status.st_ino, file.tell() - len(rest))
        except OSError:
            return ""
        for line in reversed(whole.split(b"\n") if end else []):
            if MARK.encode() in line and (time := _time_of(line.decode(errors="replace"))):
                return time
        return ""


def _time_of(line: str) -> str:
    record = parse_record(line)
    if record is None or record["kind"] != KIND:
        return ""
    try:
        return format_time(parse_time(line.partition(" ")[0]))
    except ValueError:
        return ""
