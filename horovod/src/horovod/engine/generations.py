"""The generations of an elastic job: its launcher shows on a board who trains with whom."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TypeVar

from gangline.errors import GanglineError
from gangline.train.elastic.board import Board
from gangline.train.environment import Ranks, read_ranks

Begun = TypeVar("Begun")
MEETING_LIMIT_S = 30.0
"""Ranks of a generation meet within this, or one of them was lost."""
LOSS_LIMIT_S = 5.0
"""A meeting that failed failed for a lost rank if the launcher says so within this time."""

_boards: list[Board] = []


def board() -> Board | None:
    """Return the board of this process's launcher, None where it shows none."""
    if not _boards and (found := Board.of(os.environ)) is not None:
        _boards.append(found)
    return _boards[0] if _boards else None


def are_changing() -> bool:
    """Return whether ranks were lost, or others are to come. Cost: 20 µs."""
    return bool(_boards) and _boards[0].is_changing()


def begin_in_next(board: Board, begin: Callable[[Ranks], Begun], leave: Callable[[], None]) -> Begun:
    """Return what beginning in the next generation leads to; one that ends meanwhile is left.

    Args:
        board: of the launcher.
        begin: meets the others, given this rank's place.
        leave: undoes what it had begun when it failed.

    Raises:
        SystemExit: this rank's host is to have no ranks any more.
    """
    while True:
        place = board.join()
        if place is None:
            raise SystemExit(0)
        try:
            return begin(read_ranks({**os.environ, **place}))
        except (GanglineError, RuntimeError, OSError) as error:
            if not board.ends_within(LOSS_LIMIT_S):
                raise
            sys.stderr.write(f"horovod: leaves its generation: {error}\n")
            leave()
