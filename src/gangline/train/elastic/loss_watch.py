"""Frees a rank from a collective with a rank that is lost, where no connection says so.

A pod that goes takes its network with it, and a host whose power fails sends nothing more: those who wait for
one of its ranks would do so until torch's time-out. The launcher knows of it, and its board says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gangline.errors import UserError
from gangline.train.elastic.board import Board
from gangline.train.ending import give_up_waiting
from gangline.train.peers import PeerLostError

LOOK_EVERY_S = 0.2
GRACE_S = 1.0
"""Connections that end say so sooner, and who sees that knows which rank is lost."""


class LossWatch:
    """Looks at the board while a generation trains, in a thread of its own; a context.

    Args:
        board: of the launcher.
        give_up: frees what waits for other ranks elsewhere than in a collective of ours.

    Cost: a small file read five times a second.
    """

    def __init__(self, board: Board, give_up: Callable[[PeerLostError], None] = lambda _: None) -> None:
        self._board, self._give_up = board, give_up
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gangline-loss-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._is_over.set()
        self._thread.join()

    def __enter__(self) -> LossWatch:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _run(self) -> None:
        with suppress(UserError):  # the board goes with the launcher, and this rank with both
            while not self._is_over.wait(LOOK_EVERY_S):
                if self._board.has_lost():
                    if not self._is_over.wait(GRACE_S):
                        error = PeerLostError("the launcher says that a rank was lost")
                        self._give_up(error)
                        _free(error)
                    return


def _free(error: PeerLostError) -> None:
    from gangline.train.collectives.rank_group import RankGroup

    give_up_waiting(error)
    for group in RankGroup.groups.copy():
        group.abort()
