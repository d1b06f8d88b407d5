"""Read a launcher's output and say which rank failed, where, and how. Pure.

Wordings were taken from runs of Open MPI 5.0.11 (``prterun``) and from the published messages of Open MPI 4
(``mpirun``, ``ORTE``), MPICH's and Intel's Hydra.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable
from typing import Any

from gangline.workloads.outcome import Cause, CauseKind, LaunchFailure, cause_of_code

TAIL_LINES = 20
LAUNCHER_LINES_MAX = 400
RANKS_MAX = 4096
LINE_CHARS_MAX = 4096

# [1,0]<stdout>: epoch 1
# [0,3]<stderr>: Traceback
_TAG = re.compile(r"^\[(?:\d+,)?(\d+)\](?:\[[^\]]*\])?(?:<(?:stdout|stderr|stddiag)>: ?| )(.*)$", re.DOTALL)
FAILURE_RECORDS = ("rank-ended", "rank-raised", "mpi-mismatch", "ranks-restart")
"""Kinds of the records that tell why a launch failed: of a rank, of ``mpi_check``, of ``mpirun_wrapper``, of
``pod_ranks``."""
# @gangline {"kind":"rank-ended","rank":1,"code":3}
_RECORD = re.compile(r'@gangline (\{"kind": ?"[\w-]+".*\})\s*$')
_WHITE = re.compile(r"\s+")
# --------------------------------------------------------------------------
_RULE = re.compile(r"-{70,80}$")
# =   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
# [mpiexec@host-a] Exit codes: [host-a] 768 [host-b] 9
# prterun noticed that process rank 1 with PID 0 on node host-b exited on
_REPORT = re.compile(
    r"^=|plm:ssh: Warning|^YOUR APPLICATION TERMINATED|^\[mpiexec@[^\]]*\] Exit codes:"
    r"|^(?:mpirun|prterun) (?:noticed|detected) that"
)


def take_record(line: str) -> tuple[str, dict[str, Any] | None]:
    """Return what a program wrote on a line before a record of ours, and the record.

    The first is empty where a launcher's tag alone stands there; a line without a record is returned whole.
    """
    match = _RECORD.search(line)
    if match is None:
        return line, None
    try:
        record: dict[str, Any] = json.loads(match.group(1))
    except ValueError:
        return line, None
    before = line[: match.start()]
    tag = _TAG.match(before)
    return ("" if tag is not None and not tag.group(2) else before), record


class LauncherOutput:
    """Keeps the last lines of each rank and of the launcher itself; feed it every line in order.

    Memory is bounded: 20 lines for each of at most 4096 ranks, 400 lines of the launcher. What was before
    all ranks started again is forgotten.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._ranks: dict[int, deque[str]] = {}
        self._launcher: deque[str] = deque(maxlen=LAUNCHER_LINES_MAX)
        self._spoken: deque[str] = deque(maxlen=TAIL_LINES)
        self._in_report = False
        self._last: int | None = None
        self._records: list[dict[str, Any]] = []

    def feed(self, line: str) -> None:
        """Take one line, with or without its newline. About a microsecond."""
        text, record = take_record(line.rstrip("\r\n"))
        if record is not None:
            if record["kind"] == "ranks-restart":
                self._forget()
            elif record["kind"] in FAILURE_RECORDS and len(self._records) < RANKS_MAX:
                self._records.append(record)
            if not text:
                return
        text = text[:LINE_CHARS_MAX]
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

    def failure(self, exit_code: int | None = None) -> LaunchFailure | None:
        """Return what went wrong; ``None`` when nothing is named and the exit code is 0 or unknown."""
        text = _WHITE.sub(" ", "\n".join(self._launcher))
        found = self._mismatch() or _find(text, self._abort_text())
        if found is None or found.kind is CauseKind.ABORTED:
            found = self._raised(found)
        if found is None:
            ends = [record for record in self._records if record["kind"] == "rank-ended"]
            # The launcher ends with the code of the rank that failed; others were ended because of it.
            end = next((one for one in ends if one["code"] == exit_code), ends[0] if ends else None)
            found = cause_of_code(end["code"], rank=end["rank"]) if end else None
        if found is None:
            if not exit_code:
                return None
            found = cause_of_code(exit_code, of_launcher=True)
        return LaunchFailure(found, self._tail(found.rank), is_last=self._last == found.rank)

    def _mismatch(self) -> Cause | None:
        said = next((record["what"] for record in self._records if record["kind"] == "mpi-mismatch"), None)
        return Cause(CauseKind.OTHER_MPI, detail=said) if said else None

    def _raised(self, aborted: Cause | None) -> Cause | None:
        """Name the exception for which ``mpi_check`` called MPI_Abort in place of the program.

        Hydra can end before it has passed on what MPI_Abort wrote: then the record alone tells.
        """
        for record in self._records:
            if record["kind"] == "rank-raised" and (aborted is None or aborted.rank == record["rank"]):
                cause = aborted or Cause(CauseKind.ABORTED, rank=record["rank"], exit_code=1)
                return cause._replace(kind=CauseKind.RAISED, detail=record["error"])
        return aborted

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


