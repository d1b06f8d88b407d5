"""Lets a rank be asked where it is: SIGURG has its main thread's stack written to a file in memory.

This folder is put on PYTHONPATH of ranks. Python imports ``sitecustomize`` at its start; the next one on the
path is imported as well. The answer has two parts: faulthandler writes the stack at once, even where the
interpreter is locked, and a mark follows as soon as the main thread runs Python again. So whoever asks knows
whether a rank is still in one and the same native call. `gangline.train.rank_processes` asks, and only where
a rank may be waiting, and not again before the mark: a system call in which the rank waits is restarted then
(poll, select, epoll_wait and sleeps never are, signal(7), and are called again by who uses them). SIGURG, for
what does not expect it ignores it. Nothing is done in a process that is no rank. Standard library only,
Python 3.7 or newer (which answers from 3.8 on); 2 ms of a start.
"""

from __future__ import annotations

import os
import sys

CHANNEL = "gangline-rank"
"""Name of the file in memory; the asker finds it by that among the process's open files."""
_ALIVE = b"=\n"
_DESCRIPTOR_MIN = 100
"""Low numbers are the program's: some count on the one that comes next."""
_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def arm() -> None:
    """Answer from now on; where the system has no such files, or the signal is taken, nothing is done."""
    import _signal  # type: ignore[import-not-found] # the module `signal` would import more

    number = getattr(_signal, "SIGURG", None)
    if number is None or not hasattr(os, "memfd_create") or _signal.getsignal(number) != _signal.SIG_DFL:
        return
    import atexit
    import faulthandler
    import fcntl

    first = os.memfd_create(CHANNEL)
    try:
        channel = fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, _DESCRIPTOR_MIN)
    finally:
        os.close(first)
    fcntl.fcntl(channel, fcntl.F_SETFL, fcntl.fcntl(channel, fcntl.F_GETFL) | os.O_APPEND)

    def say_alive(number: int, frame: object) -> None:
        _signal.siginterrupt(number, False)  # faulthandler has put its handler there without SA_RESTART
        try:
            os.write(channel, _ALIVE)
        except OSError:  # the program has closed files that it did not open
            pass

    def ignore() -> None:
        """Ask for nothing more: mpi4py ends MPI when the interpreter that a handler needs is gone."""
        faulthandler.unregister(number)
        _signal.signal(number, _signal.SIG_IGN)

    _signal.signal(number, say_alive)
    faulthandler.register(number, file=channel, all_threads=False, chain=True)
    _signal.siginterrupt(number, False)
    atexit.register(ignore)


def import_next() -> None:
    """Import the ``sitecustomize`` that this one hides, if there is one."""
    from _frozen_importlib import module_from_spec  # `importlib.util` would take 5 ms of every start
    from _frozen_importlib_external import PathFinder

    here = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - every rank pays for its imports
    entries = [os.path.realpath(entry or ".") for entry in sys.path]
    later = sys.path[entries.index(here) + 1 :] if here in entries else []
    spec = PathFinder.find_spec("sitecustomize", later)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


if any(name in os.environ for name in _RANK_VARIABLES):
    try:
        arm()
    except (OSError, ImportError, RuntimeError, ValueError):
        pass  # a rank that cannot be asked runs all the same
import_next()
