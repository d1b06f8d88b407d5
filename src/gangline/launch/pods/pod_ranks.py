"""Starts the ranks of one pod of a program, from the code that came with the job; ends with their exit code.

It runs by the image's own Python, 3.8 or newer, beside ``unpack_code`` and ``rank_supervisor``, from the
standard library alone:

    python3 pod_ranks.py --ranks N --per-pod K --master HOST --code PIECES,TARGET,SHA256 -- PROGRAM [ARG]...

With ``--mpi`` the image's ``mpirun`` starts them, see ``pod_mpi``. With ``--restarts N`` all ranks start
again after one has failed; those of several pods (``--hosts``) are then started by the first, see
``pod_gang``.

The pod's number is in ``JOB_COMPLETION_INDEX`` (Kubernetes sets it for an indexed Job), else in
``PET_NODE_RANK`` (the operator of a PyTorchJob). Each line of a rank
comes with the tag that ``mpirun --tag-output`` writes, so that readers of the log tell ranks apart.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from unpack_code import fetch, unpack  # type: ignore[import-not-found,unused-ignore]

MASTER_PORT = 29500
"""Where torch's ranks meet by default; the pod has its network for itself."""
GRACE_S = 25.0
"""For ranks that save when they are asked to stop: within the 30 s that a pod is given by default."""
GRACE_AFTER_FAILURE_S = 3.0
LINE_BYTES_MAX = 65536
BAR_PERIOD_S = 1.0
"""A container's log has whole lines alone: of a progress bar, which is one long line, so often as it is."""
CHUNK = 65536
EXIT_NOT_STARTED = 127
EXIT_TERMINATED = 128 + signal.SIGTERM
_STREAMS = {"out": "stdout", "err": "stderr"}


class Supervisor:
    """The process that runs this pod's ranks and ends them when its input ends."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, supervisor_file()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout is not None and self.process.stdin is not None
        self.events, self.commands = self.process.stdout, self.process.stdin

    def fileno(self) -> int:
        """Return what can be waited for."""
        return self.events.fileno()

    def read(self) -> bytes | None:
        """Return what it says: None for nothing yet, empty when it has ended."""
        return os.read(self.events.fileno(), CHUNK)

    def write(self, data: bytes) -> None:
        """Give it a command."""
        write(data, self.commands.fileno())  # a pipe's buffer would keep what could not be written

    def close(self) -> None:
        """End it, and wait for that."""
        self.commands.close()
        self.process.wait()
        self.events.close()


class PodRanks:
    """Ranks below one supervisor, or several; the first rank that fails ends the others.

    Args:
        places: each supervisor with its ranks.
        cwd: where the ranks start; empty for where the supervisor is.
    """

    def __init__(self, places: Any, cwd: str) -> None:
        self.places = dict(places)
        self.cwd = cwd
        self.exit_code = 0
        self.is_stopped = False
        self.held: dict[tuple[int, str], bytes] = {}
        self.shown_s: dict[tuple[int, str], float] = {}
        self.unread = dict.fromkeys(self.places, b"")
        self.left = {place: {rank["rank"] for rank in ranks} for place, ranks in self.places.items()}

    def tell(self, place: Any, **command: object) -> None:
        """Give a supervisor a command."""
        try:
            place.write(json.dumps(command).encode() + b"\n")
        except (OSError, ValueError):
            pass  # it has ended, and its ranks with it

    def stop(self, grace_s: float = GRACE_S) -> None:
        """Ask all ranks to end."""
        if not self.is_stopped:
            self.is_stopped = True
            for place in self.places:
                self.tell(place, stop=True, grace_s=grace_s)

    def run(self) -> int:
        """Run the ranks to their end; return the exit code of the first that failed, or 0."""
        for place, ranks in self.places.items():
            self.tell(place, start=ranks, cwd=self.cwd)
        while any(self.left.values()):
            waited = [place for place, left in self.left.items() if left]
            for place in select.select(waited, [], [])[0]:
                data = place.read()
                if data == b"":  # the supervisor was killed, or its pod is gone
                    lost = ", ".join(map(str, sorted(self.left[place])))
                    write(b"gangline: lost with their supervisor or pod: rank %s\n" % lost.encode())
                    self.left[place] = set()
                    self.failed(1)
                self.take(place, data or b"")
        self.stop()
        for place in self.places:
            place.close()
        return self.exit_code

    def take(self, place: Any, data: bytes) -> None:
        """Take what a supervisor says, event by event."""
        text = self.unread[place] + data
        while True:
            head, newline, rest = text.partition(b"\n")
            words = head.split()
            if not newline or len(rest) < int(words[2]):
                break
            event, rank, payload = words[0].decode(), int(words[1]), rest[: int(words[2])]
            text = rest[int(words[2]) :]
            if event in _STREAMS:
                self.show(rank, event, payload)
            elif event in ("exit", "failed"):
                self.left[place].discard(rank)
                self.ended(rank, event, payload)
        self.unread[place] = text

    def ended(self, rank: int, event: str, data: bytes) -> None:
        """Note the end of a rank; the first that fails ends the others."""
        for stream in _STREAMS:
            self.show(rank, stream, b"\n" if self.held.get((rank, stream)) else b"")
        code = int(data) if event == "exit" else EXIT_NOT_STARTED
        if event == "failed":
            self.show(rank, "err", b"cannot start: " + data + b"\n")
        if code and not self.is_stopped:
            write(b'@gangline {"kind":"rank-ended","rank":%d,"code":%d}\n' % (rank, code))
            self.failed(code)

    def failed(self, code: int) -> None:
        """End all ranks, for one has failed."""
        if not self.is_stopped:
            self.exit_code = code
            self.stop(GRACE_AFTER_FAILURE_S)

    def show(self, rank: int, stream: str, data: bytes) -> None:
        """Write the whole lines of a rank, each behind its tag; hold back the last until it ends."""
        key = (rank, stream)
        lines = (self.held.get(key, b"") + data).split(b"\n")
        rest = lines.pop()
        now_s = time.monotonic()
        if b"\r" in rest and now_s > self.shown_s.get(key, 0.0) + BAR_PERIOD_S:  # a progress bar
            before, _, rest = rest.rpartition(b"\r")
            lines += [before.rpartition(b"\r")[2]] if before else []
            self.shown_s[key] = now_s
        if len(rest) > LINE_BYTES_MAX:
            lines.append(rest)
            rest = b""
        self.held[key] = rest
        tag = b"[1,%d]<%s>: " % (rank, _STREAMS[stream].encode())
        write(b"".join(tag + line + b"\n" for line in lines))


def supervisor_file() -> str:
    """Return the program beside this one in a pod, and one folder up in an installation."""
    here = Path(__file__).with_name("rank_supervisor.py")
    return str(here if here.exists() else here.parents[1] / here.name)


def write(data: bytes, file: int = 1) -> None:
    """Write to the pod's log, or another open file, whole."""
    while data:
        data = data[os.write(file, data) :]


