"""What the launcher of an elastic training shows its workers: who trains with whom, by generations."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline.errors import UserError
from gangline.train.environment import BOARD_VARIABLE, GENERATION_VARIABLE
from gangline.train.records import format_record

WORKER_VARIABLE = "GANGLINE_ELASTIC_WORKER"
FREE_KIND = "elastic-free"
_LOOK_EVERY_S = 0.05


@dataclass(slots=True)
class Board:
    """The board as one worker reads it.

    Attributes:
        worker: number of this one.
        generation: of which it is a member, 0 before the first.
    """

    path: Path
    worker: int
    generation: int = 0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Board | None:
        """Return the board of an elastic launch, None where this process was not started by one."""
        if BOARD_VARIABLE not in environment:
            return None
        return cls(Path(environment[BOARD_VARIABLE]), int(environment[WORKER_VARIABLE]))

    def is_changing(self) -> bool:
        """Return whether this generation is to end. Cost: 20 µs."""
        said = self._read()
        return bool(said["is_changing"]) or int(said["generation"]) != self.generation

    def has_lost(self) -> bool:
        """Return whether a rank of this generation is lost, as far as the launcher knows."""
        said = self._read()
        return bool(said["has_lost"]) and int(said["generation"]) == self.generation

    def ends_within(self, limit_s: float) -> bool:
        """Return whether the launcher ends this generation within a while: a rank of it was lost."""
        until = time.monotonic() + limit_s
        while not (ends := self.is_changing()) and time.monotonic() < until:
            time.sleep(_LOOK_EVERY_S)
        return ends

    def join(self) -> dict[str, str] | None:
        """Say that this worker is free, and return the variables of its place in the next generation.

        None where it is in none: its host is to have no workers any more.
        """
        is_new = self.generation == 0
        self._say_free()
        while True:
            said = self._read()
            members: list[dict[str, Any]] = said["members"]
            numbers = [int(member["number"]) for member in members]
            is_other, is_in = int(said["generation"]) != self.generation, self.worker in numbers
            if is_other and not said["is_changing"] and (is_in or not is_new):
                break
            if is_other and said["is_changing"] and is_in:  # it was to end before this worker saw it begin
                self.generation, is_new = int(said["generation"]), False
                self._say_free()
            time.sleep(_LOOK_EVERY_S)
        self.generation = int(said["generation"])
        if self.worker not in numbers:
            return None
        rank = numbers.index(self.worker)
        place = {
            "RANK": rank,
            "WORLD_SIZE": len(members),
            "LOCAL_RANK": members[rank]["local_rank"],
            "LOCAL_WORLD_SIZE": members[rank]["local_size"],
            "GROUP_RANK": members[rank]["node_rank"],
            "MASTER_ADDR": said["master"],
            "MASTER_PORT": said["port"],
            GENERATION_VARIABLE: self.generation,
        }
        return {name: str(value) for name, value in place.items()}

    def _say_free(self) -> None:
        sys.stdout.write(format_record(FREE_KIND, worker=self.worker, generation=self.generation))
        sys.stdout.flush()

    def _read(self) -> dict[str, Any]:
        try:
            said: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"the board of the launcher is gone: {error}") from error
        return said
