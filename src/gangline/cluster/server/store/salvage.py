"""What can still be read of a damaged store: through SQLite where it can, else page by page.

SQLite gives up at the first page that makes no sense. A row of the store lies in one cell of a page, with the
rest of a long value in a chain of others; so every page is looked at on its own, those of the write-ahead log
over those of the file, and whatever has the form of a row and holds a whole object counts. That finds rows of
pages which are no longer in use, too: objects that were deleted shortly before may come back.

Source of the format: sqlite.org/fileformat2.html (the table has no row ids: its rows are in an index b-tree).
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from gangline.cluster.server.store.damage import (
    FRAME_HEADER_BYTES,
    LOG_HEADER_BYTES,
    PAGE_BYTES,
    Contents,
    log_of,
    lost_from_log,
    row_sum,
)
from gangline.cluster.server.store.writer import Row

_LEAF, _INTERIOR = 0x0A, 0x02
_FILE_HEADER_BYTES = 100
_COLUMNS: Final = 7
"""The last one is the row's sum; stores of an earlier version have none."""
_decode = msgspec.json.Decoder(dict[str, Any]).decode

Key = tuple[str, str, str]


@dataclass
class Salvage:
    """What was found.

    Attributes:
        objects: by collection, namespace and name, in their newest readable state.
        unreadable: rows that SQLite lists and that do not fit their sum, or hold no object.
        problem: why SQLite could not read all of it; empty when it could.
    """

    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    unreadable: list[Key] = field(default_factory=list)
    problem: str = ""


def salvage(path: Path) -> Salvage:
    """Return what can be read of a store; the file itself is only copied.

    Raises:
        OSError: it cannot be copied.
    """
    found = Salvage()
    with tempfile.TemporaryDirectory(prefix="gangline-salvage-") as folder:
        copy = Path(folder, "store.sqlite")
        shutil.copyfile(path, copy)
        if log_of(path).exists():
            shutil.copyfile(log_of(path), log_of(copy))
        carved = _newest(carve(copy)) if _read_by_sqlite(copy, found) else {}
    for key, row in carved.items():
        value = read_value(row)
        if key not in found.objects and value is not None:
            found.objects[key] = value
    found.unreadable = [key for key in found.unreadable if key not in found.objects]
    return found


def read_value(row: Row) -> dict[str, Any] | None:
    """Return the object of a row, None when it is not whole or belongs elsewhere."""
    try:
        value = _decode(row.value or b"")
        return value if value["metadata"]["name"] == row.name else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        return None


def _read_by_sqlite(path: Path, found: Salvage) -> bool:
    """Read what SQLite reads; whether there may be more. The log stays as it is."""
    sums = []
    if lost := lost_from_log(path):
        found.problem = f"its log breaks off before {lost} acknowledged transactions"
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            for columns in connection.execute("SELECT * FROM object"):
                row = Row(*columns[:6])
                key = (row.collection, row.namespace, row.name)
                value = read_value(row) if isinstance(row.value, bytes) and _fits(columns) else None
                if value is None:
                    found.unreadable.append(key)
                else:
                    found.objects[key] = value
                sums += columns[6:]
            texts = connection.execute("SELECT value FROM meta WHERE key='contents'").fetchall()
        if texts and not Contents.parse(texts[0][0]).are_rows(sums):
            found.problem = found.problem or "rows are missing"
    except (sqlite3.Error, UnicodeDecodeError, OverflowError, ValueError, TypeError) as error:
        found.problem = found.problem or str(error)
    return bool(found.problem or found.unreadable)


def _fits(columns: tuple[Any, ...]) -> bool:
    """Whether a row fits its sum, or has none."""
    return len(columns) < _COLUMNS or row_sum(*columns[:6]) == columns[6]


def _newest(rows: Iterator[Row]) -> dict[Key, Row]:
    newest: dict[Key, Row] = {}
    for row in rows:
        key = (row.collection, row.namespace, row.name)
        if read_value(row) is not None and (key not in newest or newest[key].revision < row.revision):
            newest[key] = row
    return newest


# Pages