def find_failure(lines: Iterable[str], exit_code: int | None = None) -> LaunchFailure | None:
    """Return what went wrong in a launcher's whole output; see ``LauncherOutput.failure``."""
    output = LauncherOutput()
    for line in lines:
        output.feed(line)
    return output.failure(exit_code)


# [prterun-vm-7367@1,1] of Open MPI 5, [[41012,1],3] of Open MPI 4
_NAME = r"\[+[^\[\]]*?(?:\][^\[\]]*)?,(\d+)\]"
# prterun detected that one or more processes exited with non-zero status, ... Process name: ... Exit code: 3
_EXIT = re.compile(
    r"detected that one or more processes exited with non-zero status.*?Process name: "
    + _NAME
    + r" Exit code: (\d+)"
)
# prterun noticed that process rank 2 with PID 0 on node pi-worker-1 exited on signal 11 (Segmentation fault).
_SIGNAL = re.compile(
    r"noticed that process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+)",
)
# prterun has exited due to process rank 2 with PID 0 on node vm calling "abort".
_ABORT = re.compile(r"has exited due to process rank (\d+) with PID \d+ on node (\S+) calling \"abort\"")
# MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD with errorcode 5.
_ABORT_CALL = re.compile(
    r"MPI_ABORT was invoked on rank (\d+) in communicator .*?(?:Errorcode:|with errorcode) (-?\d+)"
)
# Abort(7) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 2
_ABORT_HYDRA = re.compile(
    r"Abort\((-?\d+)\) on node \d+ \(rank (\d+) in comm \d+\): application called MPI_Abort"
)
# application called MPI_Abort(MPI_COMM_WORLD, 7) - process 2
_ABORT_HYDRA_OLD = re.compile(r"application called MPI_Abort\([^,)]*, (-?\d+)\) - process (\d+)")
# PRTE has lost communication with a remote daemon. HNP daemon : [@0] on node a Remote daemon: [@1] on node b
_LOST = re.compile(
    r"lost communication with a remote daemon\. HNP daemon : \S+ on node \S+ Remote daemon: \S+ on node (\S+)"
)
# A daemon failed to report back after being spawned.
_NO_REPORT = re.compile(r"failed to report back|unable to reliably start one or more daemons")
# Remote host: pi-worker-1 Daemon exit status: 255
_NO_DAEMON = re.compile(r"Remote host: (\S+)(?: Daemon exit status: (\d+))?")
# prterun was unable to find the specified executable file, and therefore did not launch the job.
_NOT_FOUND = re.compile(
    r"(?:unable to find the specified executable file|was unable to launch the specified)"
)
# Node: pi-worker-0 Executable: nonexistent-program
_EXECUTABLE = re.compile(r"Executable: (\S+)")
_NODE = re.compile(r"Node: (\S+)")
# There are not enough slots available in the system to satisfy the 9 slots that were requested
_SLOTS = re.compile(r"not enough slots available in the system to satisfy the (\d+) slots")
# = RANK 1 PID 4711 RUNNING AT host-b
_HYDRA_RANK = re.compile(r"= RANK (\d+) PID \d+ RUNNING AT (\S+)")
# = PID 4711 RUNNING AT host-b
_HYDRA_PID = re.compile(r"= PID \d+ RUNNING AT (\S+)")
# = EXIT CODE: 3
_HYDRA_CODE = re.compile(r"= EXIT (?:CODE|STATUS): (\d+)")
# = KILLED BY SIGNAL: 11 (Segmentation fault)
# YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
_HYDRA_SIGNAL = re.compile(r"(?:KILLED BY SIGNAL: (\d+)|EXIT STRING: .*?\(signal (\d+)\))")
# [mpiexec@host-a] Exit codes: [host-a] 768,0 [host-b] 9,9
_HYDRA_CODES = re.compile(r"\[mpiexec@[^\]]*\] Exit codes:((?: *\[[^\]]*\] [\d,]+)+)")
# [host-a] in the line above
_HYDRA_HOST = re.compile(r"\[[^\]]*\]")
_NUMBER = re.compile(r"\d+")
_HYDRA_KILLS_BY = (9, 15)
_DEADLY_SIGNALS = (4, 6, 7, 8, 9, 11, 15)
# [proxy:0@host-b] HYDU_create_process (lib/utils/launch.c:73): execvp error on file foo (No such file)
_HYDRA_EXEC = re.compile(r"proxy:\S*?@([^\]\s]+)\].*?execvp error on file (\S+)")


