"""Read a launcher's output and say which rank failed, where, and how. Pure.

Wordings were taken from runs of Open MPI 5.0.11 (``prterun``) and from the published messages of Open MPI 4
(``mpirun``, ``ORTE``), MPICH's and Intel's Hydra.
"""

from __future__ import annotations

import re
import signal
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

TAIL_LINES = 20
LAUNCHER_LINES_MAX = 400
RANKS_MAX = 4096
LINE_CHARS_MAX = 4096

_TAG = re.compile(r"^\[(?:\d+,)?(\d+)\](?:\[[^\]]*\])?(?:<(?:stdout|stderr|stddiag)>: ?| )(.*)$", re.DOTALL)
# @gangline {"kind":"rank-ended","rank":1,"code":3}
_ENDED = re.compile(r'@gangline \{"kind":"rank-ended","rank":(\d+),"code":(\d+)\}$')
_WHITE = re.compile(r"\s+")
_RULE = re.compile(r"-{70,80}$")
_REPORT = re.compile(
    r"^=|plm:ssh: Warning|^YOUR APPLICATION TERMINATED|^\[mpiexec@[^\]]*\] Exit codes:"
    r"|^(?:mpirun|prterun) (?:noticed|detected) that"
)


@dataclass(frozen=True, slots=True)
class RankFailure:
    """Why a launch ended early.

    Attributes:
        what: the words, ``exited with code 3``, ``was killed by signal 9 (SIGKILL)``.
        rank: the first rank that failed; ``None`` when it was not a rank that failed.
        host: host as the launcher wrote it, else empty. For an exit code Open MPI does not say the host.
        exit_code: of that rank, ``None`` unless it exited by itself.
        signal: signal that ended it, ``None`` unless a signal did.
        lines: the rank's last lines without tags, or the launcher's when no rank is named; at most 20. The
            launcher's own report of the failure is not among them.
        is_last: whether nothing but that report came after these lines.
    """

    what: str
    rank: int | None = None
    host: str = ""
    exit_code: int | None = None
    signal: int | None = None
    lines: tuple[str, ...] = ()
    is_last: bool = True


class LauncherOutput:
    """Keeps the last lines of each rank and of the launcher itself; feed it every line in order.

    Memory is bounded: 20 lines for each of at most 4096 ranks, 400 lines of the launcher.
    """

    def __init__(self) -> None:
        self._ranks: dict[int, deque[str]] = {}
        self._launcher: deque[str] = deque(maxlen=LAUNCHER_LINES_MAX)
        self._spoken: deque[str] = deque(maxlen=TAIL_LINES)
        self._in_report = False
        self._last: int | None = None
        self._first_end: tuple[int, int] | None = None

    def feed(self, line: str) -> None:
        """Take one line, with or without its newline. About a microsecond."""
        text = line.rstrip("\r\n")[:LINE_CHARS_MAX]
        if ended := _ENDED.search(text):
            self._first_end = self._first_end or (int(ended.group(1)), int(ended.group(2)))
            return
        tag = _TAG.match(text)
        if tag is None:
            self._launcher.append(text)
            self._take_launchers(text)
            return
        rank = int(tag.group(1))
        self._last = rank
        lines = self._ranks.get(rank)
        if lines is None:
            if len(self._ranks) >= RANKS_MAX:
                return
            lines = self._ranks[rank] = deque(maxlen=TAIL_LINES)
        lines.append(tag.group(2))

    def _take_launchers(self, text: str) -> None:
        """Tell what the launcher's side wrote from the launcher's report of a failure."""
        if _RULE.match(text):
            self._in_report = not self._in_report
        elif text.strip() and not self._in_report and not _REPORT.search(text):
            self._spoken.append(text)
            self._last = None

    def failure(self, exit_code: int | None = None) -> RankFailure | None:
        """Return what went wrong; ``None`` when nothing is named and the exit code is 0 or unknown."""
        text = _WHITE.sub(" ", "\n".join(self._launcher))
        found = _find(text, self._abort_text())
        if found is None and self._first_end is not None:
            rank, code = self._first_end
            words, own_code, number = _ending(code)
            found = RankFailure(what=words, rank=rank, exit_code=own_code, signal=number)
        if found is None:
            if not exit_code:
                return None
            found = RankFailure(what=f"the launcher {_ending(exit_code)[0]}")
        lines = self._tail(found.rank)
        return replace(found, lines=lines, is_last=self._last == found.rank)

    def tail(self, rank: int) -> tuple[str, ...]:
        """Return a rank's last lines."""
        return self._tail(rank)

    def _abort_text(self) -> str:
        """Lines of the ranks in which an MPI library says that a rank called MPI_Abort."""
        return _WHITE.sub(" ", "\n".join("\n".join(lines) for lines in self._ranks.values()))

    def _tail(self, rank: int | None) -> tuple[str, ...]:
        lines = list(self._spoken if rank is None else self._ranks.get(rank) or ())
        while lines and not lines[-1].strip():
            lines.pop()
        return tuple(lines)


