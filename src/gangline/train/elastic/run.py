"""Trains in one generation of ranks after another, in the same process: `gangline launch --min-ranks`."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from gangline.errors import ClusterError
from gangline.train import start
from gangline.train.checkpoints.agreement import CheckpointError
from gangline.train.elastic.board import Board
from gangline.train.elastic.loss_watch import LossWatch
from gangline.train.elastic.state import ElasticState, RanksChangeError
from gangline.train.peers import PeerLostError
from gangline.train.rendezvous import forget_ranks

Result = TypeVar("Result")
LOSS_LIMIT_S = 5.0
"""A collective that failed failed for a lost rank if the launcher says so within this time."""
MEETING_LIMIT_S = 30.0


def run_elastic(
    train: Callable[[start.Session, ElasticState], Result], state: ElasticState, **options: Any
) -> Result:
    """Call ``train(session, state)`` until it returns, with a session of its own for every set of ranks.

    After a lost rank it is called again on those that are left, with the state of the last commit; when ranks
    have come or are to leave, at the next commit. It begins with what ``state`` says, makes its
    `session.parallel` and data anew, and calls ``state.commit()`` after the same steps on all ranks. Under
    any other launcher it is called once.

    Args:
        train: the training; what it returns is returned.
        state: see `ElasticState`.
        options: of `gangline.train.init`.

    Raises:
        SystemExit: this rank's host is to have no ranks any more.
    """
    board = Board.of(os.environ)
    if board is None:
        with start.init(**options) as session:
            state.enter(session, None)
            return train(session, state)
    while True:
        place = board.join()
        if place is None:
            raise SystemExit(0)
        reason = ""
        try:
            session = start.init(
                environment={**os.environ, **place},
                meeting_s=MEETING_LIMIT_S,
                is_lost=board.has_lost,
                **options,
            )
            with session, LossWatch(board):
                state.enter(session, board)
                return train(session, state)
        except RanksChangeError as change:
            reason = "the ranks change"
            _clear_frames(change)
        except (PeerLostError, CheckpointError, ClusterError, RuntimeError) as error:
            if not board.ends_within(LOSS_LIMIT_S):
                raise
            reason = str(error)
            _clear_frames(error)
        state.leave()
        _abandon(reason)
        state.restore()


def _clear_frames(error: BaseException | None) -> None:
    """Let go of what functions that failed held: models whose gradients the ranks of old average.

    Errors may lead to one another in a circle: one of them was raised again while it was handled.
    """
    seen: set[int] = set()
    left = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            left += [one.__cause__, one.__context__]


def _abandon(reason: str) -> None:
    """Leave the generation. Connections end with the last reference to them: then the others wait no more."""
    sys.stderr.write(f"gangline.train: leaves its generation: {reason}\n")
    sys.stderr.flush()
    session = start.current()
    if session is not None:
        session.abandon()
    del session
    forget_ranks()
    gc.collect()
