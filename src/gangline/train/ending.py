"""How the ranks of a session end: together, or with an error that names who ended before the others.

A rank that has no more steps waits in ``close()`` for the others. Where uneven data left these in a
collective that it never comes to, all would wait for torch's limit of half an hour. The first rank that waits
in ``close()`` sees it in the heartbeats that all ranks write into the store, and tells all.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gangline.train.peers import UNEVEN_HINT, PeerLostError, not_there
from gangline.train.rendezvous import has_key

if TYPE_CHECKING:
    from gangline.train.start import Session

EARLY_END_S = 20.0
"""All ranks that have not ended wait in one collective for so long: then it has no end."""
EXIT_LIMIT_S = 10.0
"""A rank that still waits then is ended: nothing else frees it."""
EARLY_KEY = "ended-early"


def end_together(session: Session) -> None:
    """Return when all ranks have come here; rank 0, with which the store ends, comes out last.

    Raises:
        PeerLostError: ranks have ended without coming here, or wait for this one in a collective.
    """
    ranks, store = session.ranks, session.store
    is_first = store.add("end/count", 1) == 1
    store.set(f"end/{ranks.rank}", "")
    missing = [rank for rank in range(ranks.size) if rank != ranks.rank]
    try:
        while missing := not_there(store, "end", missing):
            _raise_early_end(session, store)
            if lost := session.peers.ended_without(store, "end", missing):
                names = ", ".join(map(session.peers.name, lost))
                raise PeerLostError(f"{names} ended before the others", ranks=lost, hint="its log says why")
            if is_first and _all_wait(store, missing):
                done = [rank for rank in range(ranks.size) if rank not in missing]
                store.set(EARLY_KEY, json.dumps({"ended": done, "waiting": missing}))
        store.set(f"left/{ranks.rank}", "")
        if ranks.rank == 0:
            not_there(store, "left", [*range(1, ranks.size)], limit_s=EXIT_LIMIT_S)
    except RuntimeError as error:
        raise session.peers.lost(error, "the end of the training") from error


def _all_wait(store: Any, ranks: list[int]) -> bool:
    """Return whether all these ranks wait in a collective, and have for long, by their last heartbeats."""
    keys = [f"beat/{rank}" for rank in ranks]
    if not store.check(keys):
        return False
    beats = [json.loads(beat) for beat in store.multi_get(keys)]
    return all(float(beat["waits_s"]) > EARLY_END_S for beat in beats)


def early_end(session: Session, store: Any) -> PeerLostError | None:
    """Return the error for ranks that ended while others wait for them, None while there are none."""
    if not has_key(store, EARLY_KEY):
        return None
    found = json.loads(store.get(EARLY_KEY))
    names = ", ".join(map(session.peers.name, found["ended"][:8]))
    count = len(found["waiting"])
    others = f"{count} other rank{'s wait' if count > 1 else ' waits'}"
    return PeerLostError(
        f"{names} ended the training while {others} in a collective", ranks=found["ended"], hint=UNEVEN_HINT
    )


def _raise_early_end(session: Session, store: Any) -> None:
    if (error := early_end(session, store)) is not None:
        raise error


def free_waiting(session: Session, error: PeerLostError) -> None:
    """Let this rank's collective end with an error; called by another thread than the one that waits in it.

    Collectives of torch end by themselves when the ranks that wait in ``close()`` have ended.
    """
    session.peers.ended_early = error
    give_up_waiting(error)
    threading.Thread(target=_end_late, args=(error,), name="gangline-end", daemon=True).start()


def give_up_waiting(error: PeerLostError) -> None:
    """Let what waits for other ranks in this process end with an error."""
    from gangline.train.collectives.apart import abort_apart
    from gangline.train.collectives.rank_group import RankGroup

    abort_apart()
    for group in RankGroup.groups.copy():
        group.give_up(error)


def _end_late(error: PeerLostError) -> None:
    """End this process if it is still there."""
    time.sleep(EXIT_LIMIT_S)
    with suppress(Exception):
        sys.stderr.write(f"gangline.train: {error}; ending this rank\n\nhint: {error.hint}\n")
        sys.stderr.flush()
        sys.stdout.flush()
    os._exit(1)
