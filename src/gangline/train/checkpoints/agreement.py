"""What all ranks say to one another in one save or resume: what fails on one is raised on all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangline.errors import GanglineError, UserError
from gangline.train.environment import Ranks
from gangline.train.peers import PeerLostError, Peers
from gangline.train.rendezvous import RendezvousError, exchange
from gangline.train.unless_lost import unless_lost

WRITE_LIMIT_S = 3600.0
"""One rank may write for so much longer than the others: rank 0 writes what is the same on all."""

_WHAT = "a checkpoint"
Facts = dict[str, Any]


class CheckpointError(GanglineError):
    """A checkpoint cannot be written or read, on some rank; raised on all."""

    code = "checkpoint"
    exit_code = 3


class Agreement:
    """The words of all ranks in one operation, which all of them begin in the same order.

    Args:
        folder: of the checkpoints, for messages.
        ranks: this rank's place.
        store: that all ranks share; one that nobody else waits in, when this runs beside the training.
        peers: tells which of them have ended.
    """

    def __init__(self, folder: Path, ranks: Ranks, store: Any, peers: Peers) -> None:
        self._name, self._said = f"checkpoint/{peers.next_operation()}", 0
        self._folder, self._ranks, self._store, self._peers = folder, ranks, store, peers

    def together(self, doing: str, work: Callable[[], Facts]) -> list[Facts]:
        """Do this rank's part and return what every rank's returned.

        Raises:
            UserError: a rank's part broke a rule of ours; raised on all.
            CheckpointError: a rank's part failed; raised on all.
            PeerLostError: a rank ended, or these ranks are over: others may have taken their places.
        """
        if self._peers.given_up is not None:
            raise self._peers.given_up
        cause: Exception | None = None
        try:
            facts = work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the others wait for this rank's word
            cause, facts = error, _problem_of(error)
        said = self.exchange(facts)
        for rank, one in enumerate(said):
            if "problem" in one:
                kind = UserError if one["is_rule"] else CheckpointError
                where = f"rank {rank}: " if self._ranks.size > 1 else ""
                text = f"cannot {doing} in `{self._folder}`: {where}{one['problem']}"
                raise kind(text, hint=str(one["hint"])) from cause
        return said

    def exchange(self, facts: Facts) -> list[Facts]:
        """Return what every rank says, in the order of the ranks.

        Raises:
            PeerLostError: a rank ended without a word, is lost as the launcher says, or silent for an hour.
        """
        self._said += 1
        name, peers = f"{self._name}/{self._said}", self._peers
        try:
            return unless_lost(
                lambda: exchange(self._store, self._ranks, facts, name=name, wait=self._wait),
                peers.is_lost,
                lambda: peers.told(_WHAT),
            )
        except PeerLostError:
            raise
        except (RuntimeError, RendezvousError) as error:  # the store is gone
            raise peers.lost(error, _WHAT) from error

    def _wait(self, name: str) -> None:
        self._peers.wait_for_all(self._store, name, _WHAT, WRITE_LIMIT_S)


def _problem_of(error: Exception) -> Facts:
    if isinstance(error, GanglineError):
        return {"problem": error.message, "hint": error.hint, "is_rule": isinstance(error, UserError)}
    text = (error.strerror if isinstance(error, OSError) else "") or f"{type(error).__name__}: {error}"
    return {"problem": text, "hint": "", "is_rule": False}
