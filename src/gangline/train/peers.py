"""The other ranks as processes: which of them have ended, and the error for those who wait for one."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from gangline.errors import GanglineError
from gangline.train.rendezvous import process_name
from gangline.train.stacks import ENDED, process_letter

LOOK_LIMIT_S = 2.0
"""A process that is ending closes its connections before it is gone: so long is its end waited for."""
_LOOK_EVERY_S = 0.05
_WAIT_EVERY_S = 1.0
UNEVEN_HINT = "give all ranks the same number of steps, or train in `with parallel.join():`"


class PeerLostError(GanglineError, RuntimeError):
    """Ranks ended while others waited for them; a RuntimeError as torch's own is.

    Attributes:
        ranks: which, as far as they are known; empty when none is.
    """

    code = "rank-lost"

    def __init__(self, message: str, *, ranks: Sequence[int] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.ranks = tuple(ranks)


class Peers:
    """The other ranks of this job.

    Args:
        rank: this one.
        facts: what every rank said of itself at the start.
        is_lost: whether one of them is lost, None where no launcher tells that.

    Attributes:
        is_lost: the same, and whether this generation of ranks is over; None where nobody tells.
        given_up: why it is over, None while it is not.
    """

    def __init__(
        self, rank: int, facts: Sequence[dict[str, Any]], is_lost: Callable[[], bool] | None = None
    ) -> None:
        self._rank, self._facts = rank, facts
        self.is_lost: Callable[[], bool] | None = (
            None if is_lost is None else lambda: self.given_up is not None or is_lost()
        )
        self.given_up: PeerLostError | None = None
        self._operations = 0
        self.ended_early: PeerLostError | None = None
        self.find_early_end: Callable[[], PeerLostError | None] = lambda: None

    def next_operation(self) -> int:
        """Return how many operations these ranks have begun together: the same number on all of them."""
        self._operations += 1
        return self._operations

    def name(self, rank: int) -> str:
        """Return ``rank 1 on node-2``."""
        return f"rank {rank} on {self._facts[rank]['node']}"

    def ended(self) -> list[int]:
        """Return the ranks of this node whose processes have ended; other nodes' are not known."""
        here = self._facts[self._rank]["node"]
        return [
            rank
            for rank, fact in enumerate(self._facts)
            if rank != self._rank and fact["node"] == here and _has_ended(fact)
        ]

    def ended_without(self, store: Any, name: str, missing: Sequence[int]) -> list[int]:
        """Return which of the missing ranks of this node have ended, and had not set their key."""
        gone = [rank for rank in self.ended() if rank in missing]
        return not_there(store, name, gone) if gone else []

    def wait_for_all(self, store: Any, name: str, what: str, limit_s: float) -> None:
        """Return when all ranks have set their key, however long they take.

        Args:
            store: of all ranks.
            name: of the keys, ``NAME/RANK``.
            what: the ranks wait in.
            limit_s: for ranks of other nodes, whose end nobody sees here.

        Raises:
            PeerLostError: a rank ended without it, is lost as the launcher says, or did not come within the
                limit.
        """
        deadline = time.monotonic() + limit_s
        missing = [*range(len(self._facts))]
        try:
            while missing := not_there(store, name, missing):
                if self.ended_without(store, name, missing):
                    raise RuntimeError("ranks have ended")
                if self.is_lost is not None and self.is_lost():
                    raise self.told(what)
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{', '.join(map(self.name, missing[:8]))} did not come")
        except PeerLostError:
            raise
        except RuntimeError as error:
            raise self.lost(error, what) from error

    def told(self, what: str) -> PeerLostError:
        """Return the error where the launcher says that a rank is lost; asks nobody, not the store either."""
        if self.given_up is not None:
            return self.given_up
        if ranks := self.ended():
            return self._ended(ranks, what)
        return PeerLostError(f"a rank was lost while others waited in {what}", hint="the launcher names it")

    def lost(
        self, cause: BaseException, what: str, told: Callable[[], Sequence[int]] = tuple
    ) -> PeerLostError:
        """Return the error for a collective that failed, with the ranks that have ended where they are known.

        Args:
            cause: what torch raised.
            what: the collective that this rank waited in.
            told: asks for ranks whose end others have seen.
        """
        if self.is_lost is not None and self.is_lost():  # the store may be gone, and answer nobody
            return self.told(what)
        with suppress(RuntimeError):
            self.ended_early = self.ended_early or self.find_early_end()
        if self.ended_early is not None:
            return self.ended_early
        if isinstance(cause, PeerLostError) and cause.ranks:
            return cause
        deadline = time.monotonic() + LOOK_LIMIT_S
        while not (ranks := [*told()] or self.ended()) and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
        if not ranks and isinstance(cause, PeerLostError):
            return cause
        if not ranks:
            reason = str(cause).strip().partition("\n")[0]
            return PeerLostError(f"{what} with the other ranks failed: {reason}", hint="look at their logs")
        return self._ended(ranks, what)

    def _ended(self, ranks: Sequence[int], what: str) -> PeerLostError:
        shown = ", ".join(self.name(rank) for rank in ranks[:8]) + (" …" if len(ranks) > 8 else "")
        return PeerLostError(
            f"{shown} ended while others waited in {what}", ranks=ranks, hint="its log says why"
        )


def process_facts() -> dict[str, Any]:
    """Return what others must know of this process to see its end."""
    return {"node": socket.gethostname(), "pid": os.getpid(), "process": process_name(os.getpid())}


def not_there(store: Any, name: str, ranks: Sequence[int], limit_s: float = _WAIT_EVERY_S) -> list[int]:
    """Return the ranks that have not set ``NAME/RANK`` within a while.

    Raises:
        RuntimeError: the store is gone.
    """
    keys = [f"{name}/{rank}" for rank in ranks]
    with suppress(RuntimeError):
        store.wait(keys, timedelta(seconds=limit_s))
        return []
    return [rank for rank, key in zip(ranks, keys, strict=True) if not store.check([key])]


def is_of_collective(error: BaseException) -> bool:
    """Return whether torch raised an error in a collective, and not the script or a layer of its model."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and "torch/distributed/" in place.tb_frame.f_code.co_filename


def _has_ended(fact: dict[str, Any]) -> bool:
    pid = int(fact["pid"])
    return process_name(pid) != fact["process"] or process_letter(pid) in ENDED
