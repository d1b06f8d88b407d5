"""What pods leave behind: files of pods that are gone, and logs, which are kept for a bounded time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LOGS_AGE_MAX_S = 3600.0
LOGS_BYTES_MAX = 512 * 1024 * 1024
SWEEP_PERIOD_S = 60.0
TOKEN_CHECK_PERIOD_S = 30.0
"""The shortest token lives 600 s and is renewed after 480."""
ENDS_AGE_MAX_S = 30 * 24 * 3600.0
ENDS_BYTES_MAX = 16 * 1024 * 1024
"""Some ten thousand pods; a record outlives its pod in case that an older state of the API is restored."""
UID_CHARS = 36


@dataclass(frozen=True, slots=True)
class Leftover:
    """What is left of one pod, its logs for one: ``used_at`` in seconds since 1970."""

    path: Path
    uid: str
    used_at: float
    size_bytes: int


def choose_expired(
    folders: Iterable[Leftover],
    *,
    living: set[str],
    now_s: float,
    age_max_s: float = LOGS_AGE_MAX_S,
    bytes_max: int = LOGS_BYTES_MAX,
) -> list[Leftover]:
    """Return what to remove: of pods that are gone, what is too old, then the oldest above the size.

    What belongs to pods that still exist in the API is never chosen. Pure.
    """
    gone = sorted((f for f in folders if f.uid not in living), key=lambda folder: folder.used_at)
    expired = [folder for folder in gone if now_s - folder.used_at > age_max_s]
    kept = gone[len(expired) :]
    total = sum(folder.size_bytes for folder in kept)
    for folder in kept:
        if total <= bytes_max:
            break
        expired.append(folder)
        total -= folder.size_bytes
    return expired


def read_log_folders(logs: Path) -> list[Leftover]:
    """Return every pod's log folder with its size and last write."""
    found = []
    if not logs.is_dir():
        return []
    for path in logs.iterdir():
        stats = [entry.stat() for entry in path.rglob("*") if entry.is_file()]
        used_at = max((item.st_mtime for item in stats), default=path.stat().st_mtime)
        size_bytes = sum(item.st_size for item in stats)
        found.append(Leftover(path, path.name.rpartition("_")[2], used_at, size_bytes))
    return found


def sweep_logs(logs: Path, living: set[str]) -> int:
    """Remove expired logs; return how many pods' logs went."""
    expired = choose_expired(read_log_folders(logs), living=living, now_s=time.time())
    for folder in expired:
        shutil.rmtree(folder.path, ignore_errors=True)
    return len(expired)


def choose_ends(ends: Path, living: set[str]) -> list[str]:
    """Return the uids of pods whose record of their end (see ``ends``) may go."""
    records = []
    for path in ends.glob("*.json"):
        found = path.stat()
        records.append(Leftover(path, path.stem, found.st_mtime, found.st_size))
    expired = choose_expired(
        records, living=living, now_s=time.time(), age_max_s=ENDS_AGE_MAX_S, bytes_max=ENDS_BYTES_MAX
    )
    return [one.uid for one in expired]


def sweep_sockets(run: Path, living: set[str]) -> int:
    """Remove sockets of shims whose pods are gone; return how many."""
    removed = 0
    if not run.is_dir():
        return 0
    for path in run.iterdir():
        is_pods = path.suffix == ".rsh" or (path.suffix == ".sock" and len(path.stem) == UID_CHARS)
        if is_pods and path.stem not in living:
            path.unlink(missing_ok=True)
            removed += 1
    return removed
