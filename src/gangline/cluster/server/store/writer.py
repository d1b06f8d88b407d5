"""The thread that owns the SQLite file: writes come in by a queue and are committed in groups.

Whatever waits in the queue while one transaction is on its way to the disk goes into the next one, so a
lone write is committed at once and many concurrent writes share one flush. The thread knows nothing of
objects: it is handed rows.

Bounds: a transaction takes no more once it has ``TRANSACTION_ROWS_MAX`` rows; the log is copied back into the
database when it has grown by ``CHECKPOINT_BYTES``, free pages are given back in batches of ``VACUUM_PAGES``.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gangline.cluster.server.store.damage import Contents, lost_from_log, row_sum
from gangline.errors import ClusterError, UserError

TRANSACTION_ROWS_MAX = 1000
CHECKPOINT_BYTES = 4 << 20
VACUUM_PAGES = 256
VACUUM_FREE_PAGES_MIN = 1024
JOURNAL_BYTES_MAX = 16 << 20

_SCHEMA = """
CREATE TABLE IF NOT EXISTS object (
    collection TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    revision INTEGER NOT NULL, written_s INTEGER NOT NULL, value BLOB NOT NULL, sum INTEGER NOT NULL,
    PRIMARY KEY (collection, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_FORMAT = "2"
_FORMAT_WITHOUT_SUMS = "1"
_KEY = "collection=? AND namespace=? AND name=?"


class StoreError(ClusterError):
    """The store could not keep a write; nothing of it is visible."""

    code = "store"

    def __init__(self, message: str, *, hint: str = "", is_full: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.is_full = is_full
        """There is no room for it on the disk."""


class StoreInUseError(UserError):
    """Another process has the store open."""

    code = "store-in-use"


@dataclass(slots=True)
class Row:
    """One write: ``value=None`` removes the row. ``batch`` numbers the run of writes between two failures."""

    collection: str
    namespace: str
    name: str
    revision: int
    written_s: int
    value: bytes | None
    batch: int = 0


Outcome = Callable[[list[Row], Exception | None], None]
"""Called in the writer thread with the rows of a transaction and what went wrong, if anything did."""


class StoreWriter:
    """One SQLite file, one thread that writes it.

    Args:
        path: the database; its folder exists. Created with mode 0600.
        on_outcome: called in the writer thread after each transaction.

    Raises:
        StoreInUseError: another process has it open.
        StoreError: the file is no store, or of another format.
    """

    def __init__(self, path: Path, on_outcome: Outcome) -> None:
        self._path = path
        self._on_outcome = on_outcome
        self._queue: queue.SimpleQueue[list[Row] | None] = queue.SimpleQueue()
        self._failed_batch = -1
        self._log_bytes = 0
        self._connection = self._open()
        self._contents = self._read_contents()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def _open(self) -> sqlite3.Connection:
        path = self._path
        if lost := lost_from_log(path):  # before SQLite takes the broken log for an ended one, and removes it
            raise StoreError(
                f"the store `{path}` is damaged: its log breaks off before {lost} acknowledged transactions",
                hint=_way_out(path),
            )
        try:
            if not path.exists():
                path.touch(mode=0o600)
            with contextlib.ExitStack() as stack:
                connection = stack.enter_context(contextlib.closing(_connect(path)))
                found = _prepare(connection)
                stack.pop_all()
        except (sqlite3.OperationalError, OSError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise StoreInUseError(
                    f"the store `{path}` is in use by another process",
                    hint="only one server may run on a cluster's state folder",
                ) from None
            if reason := _unwritable(path.parent):
                raise StoreError(f"cannot write the store `{path}`: {reason}", hint=_room(path)) from error
            raise StoreError(f"cannot open the store `{path}`: {error}", hint=_way_out(path)) from error
        except (sqlite3.DatabaseError, TypeError, ValueError) as error:  # no row of its format is the second
            raise StoreError(
                f"`{path}` is not a store of Gangline, or damaged: {error}", hint=_way_out(path)
            ) from error
        if found != _FORMAT:
            connection.close()
            raise StoreError(f"the store `{path}` has format {found}; this version reads format {_FORMAT}")
        return connection

    def _read_contents(self) -> Contents:
        try:
            row = self._connection.execute("SELECT value FROM meta WHERE key='contents'").fetchone()
            return Contents.parse(row[0])
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise StoreError(
                f"the store `{self._path}` is damaged: it does not say what it holds ({error})",
                hint=_way_out(self._path),
            ) from error

    def revision(self) -> int:
        """Return the highest revision ever committed; call before ``start``."""
        return self._contents.revision

    def rows(self) -> Iterator[Row]:
        """Yield every row in key order; call before ``start``.

        Raises:
            StoreError: a row cannot be read, does not fit its sum, or is missing.
        """
        query = "SELECT collection, namespace, name, revision, written_s, value, sum FROM object"
        place = "its first row"
        sums = []
        try:
            for *columns, sum_ in self._connection.execute(query):
                place = "/".join(columns[:3])
                if row_sum(*columns) != sum_:
                    raise ValueError("the row does not fit its sum")
                sums.append(sum_)
                yield Row(*columns)
            place = "its end"
            if not self._contents.are_rows(sums):
                raise ValueError(f"it has {len(sums)} rows, and {self._contents.rows} were written")
        except (sqlite3.Error, UnicodeDecodeError, TypeError, ValueError) as error:
            raise StoreError(
                f"the store `{self._path}` is damaged at or after {place}: {error}", hint=_way_out(self._path)
            ) from error

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, rows: list[Row]) -> None:
        """Queue writes for one transaction; they are committed in the order in which they come."""
        self._queue.put(rows)

    def close(self) -> None:
        """Commit what is queued, copy the log back and let go of the file. Blocks until done."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        else:
            self._connection.close()

    def _run(self) -> None:
        going = True
        while going:
            rows: list[Row] = []
            item = self._queue.get()
            while True:
                if item is None:
                    going = False
                    break
                rows += item
                if len(rows) >= TRANSACTION_ROWS_MAX:
                    break
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
            if rows:
                self._write(rows)
                self._tidy()
        self._empty_log()
        self._connection.close()

    def _empty_log(self) -> None:
        """Copy the log back and cut it off, which makes room where it holds many versions of few objects."""
        with contextlib.suppress(sqlite3.Error, MemoryError):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._log_bytes = 0

    def _write(self, rows: list[Row]) -> None:
        # What was queued behind a failed transaction was computed from states that never came to be.
        stale = [row for row in rows if row.batch <= self._failed_batch]
        if stale:
            self._on_outcome(stale, StoreError("an earlier write failed"))
            rows = [row for row in rows if row.batch > self._failed_batch]
        if not rows:
            return
        connection = self._connection
        contents = self._contents
        try:
            connection.execute("BEGIN IMMEDIATE")
            for row in rows:
                contents = self._write_row(row, contents)
            contents = contents.at(rows[-1].revision)
            connection.execute("UPDATE meta SET value=? WHERE key='contents'", (contents.text(),))
            connection.execute("COMMIT")
        except (sqlite3.Error, MemoryError) as error:
            with contextlib.suppress(sqlite3.Error, MemoryError):
                connection.execute("ROLLBACK")
            self._failed_batch = rows[-1].batch
            failure = StoreError(f"cannot write the store `{self._path}`: {error}", is_full=_is_full(error))
            failure.__cause__ = error
            self._on_outcome(rows, failure)
            if failure.is_full:
                self._empty_log()
        else:
            self._contents = contents
            self._on_outcome(rows, None)

    def _write_row(self, row: Row, contents: Contents) -> Contents:
        key = (row.collection, row.namespace, row.name)
        before = self._connection.execute(f"SELECT sum FROM object WHERE {_KEY}", key).fetchone()
        if before is not None:
            contents = contents.without_row(before[0])
        if row.value is None:
            self._connection.execute(f"DELETE FROM object WHERE {_KEY}", key)
            return contents
        self._log_bytes += len(row.value) + 4096
        columns = (*key, row.revision, row.written_s, row.value)
        sum_ = row_sum(*columns)
        self._connection.execute("INSERT OR REPLACE INTO object VALUES (?,?,?,?,?,?,?)", (*columns, sum_))
        return contents.with_row(sum_)

    def _tidy(self) -> None:
        """Copy the log back once it is long; away from any request, as the outcome was reported before."""
        if self._log_bytes < CHECKPOINT_BYTES:
            return
        self._log_bytes = 0
        with contextlib.suppress(sqlite3.Error, MemoryError):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            free = self._connection.execute("PRAGMA freelist_count").fetchone()[0]
            if free > VACUUM_FREE_PAGES_MIN:
                self._connection.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)
    # Exclusive: the lock is kept until the process ends, however it ends, so a second one is refused.
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute(f"PRAGMA journal_size_limit={JOURNAL_BYTES_MAX}")
    connection.execute("PRAGMA cache_size=-2048")
    return connection


def _prepare(connection: sqlite3.Connection) -> str:
    """Make what is missing, give sums to a store that has none yet, and return the format."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name='meta'").fetchone():
        connection.executescript(f"BEGIN; {_SCHEMA} INSERT INTO meta VALUES ('format', '{_FORMAT}');")
        _write_contents(connection)
        connection.execute("COMMIT")
    (found,) = connection.execute("SELECT value FROM meta WHERE key='format'").fetchone()
    if found == _FORMAT_WITHOUT_SUMS:
        connection.execute("BEGIN IMMEDIATE")
        connection.create_function("row_sum", 6, _sum_of_sound_row, deterministic=True)
        connection.execute("ALTER TABLE object ADD COLUMN sum INTEGER NOT NULL DEFAULT 0")
        connection.execute(
            "UPDATE object SET sum=row_sum(collection, namespace, name, revision, written_s, value)"
        )
        _write_contents(connection)
        connection.execute("DELETE FROM meta WHERE key='revision'")
        connection.execute("UPDATE meta SET value=? WHERE key='format'", (_FORMAT,))
        connection.execute("COMMIT")
        found = _FORMAT
    return str(found)


def _write_contents(connection: sqlite3.Connection) -> None:
    row = connection.execute("SELECT value FROM meta WHERE key='revision'").fetchone()
    contents = Contents(int(row[0]) if row else 0)
    for (sum_,) in connection.execute("SELECT sum FROM object"):
        contents = contents.with_row(sum_)
    connection.execute("INSERT INTO meta VALUES ('contents', ?)", (contents.text(),))


def _sum_of_sound_row(*columns: Any) -> int:
    msgspec.json.decode(columns[5], type=msgspec.Raw)  # SQLite ends the statement where this raises
    return row_sum(*columns)


def _unwritable(folder: Path) -> str:
    """Return why nothing can be written into a folder, empty when something can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
            file.flush()
    except OSError as error:
        return f"nothing can be written into `{folder}` ({error.strerror})"
    return ""


def _room(path: Path) -> str:
    """Return what to do about a folder that takes nothing."""
    folder = path.parent
    return (
        f"nothing is lost; see `df -h {folder}` and `findmnt -T {folder}`, make room, or have the disk "
        "mounted for writing, and start again; GANGLINE_HOME names a folder on another disk for new clusters"
    )


def _way_out(path: Path) -> str:
    """Return what to do about a damaged store: it lies in the folder that has the cluster's name."""
    name = path.parent.name
    return (
        f"save what can be read: gangline store export --cluster {name} > objects.yaml; then begin anew: "
        f"gangline down --purge --cluster {name}, and gangline apply --cluster {name} objects.yaml"
    )


def _is_full(error: Exception) -> bool:
    """Whether the disk, or the quota, has no room; that comes as an error of the write, too."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
