"""Which ranks of an elastic job go on when some were lost.

The seam to the launcher is a store that outlives ranks (``TORCHELASTIC_USE_AGENT_STORE``, as for torchrun),
under the prefix ``gangline/JOB/0``, and one key in it: whoever sees a rank's process end calls `report_lost`.
The launcher does; rank 0's coordinator does too, when a connection ends. The others come here after their
collectives have failed, and none waits for one that is lost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from horovod.common.exceptions import HorovodInternalError

LOST = "gangline/elastic/lost"
_LOOK_EVERY_S = 0.02


def report_lost(store: Any, rank: int) -> None:
    """Say that a rank's process has ended; `rank` is the one that the launcher gave it."""
    store.set(f"{LOST}/{rank}", "1")


def is_lost(store: Any, rank: int) -> bool:
    """Return whether a rank's process has ended."""
    return bool(store.check([f"{LOST}/{rank}"]))


def agree_on_members(
    store: Any, turn: int, rank: int, before: Sequence[int], timeout_s: float
) -> tuple[int, ...]:
    """Return the ranks that begin the next turn of the job together, the same on all of them, in their order.

    Args:
        store: that the launcher keeps, without a prefix of the turn.
        turn: how many times this process has begun the job.
        rank: this one, as the launcher calls it.
        before: ranks of the turn before.
        timeout_s: how long ranks that are not lost are waited for: they may be in a long step.

    Raises:
        HorovodInternalError: a rank neither came nor was lost in time, or others went on without this one.
    """
    place = f"gangline/elastic/turn/{turn}"
    store.set(f"{place}/here/{rank}", "1")
    deadline = time.monotonic() + timeout_s
    while not store.check([f"{place}/members"]):
        here = [one for one in before if store.check([f"{place}/here/{one}"])]
        missing = [one for one in before if one not in here and not is_lost(store, one)]
        alive = [one for one in here if not is_lost(store, one)]
        if not missing:
            store.compare_set(f"{place}/members", "", json.dumps(alive))
        elif time.monotonic() > deadline:
            raise HorovodInternalError(f"ranks {missing} did not come back in {timeout_s:.0f} s")
        else:
            time.sleep(_LOOK_EVERY_S)
    members = tuple(json.loads(store.get(f"{place}/members")))
    if rank not in members:
        raise HorovodInternalError(f"ranks {list(members)} went on without rank {rank}")
    return members


def wait_for(store: Any, prefix: Any, name: str, members: Sequence[int], timeout_s: float) -> None:
    """Wait until all members have said something under a name, unless one is lost meanwhile.

    Args:
        store: that the launcher keeps.
        prefix: the part of it that these members exchange facts in.

    Raises:
        HorovodInternalError: one was.
    """
    deadline = time.monotonic() + timeout_s
    keys = [f"{name}/{place}" for place in range(len(members))]
    while not prefix.check(keys) and time.monotonic() < deadline:
        lost = [rank for rank in members if is_lost(store, rank)]
        if lost:
            raise HorovodInternalError(f"ranks {lost} were lost while the job began anew")
        time.sleep(_LOOK_EVERY_S)