def carve(path: Path) -> Iterator[Row]:
    """Yield everything in a file and its log that has the form of a row."""
    pages = _pages(path)
    for number, page in pages.items():
        start = _FILE_HEADER_BYTES if number == 1 else 0
        if len(page) < start + 12 or page[start] not in (_LEAF, _INTERIOR):
            continue
        is_leaf = page[start] == _LEAF
        (count,) = struct.unpack_from(">H", page, start + 3)
        first = start + (8 if is_leaf else 12)
        for index in range(min(count, (len(page) - first) // 2)):
            (at,) = struct.unpack_from(">H", page, first + 2 * index)
            try:
                yield _row(_payload(pages, page, at + (0 if is_leaf else 4)))
            except (ValueError, IndexError, struct.error, UnicodeDecodeError):
                continue


def _pages(path: Path) -> dict[int, bytes]:
    """Return the pages by number, from 1: the file's, and over them those of committed frames of the log."""
    data = path.read_bytes()
    size = _page_bytes(data[16:18])
    pages = {at // size + 1: data[at : at + size] for at in range(0, len(data), size)}
    frames = log_of(path).read_bytes() if log_of(path).exists() else b""
    first = LOG_HEADER_BYTES + 8
    salts = (frames[16:24], frames[first : first + 8])  # either of them may be what is damaged
    waiting: dict[int, bytes] = {}
    for at in range(LOG_HEADER_BYTES, len(frames) - FRAME_HEADER_BYTES - size + 1, FRAME_HEADER_BYTES + size):
        number, committed = struct.unpack_from(">II", frames, at)
        if frames[at + 8 : at + 16] not in salts or not number:
            continue  # of the log's life before this one, or damaged
        body = at + FRAME_HEADER_BYTES
        waiting[number] = frames[body : body + size]
        if committed:
            pages |= waiting
            waiting = {}
    return pages


def _page_bytes(raw: bytes) -> int:
    size = int.from_bytes(raw, "big") if len(raw) == 2 else 0
    size = 65536 if size == 1 else size
    return size if 512 <= size <= 65536 and size & (size - 1) == 0 else PAGE_BYTES


def _payload(pages: dict[int, bytes], page: bytes, at: int) -> bytes:
    """Return the record of a cell; the part that did not fit lies in a chain of pages."""
    size, at = _varint(page, at)
    usable = len(page)
    most = (usable - 12) * 64 // 255 - 23
    if size <= most:
        return page[at : at + size]
    least = (usable - 12) * 32 // 255 - 23
    local = least + (size - least) % (usable - 4)
    local = local if local <= most else least
    parts = [page[at : at + local]]
    (number,) = struct.unpack_from(">I", page, at + local)
    left = size - local
    while left > 0:
        if number not in pages or len(parts) > len(pages):
            raise ValueError("the chain of pages is broken")
        more = pages[number]
        (number,) = struct.unpack_from(">I", more, 0)
        parts.append(more[4 : 4 + left])
        left -= usable - 4
    return b"".join(parts)


def _row(record: bytes) -> Row:
    """Return a record of the table: three texts, two whole numbers, bytes, and the sum that they must fit."""
    end, at = _varint(record, 0)
    types = []
    while at < end:
        kind, at = _varint(record, at)
        types.append(kind)
    if len(types) not in (_COLUMNS - 1, _COLUMNS) or types[5] < 12 or types[5] % 2:
        raise ValueError("no row of the table")
    values: list[Any] = []
    for kind in types:
        size = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[kind] if kind < 10 else (kind - 12) // 2
        raw = record[end : end + size]
        if len(raw) != size:
            raise ValueError("the record is cut short")
        end += size
        if kind >= 12:
            values.append(raw.decode() if kind % 2 else raw)
        else:
            values.append(kind - 8 if kind in (8, 9) else int.from_bytes(raw, "big", signed=True))
    collection, namespace, name, revision, written_s, value = values[:6]
    if not (isinstance(collection, str) and isinstance(namespace, str) and isinstance(name, str)):
        raise ValueError("no row of the table")
    if not _fits(tuple(values)):
        raise ValueError("the row does not fit its sum")
    return Row(collection, namespace, name, int(revision), int(written_s), value)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(9):
        byte = data[at + index]
        if index == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    raise ValueError