def find_failure(lines: Iterable[str], exit_code: int | None = None) -> RankFailure | None:
    """Return what went wrong in a launcher's whole output; see ``LauncherOutput.failure``."""
    output = LauncherOutput()
    for line in lines:
        output.feed(line)
    return output.failure(exit_code)


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9, or ``signal 99`` for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _ending(code: int) -> tuple[str, int | None, int | None]:
    """Return words, exit code and signal; shells report a signal as 128 plus its number."""
    if 128 < code < 128 + signal.NSIG:
        number = code - 128
        return f"was killed by signal {number} ({signal_name(number)})", None, number
    return f"exited with code {code}", code, None


_MISMATCH = re.compile(
    r"error\[mpi-mismatch\]: (the program was built .+?|`mpiImplementation` .+?): (?:each rank|it) would "
)
_NAME = r"\[+[^\[\]]*?(?:\][^\[\]]*)?,(\d+)\]"
_EXIT = re.compile(
    r"detected that one or more processes exited with non-zero status.*?Process name: "
    + _NAME
    + r" Exit code: (\d+)"
)
_SIGNAL = re.compile(
    r"noticed that process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+)",
)
_ABORT = re.compile(r"has exited due to process rank (\d+) with PID \d+ on node (\S+) calling \"abort\"")
_ABORT_CALL = re.compile(
    r"MPI_ABORT was invoked on rank (\d+) in communicator .*?(?:Errorcode:|with errorcode) (-?\d+)"
)
_ABORT_HYDRA = re.compile(
    r"Abort\((-?\d+)\) on node \d+ \(rank (\d+) in comm \d+\): application called MPI_Abort"
)
_ABORT_HYDRA_OLD = re.compile(r"application called MPI_Abort\([^,)]*, (-?\d+)\) - process (\d+)")
_RAISED = re.compile(r"gangline: (\w+) on rank (\d+): ending all ranks")
"""What ``mpi_check`` says before it calls MPI_Abort in place of the program."""
_LOST = re.compile(
    r"lost communication with a remote daemon\. HNP daemon : \S+ on node \S+ Remote daemon: \S+ on node (\S+)"
)
_NO_DAEMON = re.compile(r"Remote host: (\S+)(?: Daemon exit status: (\d+))?")
_NOT_FOUND = re.compile(
    r"(?:unable to find the specified executable file|was unable to launch the specified)"
)
_EXECUTABLE = re.compile(r"Executable: (\S+)")
_NODE = re.compile(r"Node: (\S+)")
_SLOTS = re.compile(r"not enough slots available in the system to satisfy the (\d+) slots")
_HYDRA_RANK = re.compile(r"= RANK (\d+) PID \d+ RUNNING AT (\S+)")
_HYDRA_PID = re.compile(r"= PID \d+ RUNNING AT (\S+)")
_HYDRA_CODE = re.compile(r"= EXIT (?:CODE|STATUS): (\d+)")
_HYDRA_SIGNAL = re.compile(r"(?:KILLED BY SIGNAL: (\d+)|EXIT STRING: .*?\(signal (\d+)\))")
_HYDRA_CODES = re.compile(r"\[mpiexec@[^\]]*\] Exit codes:((?: *\[[^\]]*\] [\d,]+)+)")
_HYDRA_KILLS_BY = (9, 15)
_DEADLY_SIGNALS = (4, 6, 7, 8, 9, 11, 15)
_HYDRA_EXEC = re.compile(r"proxy:\S*?@([^\]\s]+)\].*?execvp error on file (\S+)")


def _find(text: str, ranks_text: str) -> RankFailure | None:
    if match := _MISMATCH.search(text):
        return RankFailure(what=match.group(1))
    for look in (_find_signal, _find_exit, _find_not_found, _find_slots, _find_hydra):
        if found := look(text):
            return _better_abort(found, text, ranks_text)
    if found := _find_abort(text, ranks_text):
        return found
    return _find_lost(text) or _first_of_exit_codes(text)


def _find_signal(text: str) -> RankFailure | None:
    if not (match := _SIGNAL.search(text)):
        return None
    number = int(match.group(3))
    words = f"was killed by signal {number} ({signal_name(number)})"
    return RankFailure(what=words, rank=int(match.group(1)), host=match.group(2), signal=number)


def _find_exit(text: str) -> RankFailure | None:
    if not (match := _EXIT.search(text)):
        return None
    words, code, number = _ending(int(match.group(2)))
    return RankFailure(what=words, rank=int(match.group(1)), exit_code=code, signal=number)


