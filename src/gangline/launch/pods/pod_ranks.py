"""Starts the ranks of one pod of a program, from the code that came with the job; ends with their exit code.

It runs by the image's own Python, 3.8 or newer, beside ``unpack_code`` and ``rank_supervisor``, from the
standard library alone:

    python3 pod_ranks.py --ranks N --per-pod K --master HOST --code PIECES,TARGET,SHA256 -- PROGRAM [ARG]...

With ``--mpi`` the image's ``mpirun`` starts them, see ``pod_mpi``.

The pod's number is in ``JOB_COMPLETION_INDEX`` (Kubernetes sets it for an indexed Job). Each line of a rank
comes with the tag that ``mpirun --tag-output`` writes, so that readers of the log tell ranks apart.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from unpack_code import fetch, unpack  # type: ignore[import-not-found,unused-ignore]

MASTER_PORT = 29500
"""Where torch's ranks meet by default; the pod has its network for itself."""
GRACE_S = 25.0
"""For ranks that save when they are asked to stop: within the 30 s that a pod is given by default."""
LINE_BYTES_MAX = 65536
EXIT_NOT_STARTED = 127
_STREAMS = {"out": "stdout", "err": "stderr"}


class PodRanks:
    """The ranks of this pod, started by a supervisor that ends them when this process ends."""

    def __init__(self, cwd: str) -> None:
        self.cwd = cwd
        self.exit_code = 0
        self.is_stopped = False
        self.held: dict[tuple[int, str], bytes] = {}
        supervisor = str(Path(__file__).with_name("rank_supervisor.py"))
        self.process = subprocess.Popen(
            [sys.executable, supervisor],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def tell(self, **command: object) -> None:
        """Give the supervisor a command."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended, and its ranks with it

    def stop(self, grace_s: float = GRACE_S) -> None:
        """Ask all ranks to end."""
        if not self.is_stopped:
            self.is_stopped = True
            self.tell(stop=True, grace_s=grace_s)

    def run(self, ranks: list[dict[str, object]]) -> int:
        """Run these ranks to their end; return the exit code of the first that failed, or 0."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        self.tell(start=ranks, cwd=self.cwd)
        left = {rank["rank"] for rank in ranks}
        source = self.process.stdout
        assert source is not None
        while left:
            head = source.readline().split()
            if len(head) != 3:
                break  # the supervisor was killed
            event, rank, data = head[0].decode(), int(head[1]), source.read(int(head[2]))
            if event in _STREAMS:
                self.show(rank, event, data)
            elif event in ("exit", "failed"):
                left.discard(rank)
                self.ended(rank, event, data)
        self.stop()
        return self.exit_code if not left else self.exit_code or 1

    def ended(self, rank: int, event: str, data: bytes) -> None:
        """Note the end of a rank; the first that fails ends the others."""
        for stream in _STREAMS:
            self.show(rank, stream, b"\n" if self.held.get((rank, stream)) else b"")
        code = int(data) if event == "exit" else EXIT_NOT_STARTED
        if event == "failed":
            self.show(rank, "err", b"cannot start: " + data + b"\n")
        if code and not self.is_stopped:
            self.exit_code = self.exit_code or code
            write(b'@gangline {"kind":"rank-ended","rank":%d,"code":%d}\n' % (rank, code))
            self.stop(3.0)

    def show(self, rank: int, stream: str, data: bytes) -> None:
        """Write the whole lines of a rank, each behind its tag; hold back the last until it ends."""
        key = (rank, stream)
        lines = (self.held.get(key, b"") + data).split(b"\n")
        self.held[key] = lines.pop()
        if len(self.held[key]) > LINE_BYTES_MAX:
            lines.append(self.held.pop(key))
        tag = b"[1,%d]<%s>: " % (rank, _STREAMS[stream].encode())
        write(b"".join(tag + line + b"\n" for line in lines))


def write(data: bytes) -> None:
    """Write to the pod's log, whole."""
    while data:
        data = data[os.write(1, data) :]


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


def main() -> int:
    """Unpack the code, start the ranks, return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--per-pod", type=int, required=True)
    parser.add_argument("--master", required=True)
    parser.add_argument("--code", default="")
    parser.add_argument("--git", nargs=3, metavar=("URL", "REVISION", "FOLDER"))
    parser.add_argument("--mpi", action="store_true")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    cwd = ""
    if options.code:
        pieces, cwd, digest = options.code.split(",")
        try:
            unpack(Path(pieces), Path(cwd), digest)
        except (OSError, ValueError) as error:
            sys.exit(f"gangline: cannot unpack the code: {error}")
    if options.git:
        url, revision, cwd = options.git
        try:
            fetch(url, revision, Path(cwd))
        except OSError as error:
            sys.exit(f"gangline: cannot fetch the code: {error}")
    pod = int(os.environ.get("JOB_COMPLETION_INDEX", "0"))
    if options.mpi:
        from pod_mpi import run_mpi  # type: ignore[import-not-found,unused-ignore]

        return int(run_mpi(Path(__file__).parent, pod, cwd))
    first = pod * options.per_pod
    count = min(options.per_pod, options.ranks - first)
    ranks = [
        {
            "rank": first + index,
            "argv": options.program,
            "env": rank_variables(first + index, index, count, options.ranks, pod, options.master),
        }
        for index in range(count)
    ]
    return PodRanks(cwd).run(ranks)


if __name__ == "__main__":
    sys.exit(main())
