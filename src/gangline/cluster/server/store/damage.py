"""How the store's file tells that it was damaged: sums of its rows, and a log that breaks off too early.

SQLite keeps no sums: changed bytes inside a row are read as they are, a page that has lost a row is a sound
page. And it takes the first frame of the write-ahead log that makes no sense for the log's end: what was
acknowledged after it would be gone without a word. So every row carries its own sum, and one text that every
transaction rewrites says how many rows there are, what their sums add up to, and at which revision.

A crash tears one transaction at most, for each is on the disk before the next one begins; where more of them
come after the break, the log was damaged. What cannot be told from a crash is a log that was cut off, or
damaged in its last transaction.

Source of the log's format: sqlite.org/fileformat2.html, section 4.
"""

from __future__ import annotations

import re
import sqlite3
import struct
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

LOG_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
PAGE_BYTES: Final = 4096
"""What SQLite chooses unasked."""

_SUM_LIMIT: Final = 1 << 63
_TORN_MAX: Final = 1
"""Transactions that a crash may have torn."""

# contents17 3 8589934592 0badcafe
_CONTENTS = re.compile(rb"contents([0-9]{1,19} [0-9]{1,19} [0-9]{1,19} [0-9a-f]{8})")


def row_sum(
    collection: str, namespace: str, name: str, revision: int, written_s: int, value: bytes | None
) -> int:
    """Return the CRC-32 of a row. Cost: 1 microsecond a kilobyte."""
    head = f"{collection}\0{namespace}\0{name}\0{revision}\0{written_s}\0"
    return zlib.crc32(value or b"", zlib.crc32(head.encode(errors="surrogateescape")))


class Contents(NamedTuple):
    """What a store holds.

    Attributes:
        revision: of the newest write.
        rows: how many there are.
        total: what their sums add up to.
    """

    revision: int = 0
    rows: int = 0
    total: int = 0

    def with_row(self, added: int) -> Contents:
        """Return the contents with a row of that sum."""
        return Contents(self.revision, self.rows + 1, (self.total + added) % _SUM_LIMIT)

    def without_row(self, removed: int) -> Contents:
        """Return the contents without a row of that sum."""
        return Contents(self.revision, self.rows - 1, (self.total - removed) % _SUM_LIMIT)

    def at(self, revision: int) -> Contents:
        """Return the contents at another revision."""
        return Contents(revision, self.rows, self.total)

    def are_rows(self, sums: Sequence[int]) -> bool:
        """Whether these are the sums of all rows."""
        return (self.rows, self.total) == (len(sums), sum(sums) % _SUM_LIMIT)

    def text(self) -> str:
        """Return it as a text that carries its own sum."""
        numbers = f"{self.revision} {self.rows} {self.total}"
        return f"{numbers} {zlib.crc32(numbers.encode()):08x}"

    @classmethod
    def parse(cls, text: str) -> Contents:
        """Read ``text``.

        Raises:
            ValueError: it is another one.
        """
        contents = cls(*(int(word) for word in text.split(" ")[:3]))
        if contents.text() != text:
            raise ValueError(f"`{text}` does not fit its own sum")
        return contents


def log_of(path: Path) -> Path:
    """Return the write-ahead log of a store."""
    return path.with_name(f"{path.name}-wal")


def lost_from_log(path: Path) -> int:
    """Return how many acknowledged transactions the log holds that SQLite would pass over, 0 for a sound one.

    Reads the log, and the store only to read: its log stays as it is. A store that cannot be read, or is in
    use, counts as sound here; whoever opens it finds out.

    Cost: nothing after an end in order, which leaves no log; else 3 ms a MiB of log.
    """
    try:
        raw = log_of(path).read_bytes()
        if len(raw) <= LOG_HEADER_BYTES:
            return 0
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            seen = _seen_revision(connection)
            (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    except (OSError, sqlite3.Error, ValueError, TypeError):
        return 0
    later = {revision for revision in _revisions_of(raw, page_bytes) if revision > seen}
    return len(later) if len(later) > _TORN_MAX else 0


def _seen_revision(connection: sqlite3.Connection) -> int:
    """Return the revision that SQLite sees, -1 where it sees no store."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name='meta'").fetchone():
        return -1
    (text,) = connection.execute("SELECT value FROM meta WHERE key='contents'").fetchone()
    return Contents.parse(text).revision


def _revisions_of(log: bytes, page_bytes: int) -> list[int]:
    """Return the revision of every whole transaction in a log, of earlier lives of the log as well."""
    found = []
    newest = -1
    step = FRAME_HEADER_BYTES + page_bytes
    for at in range(LOG_HEADER_BYTES, len(log) - step + 1, step):
        _, size_after_commit = struct.unpack_from(">II", log, at)
        for match in _CONTENTS.finditer(log, at, at + step):
            try:
                newest = Contents.parse(match[1].decode()).revision
            except ValueError:
                continue
        if size_after_commit and newest >= 0:
            found.append(newest)
            newest = -1
    return found
