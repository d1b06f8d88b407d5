"""Starts the ranks of all pods from the first, through the rank agent of each, so that they can start again.

It runs by the image's own Python, 3.8 or newer, beside ``rank_agent`` and ``pod_ranks``, from the standard
library alone. One rank that comes back alone cannot join the others, which hold connections to the one that
is gone: all end, and all start again.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable  # noqa: UP035 - Python 3.8

from pod_ranks import PodRanks, Supervisor, run_again  # type: ignore[import-not-found,unused-ignore]
from rank_agent import WAIT_S, connect, end, serve, take  # type: ignore[import-not-found,unused-ignore]

RanksOf = Callable[[int], "list[list[dict[str, Any]]]"]

END_LIMIT_S = 30.0
CONNECTIONS_MAX = 32


class DistantSupervisor:
    """A supervisor of ranks in another pod.

    Args:
        folder: with the job's key.
        host: the pod, which is waited for.

    Raises:
        OSError: it is not there in time.
    """

    def __init__(self, folder: Path, host: str) -> None:
        self.stream = connect(folder, host, time.monotonic() + WAIT_S)
        self.write(json.dumps({"supervisor": True}).encode() + b"\n")

    def fileno(self) -> int:
        """Return what can be waited for."""
        return int(self.stream.fileno())

    def read(self) -> bytes | None:
        """Return what it says: None for nothing yet, empty when its pod has gone."""
        data: bytes | None = take(self.stream)
        return data

    def write(self, data: bytes) -> None:
        """Give it a command."""
        self.stream.settimeout(END_LIMIT_S)
        self.stream.sendall(data)

    def close(self) -> None:
        """End it; the pod waits for that before others start there."""
        self.stream.close()


def run_gang(folder: Path, pod: int, cwd: str, hosts: list[str], ranks_of: RanksOf, restarts: int) -> int:
    """Do this pod's part and return its exit code.

    Args:
        folder: with this program and the agent.
        pod: index of this pod; the first starts all ranks, the others serve it.
        cwd: where the ranks start.
        hosts: names of the pods in order.
        ranks_of: from the number of the restart to the ranks of each pod.
        restarts: how often all ranks start again after a failure.
    """
    if pod:
        return int(serve(folder))

    def start(restart: int) -> Any:
        with ThreadPoolExecutor(CONNECTIONS_MAX) as pool:
            others = list(pool.map(lambda host: DistantSupervisor(folder, host), hosts[1:]))
        return PodRanks(zip([Supervisor(), *others], ranks_of(restart)), cwd)  # noqa: B905 - no `strict` before Python 3.10

    try:
        code = int(run_again(start, restarts))
    except OSError as error:
        sys.exit(f"gangline: a pod of this job cannot be reached: {error}")
    return code or end_others(folder, hosts)


def end_others(folder: Path, hosts: list[str]) -> int:
    """Tell the other pods that all is well; return 1 when one cannot be told, for it would never end."""

    def end_one(host: str) -> bool:
        try:
            end(folder, host, 0, time.monotonic() + END_LIMIT_S)
        except OSError as error:
            sys.stderr.write(f"gangline: all ranks ended well, but the pod {host} cannot be told: {error}\n")
            return False
        return True

    with ThreadPoolExecutor(CONNECTIONS_MAX) as pool:
        return 0 if all(list(pool.map(end_one, hosts[1:]))) else 1
