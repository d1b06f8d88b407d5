"""One rank's membership of a group: met, shared memory or not, what is under way, and how it ends."""

from __future__ import annotations

import json
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar

import torch
from torch.distributed import PrefixStore, ProcessGroup, ProcessGroupGloo, Work

from gangline.errors import GanglineError
from gangline.train.collectives.connections import connected, end_connections
from gangline.train.collectives.nodes import free, meet
from gangline.train.collectives.operands import first_of
from gangline.train.collectives.staged import StagedCollectives
from gangline.train.collectives.work import Collective, CollectiveQueue, Delegated, Finish
from gangline.train.peers import PeerLostError, Peers
from gangline.train.traffic import traffic
from gangline.train.unless_lost import unless_lost

END_LIMIT_S = 10.0
LATE_AFTER_S = 30.0
"""After so long in one collective a rank says for whom it waits, where no watch does."""
_LOST = "lost"
_CPU = torch.device("cpu")

Staged = Callable[[StagedCollectives, str], None]
Begun = tuple[list[Any], Finish | None]
"""What is under way on gloo, and what is to be done once that is done."""


class RankGroup(ProcessGroup):
    """A group of ranks; all of them call its collectives in the same order.

    Args:
        store: of the group.
        rank: in the group.
        size: of the group.
        timeout: of one collective.
        names: the ranks' numbers in the job, empty for the group of all.

    Attributes:
        no_shared_memory: why nothing goes over shared memory, ``""`` when it does.
        peers: the ranks of the job, which know who has ended.
        groups: all that there are in this process.
        is_watched: somebody else says who keeps the others waiting.
        shares_memory: groups that are made from now on may.
        is_lost: whether a rank is lost while they are made, None where nobody tells that.
    """

    peers: ClassVar[Peers | None] = None
    groups: ClassVar[weakref.WeakSet[RankGroup]] = weakref.WeakSet()
    is_watched: ClassVar[bool] = False
    shares_memory: ClassVar[bool] = True
    is_lost: ClassVar[Callable[[], bool] | None] = None

    def __init__(
        self, store: Any, rank: int, size: int, timeout: timedelta, names: Sequence[int] = ()
    ) -> None:
        super().__init__(rank, size)
        self._store = store
        self._place, self._count = rank, size
        self._names = [*names] or [*range(size)]
        self._gloo = unless_lost(
            lambda: connected(lambda: ProcessGroupGloo(PrefixStore("gloo", store), rank, size, timeout)),
            RankGroup.is_lost,
        )
        self._register_backend(_CPU, ProcessGroup.BackendType.GLOO, self._gloo)
        self._set_default_backend(ProcessGroup.BackendType.GLOO)
        self._met = unless_lost(
            lambda: meet(store, rank, size, self._names, timeout, is_wanted=RankGroup.shares_memory),
            RankGroup.is_lost,
        )
        self.no_shared_memory = self._met.problem
        self._is_of_all = not names
        if self._met.is_worth_saying and rank == 0:
            _say(f"collectives go over gloo, not over shared memory: {self.no_shared_memory}")
        if self._is_of_all and RankGroup.peers is None:
            RankGroup.peers = Peers(rank, self._met.facts)
        self._failure: Exception | None = None
        self._number = 0
        self._said_late = ""
        self._line = CollectiveQueue("gangline-collectives", self._explain)
        if self._met.staged is not None:
            self._met.staged.memory.on_late = self._late
        RankGroup.groups.add(self)

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Return the name under which torch knows it."""
        return "gangline"

    name = getBackendName

    def get_group_store(self) -> Any:
        """Return the store of the group."""
        return self._store

    def give_up(self, error: Exception) -> None:
        """Let what waits for other ranks end with an error, within a second; called from another thread."""
        if self._met.staged is not None:
            self._met.staged.memory.given_up = error
        if self._met.leaders is not None:
            end_connections(self._met.leaders)

    def shutdown(self) -> None:
        """End what belongs to it, after what is under way."""
        if self not in RankGroup.groups:
            return
        RankGroup.groups.discard(self)
        is_over = self._line.close(END_LIMIT_S)
        if self._is_of_all:
            RankGroup.peers, RankGroup.is_watched, RankGroup.shares_memory = None, False, True
            RankGroup.is_lost = None
        if is_over:  # else its memory is in use
            free(self._met)
        self._gloo.shutdown()

    def abort(self) -> None:
        """Let whatever waits end with an error, here and on the other ranks; asks nobody why."""
        self._fail(PeerLostError("the process group was aborted"))

    # Under way ----------------------------------------------------------------------------------------------

    def begin(
        self, name: str, result: Any, opts: Any, staged: Staged | None, flat: Callable[[Any], Begun]
    ) -> Work:
        """Begin a collective: over shared memory where there is some and it can be, else on gloo.

        Args:
            name: of its kind, for messages.
            result: the tensors that its future gives.
            opts: of torch; says whether the caller waits at once.
            staged: does it over shared memory, in this thread or another one.
            flat: begins it on gloo.
        """
        if self._failure is not None:
            raise self._failure
        self._number += 1
        first = first_of(result)
        size = first.numel() * first.element_size() if first is not None and not first.is_sparse else 0
        what = f"{name} {self._number}" + (f" ({size / 1e6:.1f} MB)" if size >= 100_000 else "")
        shared = self._met.staged
        if shared is None or staged is None:
            return Delegated(what, *flat(self._gloo), result, traffic, self._explain)
        work = Collective(what, lambda: staged(shared, what), result, traffic)
        self._line.take(work, is_async=bool(getattr(opts, "asyncOp", True)))
        return work

    # Trouble ------------------------------------------------------------------------------------------------

    def _late(self, what: str, late: Sequence[int], waited_s: float) -> None:
        """Say for whom the ranks of this node wait, once a collective; the first of them says it."""
        first = next(one for one in self._names if one not in late)
        is_due = waited_s >= LATE_AFTER_S and what != self._said_late and not RankGroup.is_watched
        if not is_due or self._names[self._place] != first:
            return
        self._said_late = what
        ranks = f"rank{'s' if len(late) > 1 else ''} {', '.join(map(str, late[:8]))}"
        _say(f"rank {first} has waited {waited_s:.0f} s in {what} for {ranks}")

    def _explain(self, error: Exception, what: str) -> Exception:
        """Return the error for the user, and let the ranks that wait for this one end with one too."""
        if isinstance(error, PeerLostError) or not isinstance(error, GanglineError):
            error = self._named(error, what)
        if isinstance(error, PeerLostError) and error.ranks:
            with suppress(RuntimeError):  # the store may have gone with a rank
                self._store.set(_LOST, json.dumps([*error.ranks]))
        self._fail(error)
        return error

    def _fail(self, error: Exception) -> None:
        if self._failure is not None:
            return
        self._failure = error
        if self._met.staged is not None:
            self._met.staged.memory.fail()
        for gloo in (self._met.leaders, self._gloo):
            if gloo is not None:
                end_connections(gloo)

    def _named(self, error: Exception, what: str) -> Exception:
        """Return an error of lost ranks with their numbers, where some rank knows them."""
        if not isinstance(error, RuntimeError):
            return error
        if RankGroup.peers is None:
            return error if isinstance(error, PeerLostError) else PeerLostError(f"{what} failed: {error}")
        return RankGroup.peers.lost(error, what, told=self._told)

    def _told(self) -> list[int]:
        """Return the ranks whose end another rank of the group has seen."""
        with suppress(RuntimeError):
            if self._store.check([_LOST]):
                return [int(rank) for rank in json.loads(self._store.get(_LOST))]
        return []


def _say(text: str) -> None:
    sys.stderr.write(f"gangline: {text}\n")
    sys.stderr.flush()