def run_again(start: Any, restarts: int) -> int:
    """Run what ``start`` returns to its end, and anew while it fails; return the last exit code.

    Args:
        start: takes the number of the restart, returns what has ``run``, for the exit code, and ``stop``.
        restarts: how often at most.
    """
    running: list[Any] = []
    is_asked: list[bool] = []

    def stop(*_: object) -> None:
        is_asked.append(True)
        if not running:  # others are waited for, and nothing has begun
            os._exit(EXIT_TERMINATED)
        running[0].stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    code = EXIT_TERMINATED
    for restart in range(restarts + 1):
        if is_asked:
            break
        if restart:
            write(
                b"gangline: exit code %d: all ranks start again, %d of %d\n" % (code, restart, restarts)
                + b'@gangline {"kind":"ranks-restart","restart":%d}\n' % restart
            )
        running[:] = [start(restart)]
        code = int(running[0].run())
        if not code:
            break
    return EXIT_TERMINATED if is_asked else code  # a program that was told to end is not through


def rank_variables(
    rank: int, local_rank: int, local_size: int, size: int, pod: int, master: str
) -> dict[str, str]:
    """Return what torch reads of a rank's place."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_size),
        "GROUP_RANK": str(pod),
        "MASTER_ADDR": master,
        "MASTER_PORT": os.environ.get("MASTER_PORT", str(MASTER_PORT)),
        "PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1"),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def ranks_of(options: argparse.Namespace, pod: int, restart: int) -> list[dict[str, object]]:
    """Return the ranks of a pod, as a supervisor starts them; with torchrun's words for restarts."""
    tries = {"TORCHELASTIC_RESTART_COUNT": str(restart), "TORCHELASTIC_MAX_RESTARTS": str(options.restarts)}
    first = pod * options.per_pod
    count = min(options.per_pod, options.ranks - first)
    return [
        {
            "rank": first + index,
            "argv": options.program,
            "env": {
                **(tries if options.restarts else {}),
                **rank_variables(first + index, index, count, options.ranks, pod, options.master),
            },
        }
        for index in range(count)
    ]


def unpacked(options: argparse.Namespace) -> str:
    """Get the code and return its folder; empty where it does not travel."""
    if options.code:
        pieces, cwd, digest = options.code.split(",")
        try:
            unpack(Path(pieces), Path(cwd), digest)
        except (OSError, ValueError) as error:
            sys.exit(f"gangline: cannot unpack the code: {error}")
        return str(cwd)
    if options.git:
        url, revision, cwd = options.git
        try:
            fetch(url, revision, Path(cwd))
        except OSError as error:
            sys.exit(f"gangline: cannot fetch the code: {error}")
        return str(cwd)
    return ""


def main() -> int:
    """Unpack the code, start the ranks, return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--per-pod", type=int, required=True)
    parser.add_argument("--master", required=True)
    parser.add_argument("--code", default="")
    parser.add_argument("--git", nargs=3, metavar=("URL", "REVISION", "FOLDER"))
    parser.add_argument("--mpi", action="store_true")
    parser.add_argument("--restarts", type=int, default=0)
    parser.add_argument("--hosts", default="")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    cwd, folder = unpacked(options), Path(__file__).parent
    pod = int(os.environ.get("JOB_COMPLETION_INDEX") or os.environ.get("PET_NODE_RANK") or 0)
    if options.mpi:
        from pod_mpi import run_mpi  # type: ignore[import-not-found,unused-ignore]

        return int(run_mpi(folder, pod, cwd, options.restarts))
    if options.hosts:
        from pod_gang import run_gang  # type: ignore[import-not-found,unused-ignore]

        hosts = options.hosts.split(",")

        def of_all(restart: int) -> list[list[dict[str, object]]]:
            return [ranks_of(options, index, restart) for index in range(len(hosts))]

        return int(run_gang(folder, pod, cwd, hosts, of_all, options.restarts))

    def start(restart: int) -> PodRanks:
        return PodRanks({Supervisor(): ranks_of(options, pod, restart)}, cwd)

    return run_again(start, options.restarts)


if __name__ == "__main__":
    sys.exit(main())