def _find_not_found(text: str) -> RankFailure | None:
    if not _NOT_FOUND.search(text):
        return None
    program, node = _EXECUTABLE.search(text), _NODE.search(text)
    name = f"`{program.group(1)}`" if program else "the program"
    return RankFailure(what=f"{name} was not found", rank=0, host=node.group(1) if node else "")


def _find_slots(text: str) -> RankFailure | None:
    if not (match := _SLOTS.search(text)):
        return None
    return RankFailure(what=f"{match.group(1)} ranks were asked for, more than there are slots")


def _find_abort(text: str, ranks_text: str) -> RankFailure | None:
    host = ""
    if match := _ABORT.search(text):
        host = match.group(2)
    call = _ABORT_CALL.search(ranks_text) or _ABORT_CALL.search(text)
    if call:
        rank, code = int(call.group(1)), int(call.group(2))
    elif hydra := _ABORT_HYDRA.search(text) or _ABORT_HYDRA.search(ranks_text):
        rank, code = int(hydra.group(2)), int(hydra.group(1))
    elif old := _ABORT_HYDRA_OLD.search(text) or _ABORT_HYDRA_OLD.search(ranks_text):
        rank, code = int(old.group(2)), int(old.group(1))
    elif match:
        return RankFailure(what="called MPI_Abort", rank=int(match.group(1)), host=host)
    else:
        return None
    raised = next((one for one in _RAISED.finditer(ranks_text) if int(one.group(2)) == rank), None)
    what = f"raised {raised.group(1)}" if raised else f"called MPI_Abort with code {code}"
    return RankFailure(what=what, rank=rank, host=host, exit_code=code)


def _better_abort(found: RankFailure, text: str, ranks_text: str) -> RankFailure:
    """Prefer a call of MPI_Abort over the ending that it led to, if the same rank or none is named."""
    abort = _find_abort(text, ranks_text)
    if abort is None or found.rank not in (None, abort.rank):
        return found
    return replace(abort, host=abort.host or found.host)


def _find_hydra(text: str) -> RankFailure | None:
    if match := _HYDRA_EXEC.search(text):
        return RankFailure(what=f"`{match.group(2)}` was not found", host=match.group(1))
    named, plain = _HYDRA_RANK.search(text), _HYDRA_PID.search(text)
    if not (named or plain):
        return None
    listed = _first_of_exit_codes(text)
    rank = int(named.group(1)) if named else listed.rank if listed else None
    host = named.group(2) if named else plain.group(1) if plain else ""
    if killed := _HYDRA_SIGNAL.search(text):
        number = int(killed.group(1) or killed.group(2))
        words = f"was killed by signal {number} ({signal_name(number)})"
        return RankFailure(what=words, rank=rank, host=host, signal=number)
    code = _HYDRA_CODE.search(text)
    if code is None:
        return RankFailure(what="ended badly", rank=rank, host=host)
    words, exit_code, number_or_none = _ending(int(code.group(1)))
    if exit_code in _DEADLY_SIGNALS and not named:  # MPICH's word for both, and its explanation is not there
        words = f"was killed by signal {exit_code} ({signal_name(exit_code)}) or exited with code {exit_code}"
    return RankFailure(what=words, rank=rank, host=host, exit_code=exit_code, signal=number_or_none)


def _first_of_exit_codes(text: str) -> RankFailure | None:
    """Read the wait statuses that Hydra lists host by host: the first rank that exited badly by itself."""
    if not (match := _HYDRA_CODES.search(text)):
        return None
    statuses = [int(status) for status in re.findall(r"\d+", re.sub(r"\[[^\]]*\]", "", match.group(1)))]
    bad = [(rank, status) for rank, status in enumerate(statuses) if status]
    if not bad:
        return None
    # Hydra kills all others when one rank has failed: of several that were killed, the first is not known.
    own = [one for one in bad if one[1] >> 8] or [one for one in bad if one[1] not in _HYDRA_KILLS_BY]
    rank, status = (own or bad)[0]
    words, code, number = _ending(status >> 8 or 128 + status)
    is_known = own or len(bad) == 1
    return RankFailure(what=words, rank=rank if is_known else None, exit_code=code, signal=number)


def _find_lost(text: str) -> RankFailure | None:
    if match := _LOST.search(text):
        return RankFailure(what=f"the connection to host `{match.group(1)}` was lost", host=match.group(1))
    if "failed to report back" in text or "unable to reliably start one or more daemons" in text:
        remote = _NO_DAEMON.search(text)
        host = remote.group(1) if remote else ""
        status = f" (its remote shell ended with {remote.group(2)})" if remote and remote.group(2) else ""
        return RankFailure(what=f"host `{host}` could not be reached{status}", host=host)
    return None
