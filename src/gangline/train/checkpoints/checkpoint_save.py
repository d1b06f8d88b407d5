"""One rank's part of one save: drafts, its own and spread state, then the model, which completes the step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangline.errors import UserError
from gangline.train.checkpoints import same_state, sharded_state
from gangline.train.checkpoints.checkpoint_file import (
    Draft,
    digest_of,
    digest_of_names,
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
        writes_model: this rank writes what is the same on all.
        sees_rank_0: its folder is rank 0's.
    """

    def __init__(
        self, folder: Path, step: int, ranks: Ranks, *, writes_model: bool, sees_rank_0: bool
    ) -> None:
        self._folder, self._step, self._ranks = folder, step, ranks
        self._writes_model, self._sees_rank_0 = writes_model, sees_rank_0
        self._mine = self._draft(f"rank-{ranks.rank}-of-{ranks.size}")
        self._model = self._draft("model")
        self._shards: sharded_state.Shards | None = None
        # All ranks write into this one, and rank 0 answers for it.
        self._shards_draft = folder / f".step-{step:08d}.shards.rank-0.part"
        self._own: Path | None = None
        self.marks: dict[str, str] = {}

    def _draft(self, place: str) -> Draft:
        return Draft(self._folder, self._step, place, self._ranks.rank)

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
        self.marks = same_state.marks_of(rest)
        self._mine.write({"own": own, "random": random_states}, own=own)
        if self._shards is not None:
            self._model = self._draft("sharded-model")
            if self._ranks.rank == 0:
                remove(self._shards_draft)
        elif self._writes_model:
            self._model.write(state, state=state)
        return {"marks": same_state.digest(self.marks), "is_sharded": self._shards is not None}

    def commit_own(self) -> Facts:
        """Give this rank's own file its name, and write its part of what is spread, all together."""
        self._own = self._mine.commit()
        if self._shards is None:
            return {}
        sharded_state.write(self._shards_draft, self._shards)
        names = sharded_state.files_of(self._shards_draft, self._ranks.rank)
        return {"files": {name: digest_of(self._shards_draft / name) for name in names}}

    def commit_model(self, said: Sequence[Facts]) -> Facts:
        """Complete the step, on the ranks that write the model.

        Args:
            said: what `commit_own` returned on all ranks.
        """
        if not self._writes_model:
            return {}
        kept = None
        if self._shards is not None:
            files = {str(name): str(digest) for one in said for name, digest in one["files"].items()}
            kept = self._commit_shards(files)
            index = {"tensors": self._shards.index, "folder": kept.name, "files": files}
            self._model.write({"state": self._shards.rest, "shards": index}, state=self._shards.rest)
        path = self._model.commit()
        for older in self._folder.glob(f"step-{self._step:08d}.*"):  # of an earlier attempt at this step
            if (".model-" in older.name or ".sharded-model-" in older.name) and older != path:
                remove(older)
            if ".shards-" in older.name and older != kept:
                remove(older)
        return {}

    def _commit_shards(self, files: dict[str, str]) -> Path:
        sync_folder(self._shards_draft)
        folder = self._folder / f"step-{self._step:08d}.shards-{digest_of_names(files)}"
        remove(folder)  # with this name it has the same content, whole or damaged
        self._shards_draft.replace(folder)
        sync_folder(self._folder)
        return folder

    def drop(self) -> None:
        """Remove what has no name yet, and what belongs to a step that has no model: the disk may be full."""
        self._mine.drop()
        if self._own is not None and not any(self._folder.glob(f"step-{self._step:08d}.*model-*.pt")):
            remove(self._own)
        self._model.drop()
        if self._ranks.rank == 0:
            remove(self._shards_draft)
