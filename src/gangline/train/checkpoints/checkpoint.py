"""Checkpoints that survive ``kill -9`` at any moment, and a resume on whose step all ranks agree.

First every rank writes what is its own, then rank 0 (or one rank of each node, where the folder is not
shared) writes the model: a step with a model is complete. State that is spread over the ranks is written by
all of them into a folder before that. What cannot be read back is refused when it is saved, on all ranks.
The files' names are in `gangline.train.checkpoints.checkpoint_file`.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline.errors import GanglineError, UserError
from gangline.train.checkpoint_log import KIND
from gangline.train.checkpoints import checkpoint_contents, same_state, sharded_state
from gangline.train.checkpoints.agreement import Agreement
from gangline.train.checkpoints.behind import Behind
from gangline.train.checkpoints.checkpoint_file import (
    Name,
    digest_of,
    is_sharded,
    is_whole,
    name_of,
    remove,
    remove_leftovers,
)
from gangline.train.checkpoints.checkpoint_save import Saving
from gangline.train.checkpoints.due import Due
from gangline.train.checkpoints.folder_lock import FolderLock
from gangline.train.checkpoints.random_states import random_states, set_random_states
from gangline.train.checkpoints.snapshot import Snapshots
from gangline.train.collectives.apart import group_apart
from gangline.train.environment import Ranks
from gangline.train.peers import PeerLostError, Peers
from gangline.train.records import format_record
from gangline.train.unless_lost import unless_lost

ABANDON_LIMIT_S = 2.0
"""So long is a save waited for that is not to be completed: to let go of what the ranks have in common."""
_RUN_BYTES = 8
_SEEN = ".seen-by-rank-0"

_runs: set[str] = set()
"""Those that this process was a rank of."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A step that was resumed.

    Attributes:
        step: after which it was saved.
        state: what was saved as the same on all ranks; what was spread over them is spread over those of now.
        own: what this rank saved as its own, None when it saved nothing. Where the number of ranks was
            another, what ``resume(reshard=...)`` made of all that those had saved, None without it.
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
        peers: tells which of them have ended.
        keep: how many newest steps are kept, at least 1.
        device_type: where state that is spread over ranks goes when it is resumed.

    Raises:
        UserError: the folder cannot be used, or another training writes there.
    """

    def __init__(
        self,
        folder: Path,
        ranks: Ranks,
        store: Any,
        peers: Peers,
        *,
        keep: int = 3,
        device_type: str = "cpu",
    ) -> None:
        if keep < 1:
            raise UserError(f"checkpoints in `{folder}`: keep={keep} keeps none; keep at least 1")
        self._folder, self._ranks, self._store, self._keep = folder, ranks, store, keep
        self._device_type, self._peers = device_type, peers
        self._lock = FolderLock(folder)
        self._behind: Behind | None = None
        self._snapshots = Snapshots()
        self._interval_steps: int | None = None
        self._apart: tuple[Any, Any] | None = None
        run, problem = os.urandom(_RUN_BYTES).hex(), ""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if ranks.rank == 0:
                is_ours = self._seen() in _runs
                problem = "" if self._lock.take(is_ours=is_ours) else "another training writes there"
                (folder / _SEEN).write_text(run, encoding="ascii")
        except OSError as error:
            problem = f"{error.strerror or error}"
        facts = self._agreement().exchange({"problem": problem, "run": run})
        if found := next((str(fact["problem"]) for fact in facts if fact["problem"]), ""):
            raise UserError(f"cannot keep checkpoints in `{folder}`: {found}", hint="name another folder")
        self._run = str(facts[0]["run"])
        _runs.add(self._run)
        self._due = Due(folder, ranks.rank, ranks.size)
        self._sees_rank_0 = ranks.rank == 0 or self._seen() == self._run
        self._writes_model = ranks.rank == 0 or (ranks.local_rank == 0 and not self._sees_rank_0)
        if self._writes_model:
            remove_leftovers(folder, self._run)

    def save(self, step: int, state: Any, *, own: Any = None, wait: bool = True) -> None:
        """Write a checkpoint; when it returns on any rank, the step is complete on disk.

        With ``wait=False`` it returns once all is copied to memory, and writes behind the training: the step
        is complete when the next `save`, `wait` or `close` returns, and what went wrong is raised there.

        Args:
            step: number of steps done.
            state: the same on all ranks, for example ``{"model": …, "optimizer": …}``; rank 0's is written,
                and of tensors that are spread over the ranks (FSDP) every rank's part.
            own: this rank's, for example its place in the data. Random states are kept without being asked.
            wait: for the disk.

        Raises:
            UserError: something could not be read back, is spread in a way that could not be put together
                again, or differs between the ranks; the message names the key. Raised on all ranks.
            CheckpointError: it cannot be written, for example to a full disk; raised on all ranks.
            PeerLostError: a rank ended meanwhile.

        Cost of ``wait=False``: a copy of all tensors on the rank that writes them, and room for it in the
        machine's memory.
        """
        began = time.monotonic()
        self.wait()
        states = random_states()
        if wait:
            self._write(self._agreement(), self._saving(step), state, own, states)
            self.wait()
        else:
            self._write_behind(step, state, own, states)
        self._due.saved(step, time.monotonic() - began)

    def is_due(self, step: int) -> bool:
        """Return whether a save is due after this step; the same on all ranks, without waiting for them.

        The interval follows from what a save costs, how long a step takes, and how often such trainings
        fail (`gangline.train.checkpoints.interval`). The first two come after 10 and 20 steps, to measure.
        All ranks call it after every step.
        """
        return self._due(step)

    def _write_behind(self, step: int, state: Any, own: Any, states: Any) -> None:
        if self._apart is None:  # all ranks come here together
            is_lost = self._peers.is_lost
            store = unless_lost(self._store.clone, is_lost)
            self._apart = store, group_apart(self._ranks.size, is_lost)
        store, group = self._apart
        agreement = Agreement(self._folder, self._ranks, store, self._peers)
        saving = self._saving(step, group)
        if not self._writes_model and same_state.is_plain(state):
            # Another rank writes it: of this one's no more is needed than whether it is the same.
            saving.compared = same_state.marks_of(state)
            state = None
        state, own = self._snapshots.take({"state": state, "own": own}).values()
        self._behind = Behind(lambda: self._write(agreement, saving, state, own, states))

    def wait(self) -> None:
        """Return when nothing is being written any more.

        Raises:
            UserError: what was saved behind the training breaks a rule of `save`; raised on all ranks.
            CheckpointError: it could not be written; raised on all ranks.
            PeerLostError: a rank ended meanwhile.
        """
        behind, self._behind = self._behind, None
        if behind is not None:
            behind.finish()
        if self._interval_steps is not None:
            self._due.agree(self._interval_steps)
            self._due.write_history()
            self._interval_steps = None

    def _saving(self, step: int, group: Any = None) -> Saving:
        return Saving(
            *(self._folder, step, self._ranks, self._run, group),
            writes_model=self._writes_model,
            sees_rank_0=self._sees_rank_0,
        )

    def _write(self, agreement: Agreement, saving: Saving, state: Any, own: Any, random: Any) -> None:
        step = saving.step
        doing = f"save the checkpoint of step {step}"
        try:
            wanted = {"interval": self._due.wanted_steps()}
            said = agreement.together(doing, lambda: saving.write_drafts(state, own, random) | wanted)
            self._check_same(agreement, doing, saving.marks, said)
            first = said[0]
            save = str(first["save"])
            said = agreement.together(doing, lambda: saving.commit_own(save))
            # A model on disk says that every rank's own part of this save is there.
            done = agreement.together(doing, lambda: saving.commit_model(said))
            if any(one["has_older"] for one in done):  # until now they were the step
                agreement.together(doing, saving.remove_older)
        except GanglineError as error:
            saving.drop(has_failed=not isinstance(error, PeerLostError))
            raise
        if self._ranks.rank == 0:  # what came before is not lost: who chooses whom to end reads it
            sys.stdout.write(format_record(KIND, step=step))
            sys.stdout.flush()
        self._prune()
        self._interval_steps = int(first["interval"])

    def resume(self, *, reshard: Callable[[list[Any]], Any] | None = None) -> Checkpoint | None:
        """Return the newest step that is complete and undamaged on all ranks, None when there is none.

        Random states of Python, numpy and torch are set as they were, where the number of ranks is.

        Args:
            reshard: gets what every rank had saved as its own, in their order, where their number was
                another, and returns what is this rank's now. The folder has to be a shared one.

        Raises:
            UserError: it has contents that this script does not know as data, or was spread over ranks that
                these cannot be laid out as.
            PeerLostError: a rank ended meanwhile.
        """
        self.wait()
        agreement = self._agreement()
        found = self._listed()
        said = agreement.exchange({"saves": sorted(found)})
        common = set.intersection(*({(int(step), str(save)) for step, save in one["saves"]} for one in said))
        for step, save in sorted(common, reverse=True):
            model, own = found[step, save]
            owns = [] if own is not None or reshard is None else self._owns_of_others(step, save)
            damaged = [path.name for path in (model, own, *owns) if path is not None and not is_whole(path)]
            said = agreement.exchange({"damaged": damaged})
            if not any(one["damaged"] for one in said) and is_sharded(model):
                said = agreement.exchange({"damaged": self._damaged_shards(agreement, step, model)})
            names = sorted({str(name) for one in said for name in one["damaged"]})
            if not names:
                return self._load(agreement, step, model, own, owns, reshard)
            if self._ranks.rank == 0:
                sys.stderr.write(
                    f"gangline.train: checkpoint of step {step} is damaged: {', '.join(names)}\n"
                )
        return None

    def close(self) -> None:
        """Wait as `wait` does, and let another training use the folder."""
        try:
            self.wait()
            self._due.write_history(is_open=False)
        finally:
            self._lock.release()

    def abandon(self) -> None:
        """Let others use the folder, once `Peers.given_up` is set: what is not complete stays so."""
        behind, self._behind, self._apart = self._behind, None, None
        if behind is not None:
            behind.abandon(ABANDON_LIMIT_S)
        self._lock.release()

    # Files -------------------------------------------------------------------------------------------------

    def _listed(self) -> dict[tuple[int, str], tuple[Path, Path | None]]:
        """Return for every save of a step that has a model its file, and the one of this rank."""
        models: dict[tuple[int, str], Path] = {}
        owns: dict[tuple[int, str], Path] = {}
        others: set[tuple[int, str]] = set()
        for path, name in self._named():
            key = name.step, name.save
            if name.is_model:
                models[key] = path
            elif (name.rank, name.size) == (self._ranks.rank, self._ranks.size):
                owns[key] = path
            elif name.kind == "rank" and name.size != self._ranks.size:
                others.add(key)
        return {key: (path, owns.get(key)) for key, path in models.items() if key in owns or key in others}

    def _named(self) -> list[tuple[Path, Name]]:
        return [(path, name) for path in self._folder.iterdir() if (name := name_of(path)) is not None]

    def _damaged_shards(self, agreement: Agreement, step: int, model: Path) -> list[str]:
        """Return which files of spread state are damaged; every rank looks at some of them."""
        index: dict[str, Any] = {}
        agreement.together(_resuming(step), lambda: index.update(_read(model)["shards"]) or {})
        files, folder = index["files"], str(index["folder"])
        mine = sorted(files)[self._ranks.rank :: self._ranks.size]
        return [f"{folder}/{one}" for one in mine if digest_of(self._folder / folder / one) != files[one]]

    def _owns_of_others(self, step: int, save: str) -> list[Path]:
        """Return what ranks of another number saved as their own, in their order; empty if one is missing."""
        owns = {
            name.rank: (path, name.size)
            for path, name in self._named()
            if (name.step, name.save, name.kind) == (step, save, "rank")
        }
        size = next((size for _, size in owns.values()), 0)
        return [owns[rank][0] for rank in range(size)] if len(owns) == size else []

    def _load(
        self,
        agreement: Agreement,
        step: int,
        model: Path,
        own: Path | None,
        owns: list[Path],
        reshard: Callable[[list[Any]], Any] | None,
    ) -> Checkpoint:
        found: list[Any] = []

        def load() -> dict[str, Any]:
            state, mine = _read(model), _read(own) if own is not None else None
            if is_sharded(model):
                shards = state["shards"]
                folder = self._folder / shards["folder"]
                state = sharded_state.read(
                    *(folder, state["state"], shards["tensors"], self._ranks.size, self._device_type)
                )
            if mine is None and reshard is not None:
                if not owns:
                    raise UserError("what some ranks had saved as their own is not in this rank's folder")
                found.extend((state, None, reshard([_read(path)["own"] for path in owns])))
                return {}
            found.extend((state, mine, None))
            return {}

        agreement.together(_resuming(step), load)
        state, mine, made = found
        if mine is None:
            return Checkpoint(step, state, made)
        set_random_states(mine["random"])
        return Checkpoint(step, state, mine["own"])

    def _prune(self) -> None:
        """Remove all but the newest steps, models first: a step without one is not complete."""
        names = self._named()
        kept = sorted({name.step for _, name in names if name.is_model})[-self._keep :]
        doomed = [(path, name) for path, name in names if kept and name.step < kept[0]]
        for path, name in sorted(doomed, key=lambda one: not one[1].is_model):
            if name.is_model:
                is_mine = self._writes_model
            else:
                is_others = name.kind == "shards" or name.size != self._ranks.size
                is_mine = name.rank == self._ranks.rank or (is_others and self._ranks.rank == 0)
            if is_mine:
                remove(path)

    # Other ranks -------------------------------------------------------------------------------------------

    def _agreement(self) -> Agreement:
        return Agreement(self._folder, self._ranks, self._store, self._peers)

    def _check_same(
        self, agreement: Agreement, doing: str, marks: dict[str, str], said: list[dict[str, Any]]
    ) -> None:
        """Refuse a state of which another rank has what rank 0 has not; all ranks come to the same answer."""
        if len({one["is_sharded"] for one in said}) > 1:
            raise UserError(
                f"cannot {doing}: the state of some ranks is spread over the ranks, of others not"
            )
        if all(one["marks"] in ("", said[0]["marks"]) for one in said):
            return
        every = [one["all"] for one in agreement.exchange({"all": marks})]
        found = (same_state.difference(every[0], one, rank) for rank, one in enumerate(every))
        if problem := next(filter(None, found), ""):
            raise UserError(
                f"cannot {doing} in `{self._folder}`: {problem}, and only rank 0's would be kept",
                hint="give what every rank has for itself as `own=…`; of FSDP1 take the state dicts that it "
                "makes itself, of the optimizer too",
            )

    def _seen(self) -> str:
        """Return of which run's rank 0 this rank sees the folder, or saw it last."""
        try:
            return (self._folder / _SEEN).read_text(encoding="ascii")
        except OSError:
            return ""


def _resuming(step: int) -> str:
    return f"resume from the checkpoint of step {step}"


def _read(path: Path) -> Any:
    try:
        return checkpoint_contents.read(path)
    except pickle.UnpicklingError as error:
        names = checkpoint_contents.unknown_names(path)
        raise UserError(
            f"`{path.name}` has {', '.join(names) or 'contents'} in it, not known to be data",
            hint=f"if you trust the file: torch.serialization.add_safe_globals([{', '.join(names)}]), "
            "at the start of the script",
        ) from error
