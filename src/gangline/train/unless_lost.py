"""Meeting other ranks, which ends with an error when one of them is lost meanwhile.

torch waits for ranks that it has been told of in C++, where nothing frees it before its time-out. So the
meeting is held in a thread of its own, which is left behind then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from gangline.train.peers import PeerLostError

Met = TypeVar("Met")
LOOK_EVERY_S = 0.1


def _while_meeting() -> PeerLostError:
    return PeerLostError("a rank was lost while the others met")


def unless_lost(
    meet: Callable[[], Met],
    is_lost: Callable[[], bool] | None,
    lost: Callable[[], PeerLostError] = _while_meeting,
) -> Met:
    """Return what ``meet`` returns.

    Args:
        meet: waits for other ranks.
        is_lost: whether one of them is lost; None where nobody knows, and ``meet`` waits as long as it does.
        lost: the error, which says what was waited for.

    Raises:
        PeerLostError: one was lost before they had met.
    """
    if is_lost is None:
        return meet()
    met: list[Met] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            met.append(meet())
        except BaseException as error:  # noqa: BLE001 - raised again by who waits for it
            failed.append(error)

    thread = threading.Thread(target=run, name="gangline-meeting", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(LOOK_EVERY_S)
        if thread.is_alive() and is_lost():
            raise lost()
    if failed:
        raise failed[0]
    return met[0]
