"""One rank's part of one save: drafts, its own and spread state, then the model, which completes the step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangline.errors import UserError
from gangline.train.checkpoints import same_state, sharded_state
from gangline.train.checkpoints.checkpoint_file import (
    SAVE_BYTES,
    Draft,
    digest_of,
    digest_of_names,
    draft_path,
    name_of,
    remove,
    sync_folder,
)
from gangline.train.environment import Ranks

Facts = dict[str, Any]


class Saving:
    """What one rank does for one step; between the parts all ranks wait for each other.

    Args:
        folder: of the checkpoints.
        step: after which is saved.
        ranks: this rank's place.
        run: name of these ranks, which no others have that save there before or after them.
        group: for collectives beside those of the training; None for torch's own.
        writes_model: this rank writes what is the same on all.
        sees_rank_0: its folder is rank 0's.

    Attributes:
        marks: of the state, to be compared with those of the other ranks.
        compared: the same, where they were taken before, and the state was not kept.
    """

    def __init__(
        self,
        folder: Path,
        step: int,
        ranks: Ranks,
        run: str,
        group: Any,
        *,
        writes_model: bool,
        sees_rank_0: bool,
    ) -> None:
        self._folder, self.step, self._ranks, self._group = folder, step, ranks, group
        self._writer = f"rank-{ranks.rank}.{run}"
        self._writes_model, self._sees_rank_0 = writes_model, sees_rank_0
        self._mine = self._draft(f"rank-{ranks.rank}-of-{ranks.size}")
        self._model = self._draft("model")
        self._shards: sharded_state.Shards | None = None
        # All ranks write into this one, and rank 0 answers for it.
        self._shards_draft = draft_path(folder, step, f"shards.{run}")
        self._own: Path | None = None
        self._save = ""
        self.marks: dict[str, str] = {}
        self.compared: dict[str, str] | None = None

    def _draft(self, place: str) -> Draft:
        return Draft(self._folder, self.step, place, self._writer)

    def write_drafts(self, state: Any, own: Any, random_states: Facts) -> Facts:
        """Write what this rank writes alone, and prove that it can be read; nothing has a name yet.

        Raises:
            UserError: what was given cannot be written, or not read back.
            OSError: the disk is full, for example.
        """
        self._shards = sharded_state.take_apart(state, self._ranks.size)
        if self._shards is not None and not self._sees_rank_0:
            raise UserError("state that is spread over ranks needs a folder that all nodes share")
        rest = state if self._shards is None else self._shards.rest
        self.marks = same_state.marks_of(rest) if self.compared is None else self.compared
        self._mine.write({"own": own, "random": random_states}, own=own)
        if self._shards is not None:
            self._model = self._draft("sharded-model")
            if self._ranks.rank == 0:
                remove(self._shards_draft)
        elif self._writes_model:
            self._model.write(state, state=state)
        is_sharded = self._shards is not None
        save = os.urandom(SAVE_BYTES).hex()
        return {"marks": same_state.digest(self.marks), "is_sharded": is_sharded, "save": save}

    def commit_own(self, save: str) -> Facts:
        """Give this rank's own file its name, and write its part of what is spread, all together.

        Args:
            save: name of this save, which no other has, the same on all ranks.
        """
        self._save = save
        self._own = self._mine.commit(save)
        if self._shards is None:
            return {}
        sharded_state.write(self._shards_draft, self._shards, self._group)
        names = sharded_state.files_of(self._shards_draft, self._ranks.rank)
        return {"files": {name: digest_of(self._shards_draft / name) for name in names}}

    def commit_model(self, said: Sequence[Facts]) -> Facts:
        """Complete the step, on the ranks that write the model.

        Args:
            said: what `commit_own` returned on all ranks.
        """
        if not self._writes_model:
            return {"has_older": bool(self._older())}
        if self._shards is not None:
            files = {str(name): str(digest) for one in said for name, digest in one["files"].items()}
            kept = self._commit_shards(files)
            index = {"tensors": self._shards.index, "folder": kept.name, "files": files}
            self._model.write({"state": self._shards.rest, "shards": index}, state=self._shards.rest)
        self._model.commit(self._save)
        return {"has_older": bool(self._older())}

    def remove_older(self) -> Facts:
        """Remove this rank's part of earlier saves of this step, once all ranks have completed this one."""
        for path in self._older():
            remove(path)
        return {}

    def _older(self) -> list[Path]:
        found = []
        for path in self._folder.glob(f"step-{self.step:08d}.*"):
            if (name := name_of(path)) is None or name.save == self._save:
                continue
            is_own = (name.rank, name.size) == (self._ranks.rank, self._ranks.size)
            if is_own if name.kind == "rank" else self._writes_model:
                found.append(path)
        return found

    def _commit_shards(self, files: dict[str, str]) -> Path:
        sync_folder(self._shards_draft)
        folder = self._folder / f"step-{self.step:08d}.shards-{digest_of_names(files)}.{self._save}"
        self._shards_draft.replace(folder)
        sync_folder(self._folder)
        return folder

    def drop(self, *, has_failed: bool) -> None:
        """Remove what has no name yet, and what belongs to a save that has no model: the disk may be full.

        Args:
            has_failed: on all ranks; else one that is not lost may still complete it.
        """
        self._mine.drop()
        if (
            has_failed
            and self._own is not None
            and not any(self._folder.glob(f"step-*model-*.{self._save}.pt"))
        ):
            remove(self._own)
        self._model.drop()
        if self._ranks.rank == 0:
            remove(self._shards_draft)
