"""Asked to stop: SIGTERM or SIGUSR1 on any rank becomes one answer on all ranks, at the same step.

Every call begins a reduction of one number and takes the result of the one that the call before began, so
that no step waits for it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from gangline.errors import UserError
from gangline.train.collectives.apart import group_apart
from gangline.train.records import format_record
from gangline.train.traffic import traffic

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""What Kubernetes, launchers and Slurm send before they end a job, and what Slurm's `--signal` is set to."""

_MPI_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")


class StopRequest:
    """Whether this job was asked to stop. From its making on the signals do no more than ask.

    Args:
        rank: this one.
        size: number of ranks, which all make one together.
        is_lost: whether one of them is lost, None where no launcher tells that.

    Raises:
        PeerLostError: one was lost before all had come.
        UserError: another thread than the main one makes it; only that one may take signals.
    """

    def __init__(self, rank: int, size: int, is_lost: Callable[[], bool] | None = None) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise UserError("should_stop() was called first in a thread that cannot take signals")
        if rank == 0 and any(name in os.environ for name in _MPI_RANKS):
            # Launchers end ranks a second after SIGTERM; ours asks them by SIGUSR1 once it has read this.
            sys.stderr.write(format_record("saves-when-asked"))
            sys.stderr.flush()
        self._is_asked = False
        self._is_agreed = False
        self._process = os.getpid()
        self._before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        self._asking: tuple[Any, Any] | None = None
        try:
            self._group = group_apart(size, is_lost)
        except Exception:
            self.close()
            raise

    def agreed(self) -> bool:
        """Return whether some rank had been asked when all ranks made the call before; the same on all."""
        if self._is_agreed:
            return True
        if self._group is None:
            self._is_agreed = self._is_asked
            return self._is_agreed
        import torch
        import torch.distributed as dist

        if self._asking is not None:
            asked, work = self._asking
            with traffic.waiting("should_stop()"):
                work.wait()
            self._is_agreed = bool(asked.item())
        if not self._is_agreed:
            asked = torch.tensor([int(self._is_asked)])
            work = dist.all_reduce(asked, dist.ReduceOp.MAX, group=self._group, async_op=True)
            self._asking = asked, work
        return self._is_agreed

    def close(self) -> None:
        """Give the signals back what they did before."""
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._ask:
                signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # in a forked child
            signal.signal(number, signal.SIG_DFL)  # a second one ends it
            if not _loads_data():
                os.kill(os.getpid(), number)
            return
        self._is_asked = True
        if callable(before := self._before.get(signal.Signals(number))):
            before(number, frame)


def _loads_data() -> bool:
    """Return whether this is a worker of a DataLoader: without it the step could not be ended.

    Launchers signal a rank's whole process group.
    """
    from torch.utils.data import get_worker_info

    return get_worker_info() is not None
