"""Meeting other ranks, which ends with an error when one of them is lost meanwhile.

torch waits for ranks that it has been told of in C++, where nothing frees it before its time-out. So the
meeting is held in a thread of its own, which is left behind then.
"""

from __future__ import annotations

import atexit
import ctypes
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from gangline.train.peers import PeerLostError

Met = TypeVar("Met")
LOOK_EVERY_S = 0.1
EXIT_LIMIT_S = 20
"""Of a process that leaves a thread behind: its exit handlers run in a second."""
_left_behind: list[threading.Thread] = []


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
            leave_behind(thread)
            raise lost()
    if failed:
        raise failed[0]
    return met[0]


def leave_behind(thread: threading.Thread) -> None:
    """Let a daemon thread wait on: it may end late, and ends this process with no other code."""
    if not _left_behind:
        atexit.register(_let_sleep)
    _left_behind.append(thread)


def _let_sleep() -> None:
    """Let no thread that was left behind end this process while the process ends by itself.

    Its wait may end just then, for the others' processes end too. Python ends threads that want its lock so
    late, and until 3.13 it does so in the middle of torch's C++, which calls std::terminate: SIGABRT, though
    the training was done. So such a thread sleeps there, as Python 3.14 lets it.
    """
    if not any(thread.is_alive() for thread in _left_behind):
        return
    with suppress(OSError, AttributeError):  # another C++ library: no worse than before
        set_terminate = ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE
        set_terminate.argtypes = [ctypes.c_void_p]
        set_terminate(ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(EXIT_LIMIT_S)
