"""One file of a checkpoint: written beside its place, proven readable, synced, and named after its content.

What has its name is whole, and what was damaged later is noticed by the digest in it::

    step-00000240.rank-1-of-2-3f0c….5d1e….pt    random states of rank 1, and what it gave as its own
    step-00000240.model-9a1be….5d1e….pt         what is the same on all ranks
    step-00000240.sharded-model-77a0….5d1e….pt  the same beside state that is spread over the ranks, which
    step-00000240.shards-5cc1….5d1e…            lies in this folder

The last part is one save's own: files of two saves of one step are never taken together. Those that were
written before saves had one belong together by their step.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gangline.errors import UserError
from gangline.train.checkpoints import checkpoint_contents

DIGEST_CHARACTERS = 32
SAVE_BYTES = 8
"""Random bytes that tell saves of one step apart."""
_READ_BYTES = 1 << 20
_NAME = re.compile(
    r"step-(\d{8,})\.(?:(model|sharded-model)|rank-(\d+)-of-(\d+)|(shards))-([0-9a-f]{32})"
    r"(?:\.([0-9a-f]{16}))?(?:\.pt)?"
)


@dataclass(frozen=True, slots=True)
class Name:
    """What a file's name says of it.

    Attributes:
        step: after which it was saved.
        kind: ``model``, ``sharded-model``, ``rank`` or ``shards``.
        rank: whose own it is, -1 for nobody's.
        size: the number of ranks then, 0 unless it is a rank's own.
        digest: of its content.
        save: which save of the step it belongs to, empty in files of old.
    """

    step: int
    kind: str
    rank: int
    size: int
    digest: str
    save: str

    @property
    def is_model(self) -> bool:
        """Whether the step is complete with this file."""
        return self.kind in ("model", "sharded-model")


def name_of(path: Path) -> Name | None:
    """Return what a file's name says, None for a file that is none of ours."""
    if (match := _NAME.fullmatch(path.name)) is None:
        return None
    kind = match[2] or match[5] or "rank"
    rank = int(match[3]) if kind == "rank" else -1
    return Name(int(match[1]), kind, rank, int(match[4] or 0), match[6], match[7] or "")


def is_sharded(path: Path) -> bool:
    """Return whether a model's file leads to state that is spread over ranks."""
    name = name_of(path)
    return name is not None and name.kind == "sharded-model"


def draft_path(folder: Path, step: int, name: str) -> Path:
    """Return where something of a step lies until it is complete."""
    return folder / f".step-{step:08d}.{name}.part"


def remove_leftovers(folder: Path, run: str) -> None:
    """Remove what incomplete saves have left: drafts of other runs, and files of a save that has no model.

    Nobody of this run saves meanwhile.
    """
    for draft in folder.glob(".step-*.part"):
        if not draft.stem.endswith(f".{run}"):
            remove(draft)
    named = [(path, name) for path in folder.iterdir() if (name := name_of(path)) is not None]
    complete = {(name.step, name.save) for _, name in named if name.is_model}
    for path, name in named:
        if complete.isdisjoint({(name.step, name.save), (name.step, "")}):
            remove(path)


class Draft:
    """A file that is written and not yet in its place.

    Args:
        folder: of the checkpoints.
        step: after which it is saved.
        place: what the name says between step and digest.
        writer: who writes it, a rank of one run: no other one has this name.
    """

    def __init__(self, folder: Path, step: int, place: str, writer: str) -> None:
        self._folder, self._step, self._place = folder, step, place
        self._path = draft_path(folder, step, f"{place}.{writer}")
        self._digest = ""

    def write(self, value: Any, **given: Any) -> None:
        """Write a value and read it back.

        Args:
            value: the content.
            given: what of it comes from the user, by the names that he knows it by, for the message.

        Raises:
            UserError: a part of it cannot be read back, named by its key; nothing is kept.
            OSError: the disk is full, for example.
        """
        with self._path.open("wb") as file:
            writer = _Hashing(file)
            try:
                checkpoint_contents.write(value, writer)
                file.flush()
                os.fsync(file.fileno())
                checkpoint_contents.read(self._path, mmap=True)  # reads no tensor's numbers
            except Exception as error:
                if writer.error is not None:
                    raise writer.error from error
                parts = (checkpoint_contents.why_unreadable(part, name) for name, part in given.items())
                if found := next(filter(None, parts), None):
                    raise UserError(found[0], hint=found[1]) from error
                raise
        self._digest = writer.digest.hexdigest()[:DIGEST_CHARACTERS]

    def commit(self, save: str) -> Path:
        """Give the file its name, as part of a save."""
        path = self._folder / f"step-{self._step:08d}.{self._place}-{self._digest}.{save}.pt"
        self._path.replace(path)
        sync_folder(self._folder)
        return path

    def drop(self) -> None:
        """Remove what was written and not committed."""
        self._path.unlink(missing_ok=True)


class _Hashing:
    """A file for ``torch.save`` that computes the digest of what is written, and keeps the disk's error."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        self.digest.update(data)
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._file.flush()


def digest_of(path: Path) -> str:
    """Return the digest of a file's content, ``""`` when it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while data := file.read(_READ_BYTES):
                digest.update(data)
    except OSError:
        return ""
    return digest.hexdigest()[:DIGEST_CHARACTERS]


def digest_of_names(files: dict[str, str]) -> str:
    """Return the digest of a folder's files, from their names and digests."""
    return hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:DIGEST_CHARACTERS]


def is_whole(path: Path) -> bool:
    """Return whether a file's content has the digest that its name carries."""
    name = name_of(path)
    return name is not None and digest_of(path) == name.digest


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; one that is gone is no concern."""
    with suppress(FileNotFoundError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the file system can."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
