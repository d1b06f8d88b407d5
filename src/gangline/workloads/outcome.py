"""Why a rank, a pod or a job ended badly: a cause as a value; its words are made here alone. Pure.

Imports nothing, so that launchers' output is read into the same values without a control plane.
"""

from __future__ import annotations

import signal
from enum import StrEnum
from typing import NamedTuple

_SIGNAL_BASE = 128
"""Shells and container runtimes report a signal as this plus its number."""


class CauseKind(StrEnum):
    """What kind of end it was; ``cause.kind`` of ``-o json``."""

    EXITED = "Exited"
    SIGNALLED = "Signalled"
    EXITED_OR_SIGNALLED = "ExitedOrSignalled"  # MPICH says one number for both
    ENDED = "Ended"  # nobody says how
    ABORTED = "Aborted"
    RAISED = "Raised"
    NOT_FOUND = "NotFound"
    NO_SLOTS = "NoSlots"
    OTHER_MPI = "OtherMPI"
    HOST_LOST = "HostLost"
    HOST_UNREACHED = "HostUnreached"
    OUT_OF_MEMORY = "OutOfMemory"
    NOT_STARTED = "NotStarted"
    POD_ENDED = "PodEnded"
    JOB_FAILED = "JobFailed"


class Cause(NamedTuple):
    """Why something ended badly.

    Attributes:
        kind: which of the fields below are meant.
        rank: the first rank that failed; None when none is named.
        pod: in which it ran; empty when that is not known.
        host: as the launcher wrote it; for an exit code Open MPI does not say the host.
        exit_code: of the rank or pod, None unless it exited by itself.
        signal: that ended it, None unless one did.
        detail: what the kind is about: a program, an exception, a number of ranks, the exit code of a remote
            shell, the reason of Kubernetes, or a sentence of others.
        of_launcher: whether it is the launcher's own end, as far as anybody knows.
    """

    kind: CauseKind
    rank: int | None = None
    pod: str = ""
    host: str = ""
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    of_launcher: bool = False

    @property
    def ending(self) -> str:
        """The words behind a rank's or pod's name; a whole sentence for a host, a program or a job."""
        match self.kind:
            case CauseKind.EXITED:
                return f"exited with code {self.exit_code}"
            case CauseKind.SIGNALLED:
                return f"was killed by {_signal_words(self.signal)}"
            case CauseKind.EXITED_OR_SIGNALLED:
                return f"was killed by {_signal_words(self.exit_code)} or exited with code {self.exit_code}"
            case CauseKind.ENDED:
                return "ended badly"
            case CauseKind.ABORTED:
                return "called MPI_Abort" + ("" if self.exit_code is None else f" with code {self.exit_code}")
            case CauseKind.RAISED:
                return f"raised {self.detail}"
            case CauseKind.NOT_FOUND:
                return f"{f'`{self.detail}`' if self.detail else 'the program'} was not found"
            case CauseKind.NO_SLOTS:
                return f"{self.detail} ranks were asked for, more than there are slots"
            case CauseKind.HOST_LOST:
                return f"the connection to host `{self.host}` was lost"
            case CauseKind.HOST_UNREACHED:
                shell = f" (its remote shell ended with {self.detail})" if self.detail else ""
                return f"host `{self.host}` could not be reached{shell}"
            case CauseKind.OUT_OF_MEMORY:
                return "used more memory than its limit allows (OOMKilled)"
            case CauseKind.POD_ENDED if self.signal is not None:
                return f"ended with {_signal_words(self.signal)}"
            case CauseKind.POD_ENDED:
                return f"ended with {self.detail or f'exit code {self.exit_code}'}"
        return self.detail

    @property
    def is_end_of_rank(self) -> bool:
        """Whether it is the end of some process, and not the want of a host, a program or room."""
        return self.kind in _OF_RANKS

    def __str__(self) -> str:
        where = f" in pod {self.pod}" if self.pod else ""
        if self.rank is not None:
            return f"rank {self.rank}{where} {self.ending}"
        if self.kind in _OF_PODS or (self.of_launcher and self.pod):
            return f"pod {self.pod} {self.ending}"
        if self.of_launcher:
            return f"the launcher {self.ending}"
        return f"a rank{where} {self.ending}" if self.is_end_of_rank and self.host else self.ending

    def as_values(self) -> dict[str, str | int]:
        """Return what is known, as plain values for programs."""
        found = {
            "kind": self.kind.value,
            "rank": self.rank,
            "pod": self.pod or None,
            "host": self.host or None,
            "exitCode": self.exit_code,
            "signal": self.signal,
        }
        return {key: value for key, value in found.items() if value is not None}


_OF_PODS = (CauseKind.OUT_OF_MEMORY, CauseKind.POD_ENDED)
_OF_RANKS = (CauseKind.EXITED, CauseKind.SIGNALLED, CauseKind.EXITED_OR_SIGNALLED, CauseKind.ENDED)


class LaunchFailure(NamedTuple):
    """What a launcher's output tells of a launch that ended early.

    Attributes:
        cause: of the first rank that failed, else of the launcher.
        lines: the rank's last lines without tags, or the launcher's when no rank is named; at most 20. The
            launcher's own report of the failure is not among them.
        is_last: whether nothing but that report came after these lines.
    """

    cause: Cause
    lines: tuple[str, ...] = ()
    is_last: bool = True


def cause_of_code(code: int, *, rank: int | None = None, host: str = "", of_launcher: bool = False) -> Cause:
    """Return the cause behind an exit code as shells and containers report it: 128 plus a signal's number."""
    if is_signal(code):
        number = code - _SIGNAL_BASE
        return Cause(CauseKind.SIGNALLED, rank=rank, host=host, signal=number, of_launcher=of_launcher)
    return Cause(CauseKind.EXITED, rank=rank, host=host, exit_code=code, of_launcher=of_launcher)


def describe_end(code: int, reason: str = "", message: str = "", *, signal: int = 0) -> str:
    """Return the words behind a container's name: how it ended, with Kubernetes' reason and its last message.

    Args:
        code: the exit code, 128 plus its number for a signal.
        reason: of the container's state; ``Error`` says nothing.
        message: its termination message.
        signal: that ended it, where the runtime says it.
    """
    cause = Cause(CauseKind.SIGNALLED, signal=signal) if signal else cause_of_code(code)
    text = ", ".join([cause.ending, *([reason] if reason not in ("", "Error", "Completed") else [])])
    return f"{text}: {message.strip()}" if message.strip() else text


def is_signal(code: int) -> bool:
    """Return whether an exit code stands for a signal."""
    return _SIGNAL_BASE < code < _SIGNAL_BASE + signal.NSIG


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9, or ``signal 99`` for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _signal_words(number: int | None) -> str:
    return f"signal {number} ({signal_name(number or 0)})"
