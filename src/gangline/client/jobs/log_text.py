"""A container's log as people read it: without the launcher's tags, and without records for programs."""

from __future__ import annotations

from typing import Any

from gangline.launch.hydra_tags import HydraTags
from gangline.launch.rank_tags import RankTags
from gangline.train.records import RecordFilter, parse_record


class LogText:
    """Reads a log piece by piece; what is shown and the records in it come apart.

    Args:
        has_tags: Gangline had the launcher tag the lines of ranks, whichever MPI it is of.
        has_timestamps: the server put a time in front of each line; tags then stay.
    """

    def __init__(self, *, has_tags: bool, has_timestamps: bool = False) -> None:
        self._tags = (HydraTags(), RankTags()) if has_tags and not has_timestamps else None
        self._has_timestamps = has_timestamps
        self._rest = b""
        self._records = RecordFilter()

    def feed(self, data: bytes) -> tuple[bytes, list[dict[str, Any]]]:
        """Return what is to be shown now, and the records that were complete."""
        if self._tags is not None:
            pieces, tags = self._tags
            data = tags.feed(pieces.feed(data))
        elif self._has_timestamps:  # whole lines: half a time says nothing of what will follow
            whole, end, self._rest = (self._rest + data).rpartition(b"\n")
            data = whole + end
        return self._records.feed(data)

    def flush(self) -> tuple[bytes, list[dict[str, Any]]]:
        """Return what is left at the end of the log."""
        data, self._rest = self._rest, b""
        if self._tags is not None:
            pieces, tags = self._tags
            data = tags.feed(pieces.flush()) + tags.flush()
        shown, records = self._records.feed(data)
        return shown + self._records.flush(), records


def lines_to_ask_for(log: bytes, wanted: int) -> int | None:
    """Return how many lines at the end of a log hold so many lines that are shown; None when it has fewer.

    Args:
        log: the end of a log, from the beginning of a line.
        wanted: lines for people.
    """
    lines = log.decode(errors="replace").splitlines()
    for asked in range(1, len(lines) + 1):
        wanted -= parse_record(lines[-asked]) is None
        if wanted == 0:
            return asked
    return None
