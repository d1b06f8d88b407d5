"""Read the log of a pod piece by piece: what is shown, what a training says, how its ranks end. Pure."""

from __future__ import annotations

from typing import Any

from gangline.launch.hydra_tags import HydraTags
from gangline.launch.rank_failure import FAILURE_RECORDS, LauncherOutput
from gangline.launch.rank_tags import RankTags, split_line
from gangline.train.records import RecordFilter, parse_record

Read = tuple[bytes, list[dict[str, Any]]]
"""What is shown, and the records of `gangline.train.records` that came."""


class FollowedLog:
    """Takes the tags of ranks off; pieces end anywhere, so each pod has a reader of its own.

    Args:
        output: is given every line, for the report of a failure.
        has_tags: whether the lines carry tags of ranks.
    """

    def __init__(self, output: LauncherOutput, *, has_tags: bool) -> None:
        self._output = output
        self._tags = RankTags() if has_tags else None
        self._pieces = HydraTags() if has_tags else None
        self._records = RecordFilter()
        self._rest = b""

    def feed(self, data: bytes) -> Read:
        """Take a piece."""
        return self._feed(data if self._pieces is None else self._pieces.feed(data))

    def flush(self) -> Read:
        """Return what is still held at the end of the log."""
        shown, records = self._feed(self._pieces.flush()) if self._pieces is not None else (b"", [])
        held = b"" if self._tags is None else self._tags.flush()
        shown += self._records.feed(held)[0] + self._records.flush()
        if self._rest:
            self._take_line(self._rest)
            self._rest = b""
        return shown, records

    def _feed(self, data: bytes) -> Read:
        read = self._records.feed(data if self._tags is None else self._tags.feed(data))
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take_line(line)
        return read

    def _take_line(self, line: bytes) -> None:
        for part in [line] if self._tags is None else split_line(line):
            text = part.decode(errors="replace")
            record = parse_record(text)
            if record is None or record["kind"] in FAILURE_RECORDS:
                self._output.feed(text)