def _find(text: str, ranks_text: str) -> Cause | None:
    for look in (_find_signal, _find_exit, _find_not_found, _find_slots, _find_hydra):
        if found := look(text):
            return _better_abort(found, text, ranks_text)
    if found := _find_abort(text, ranks_text):
        return found
    return _find_lost(text) or _first_of_exit_codes(text)


def _find_signal(text: str) -> Cause | None:
    if not (match := _SIGNAL.search(text)):
        return None
    return Cause(
        CauseKind.SIGNALLED, rank=int(match.group(1)), host=match.group(2), signal=int(match.group(3))
    )


def _find_exit(text: str) -> Cause | None:
    if not (match := _EXIT.search(text)):
        return None
    return cause_of_code(int(match.group(2)), rank=int(match.group(1)))


def _find_not_found(text: str) -> Cause | None:
    if not _NOT_FOUND.search(text):
        return None
    program, node = _EXECUTABLE.search(text), _NODE.search(text)
    return Cause(
        CauseKind.NOT_FOUND,
        rank=0,
        host=node.group(1) if node else "",
        detail=program.group(1) if program else "",
    )


def _find_slots(text: str) -> Cause | None:
    match = _SLOTS.search(text)
    return Cause(CauseKind.NO_SLOTS, detail=match.group(1)) if match else None


def _find_abort(text: str, ranks_text: str) -> Cause | None:
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
        return Cause(CauseKind.ABORTED, rank=int(match.group(1)), host=host)
    else:
        return None
    return Cause(CauseKind.ABORTED, rank=rank, host=host, exit_code=code)


def _better_abort(found: Cause, text: str, ranks_text: str) -> Cause:
    """Prefer a call of MPI_Abort over the ending that it led to, if the same rank or none is named."""
    abort = _find_abort(text, ranks_text)
    if abort is None or found.rank not in (None, abort.rank):
        return found
    return abort._replace(host=abort.host or found.host)


def _find_hydra(text: str) -> Cause | None:
    if match := _HYDRA_EXEC.search(text):
        return Cause(CauseKind.NOT_FOUND, host=match.group(1), detail=match.group(2))
    named, plain = _HYDRA_RANK.search(text), _HYDRA_PID.search(text)
    if not (named or plain):
        return None
    listed = _first_of_exit_codes(text)
    rank = int(named.group(1)) if named else listed.rank if listed else None
    host = named.group(2) if named else plain.group(1) if plain else ""
    if killed := _HYDRA_SIGNAL.search(text):
        return Cause(
            CauseKind.SIGNALLED, rank=rank, host=host, signal=int(killed.group(1) or killed.group(2))
        )
    code = _HYDRA_CODE.search(text)
    if code is None:
        return Cause(CauseKind.ENDED, rank=rank, host=host)
    found = cause_of_code(int(code.group(1)), rank=rank, host=host)
    if found.exit_code in _DEADLY_SIGNALS and not named:  # MPICH's word for both, without its explanation
        return found._replace(kind=CauseKind.EXITED_OR_SIGNALLED)
    return found


def _first_of_exit_codes(text: str) -> Cause | None:
    """Read the wait statuses that Hydra lists host by host: the first rank that exited badly by itself."""
    if not (match := _HYDRA_CODES.search(text)):
        return None
    statuses = [int(status) for status in _NUMBER.findall(_HYDRA_HOST.sub("", match.group(1)))]
    bad = [(rank, status) for rank, status in enumerate(statuses) if status]
    if not bad:
        return None
    # Hydra kills all others when one rank has failed: of several that were killed, the first is not known.
    own = [one for one in bad if one[1] >> 8] or [one for one in bad if one[1] not in _HYDRA_KILLS_BY]
    rank, status = (own or bad)[0]
    is_known = own or len(bad) == 1
    return cause_of_code(status >> 8 or 128 + status, rank=rank if is_known else None)


def _find_lost(text: str) -> Cause | None:
    if match := _LOST.search(text):
        return Cause(CauseKind.HOST_LOST, host=match.group(1))
    if not _NO_REPORT.search(text):
        return None
    remote = _NO_DAEMON.search(text)
    host, status = remote.groups() if remote else ("", "")
    return Cause(CauseKind.HOST_UNREACHED, host=host, detail=status or "")
