"""Checkpoints that survive ``kill -9`` at any moment, and a resume on whose step all ranks agree.

A file is written beside its place, synced, and renamed to a name that carries its digest: what has the name
is whole, and what was damaged later is noticed. First every rank writes what is its own, then rank 0 (or one
rank of each node, where the folder is not shared) writes the model: a step with a model is complete. The
files are ordinary ones of ``torch.save``::

    step-00000240.rank-1-of-2-3f0c….pt    random states of rank 1, and what it gave as its own
    step-00000240.model-9a1be….pt         what is the same on all ranks
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gangline.errors import UserError
from gangline.train.environment import Ranks
from gangline.train.meeting import exchange

DIGEST_CHARACTERS = 32
_READ_BYTES = 1 << 20
_NAME = re.compile(r"step-(\d{8,})\.(model|rank-(\d+)-of-(\d+))-([0-9a-f]{32})\.pt")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A step that was resumed.

    Attributes:
        step: after which it was saved.
        state: what was saved as the same on all ranks.
        own: what this rank saved as its own; None when it saved nothing or the number of ranks was another.
    """

    step: int
    state: Any
    own: Any


class Checkpoints:
    """The checkpoints of one training. All ranks call ``save`` and ``resume`` together.

    Args:
        folder: made if absent; on several nodes it may be a shared one or one on each node.
        ranks: this rank's place, complete.
        store: that all ranks share.
        keep: how many newest steps are kept, at least 1.

    Raises:
        UserError: the folder cannot be used, or another training writes there.
    """

    def __init__(self, folder: Path, ranks: Ranks, store: Any, *, keep: int = 3) -> None:
        if keep < 1:
            raise UserError(f"checkpoints in `{folder}`: keep={keep} keeps none; keep at least 1")
        self._folder, self._ranks, self._store, self._keep = folder, ranks, store, keep
        self._lock: IO[bytes] | None = None
        problem = ""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if ranks.rank == 0:
                problem = self._take_lock()
                (folder / ".seen-by-rank-0").write_text(_store_name(store), encoding="ascii")
        except OSError as error:
            problem = f"{error.strerror or error}"
        facts = self._exchange({"problem": problem})
        if found := next((str(fact["problem"]) for fact in facts if fact["problem"]), ""):
            raise UserError(f"cannot keep checkpoints in `{folder}`: {found}", hint="name another folder")
        self._writes_model = ranks.rank == 0 or (ranks.local_rank == 0 and not self._sees_rank_0())
        for draft in folder.glob(f".*.rank-{ranks.rank}.part"):
            draft.unlink(missing_ok=True)

    def save(self, step: int, state: Any, *, own: Any = None) -> None:
        """Write a checkpoint; when it returns on any rank, the step is complete on disk.

        Args:
            step: number of steps done.
            state: the same on all ranks, for example ``{"model": …, "optimizer": …}``; rank 0's is written.
            own: this rank's, for example its place in the data. Random states are kept without being asked.
        """
        place = f"rank-{self._ranks.rank}-of-{self._ranks.size}"
        self._write(step, place, {"own": own, "random": _random_states()})
        self._exchange({})  # a model on disk says that every rank's own part is there
        if self._writes_model:
            self._write(step, "model", state)
        self._exchange({})
        self._prune()

    def resume(self) -> Checkpoint | None:
        """Return the newest step that is complete and undamaged on all ranks, None when there is none.

        Random states of Python, numpy and torch are set as they were.
        """
        found = self._listed()
        said = self._exchange({"steps": sorted(found)})
        common = set.intersection(*({int(step) for step in one["steps"]} for one in said))
        for step in sorted(common, reverse=True):
            model, own = found[step]
            damaged = [path.name for path in (model, own) if path is not None and not is_whole(path)]
            said = self._exchange({"damaged": damaged})
            names = sorted({str(name) for one in said for name in one["damaged"]})
            if not names:
                return self._load(step, model, own)
            if self._ranks.rank == 0:
                sys.stderr.write(
                    f"gangline.train: checkpoint of step {step} is damaged: {', '.join(names)}\n"
                )
        return None

    def close(self) -> None:
        """Let another training use the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # Files -------------------------------------------------------------------------------------------------

    def _listed(self) -> dict[int, tuple[Path, Path | None]]:
        """Return for every step that has a model its file, and the one of this rank."""
        models: dict[int, Path] = {}
        owns: dict[int, Path] = {}
        others: set[int] = set()
        for path in self._folder.glob("step-*.pt"):
            if match := _NAME.fullmatch(path.name):
                step = int(match[1])
                if match[2] == "model":
                    models[step] = path
                elif (int(match[3]), int(match[4])) == (self._ranks.rank, self._ranks.size):
                    owns[step] = path
                elif int(match[4]) != self._ranks.size:
                    others.add(step)
        return {
            step: (path, owns.get(step)) for step, path in models.items() if step in owns or step in others
        }

    def _write(self, step: int, place: str, value: Any) -> None:
        import torch

        draft = self._folder / f".step-{step:08d}.{place}.rank-{self._ranks.rank}.part"
        with draft.open("wb") as file:
            writer = _Hashing(file)
            torch.save(value, writer)
            file.flush()
            os.fsync(file.fileno())
        name = f"step-{step:08d}.{place}-{writer.digest.hexdigest()[:DIGEST_CHARACTERS]}.pt"
        older = [path for path in self._folder.glob(f"step-{step:08d}.{place}-*.pt") if path.name != name]
        draft.replace(self._folder / name)
        for path in older:  # the same step of an earlier attempt
            path.unlink(missing_ok=True)
        _sync_folder(self._folder)

    def _load(self, step: int, model: Path, own: Path | None) -> Checkpoint:
        import torch

        state = torch.load(model, map_location="cpu", weights_only=True)
        if own is None:
            return Checkpoint(step, state, None)
        mine = torch.load(own, map_location="cpu", weights_only=True)
        _set_random_states(mine["random"])
        return Checkpoint(step, state, mine["own"])

    def _prune(self) -> None:
        """Remove all but the newest steps, models first: a step without one is not complete."""
        names = [(path, match) for path in self._folder.iterdir() if (match := _NAME.fullmatch(path.name))]
        kept = sorted({int(match[1]) for _, match in names if match[2] == "model"})[-self._keep :]
        doomed = [(path, match) for path, match in names if kept and int(match[1]) < kept[0]]
        for path, match in sorted(doomed, key=lambda one: one[1][2] != "model"):
            is_mine = self._writes_model if match[2] == "model" else int(match[3]) == self._ranks.rank
            if is_mine or (self._ranks.rank == 0 and int(match[4] or 0) != self._ranks.size):
                path.unlink(missing_ok=True)

    # Other ranks -------------------------------------------------------------------------------------------

    def _exchange(self, facts: dict[str, Any]) -> list[dict[str, Any]]:
        global _calls
        _calls += 1  # the same on all ranks, for they call together
        return exchange(self._store, self._ranks, facts, name=f"checkpoint/{_calls}")

    def _sees_rank_0(self) -> bool:
        try:
            text = (self._folder / ".seen-by-rank-0").read_text(encoding="ascii")
        except OSError:
            return False
        return text == _store_name(self._store)

    def _take_lock(self) -> str:
        import fcntl

        self._lock = (self._folder / ".lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            return "another training writes there"
        except OSError:
            pass  # a file system without locks
        return ""


_calls = 0


def _store_name(store: Any) -> str:
    """Return a name of this run: made by whoever asks first, the same for all ranks."""
    made = store.compare_set("checkpoint/run", "", os.urandom(8).hex())
    return bytes(made).decode()


class _Hashing:
    """A file for ``torch.save`` that computes the digest of what is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def is_whole(path: Path) -> bool:
    """Return whether a file's content has the digest that its name carries."""
    match = _NAME.fullmatch(path.name)
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while data := file.read(_READ_BYTES):
                digest.update(data)
    except OSError:
        return False
    return match is not None and digest.hexdigest()[:DIGEST_CHARACTERS] == match[5]


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _random_states() -> dict[str, Any]:
    """Return the states of Python's, numpy's and torch's generators in types that load without pickle."""
    import torch

    version, numbers, gauss = random.getstate()
    states: dict[str, Any] = {"python": (version, list(numbers), gauss), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in sys.modules:
        import numpy as np

        name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
        states["numpy"] = (str(name), [int(key) for key in keys], position, has_gauss, cached)
    return states


def _set_random_states(states: dict[str, Any]) -> None:
    import torch

    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    if "numpy" in states:
        import numpy as np

        name, keys, position, has_gauss, cached = states["numpy"]
        np.random.set_state((name, np.array(keys, np.uint32), position, has_gauss, cached))
