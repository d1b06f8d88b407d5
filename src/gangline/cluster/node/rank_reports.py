"""Which ranks of this machine hang, as events of their pods.

A process of its own looks (`gangline.train.rank_watch`): it is started before the agent enters a user
namespace, from inside of which the processes of users' sessions are not to be seen. It sleeps while no pod
runs. What it finds it says once; a killed one is not missed by anything else.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gangline.api.core import Pod
from gangline.api.resources import PODS
from gangline.jobs.names import JOB_NAME_LABEL
from gangline.train import rank_watch

if TYPE_CHECKING:
    from gangline.kube.events import Recorder

EVENTS: Final = {
    "stopped": ("Warning", "RankStopped"),
    "busy": ("Warning", "RankKeepsOthersWaiting"),
    "mixed": ("Warning", "RanksWait"),
    "going-on": ("Normal", "RankGoesOn"),
}
"""Type and reason of the event for each kind of `gangline.train.waiting.Said`."""
REASONS: Final = frozenset(reason for _, reason in EVENTS.values())
END_LIMIT_S = 2.0


def ranks_of(pod: Pod) -> str:
    """Return the value of ``RANKS_OF`` for the ranks in a pod: those of one job make one program."""
    meta = pod.metadata
    return f"{meta.namespace}.{meta.labels.get(JOB_NAME_LABEL) or meta.uid}/{meta.name}"


class RankReports:
    """The process that looks; ``start`` it before any other thread or namespace."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_on = False

    def start(self) -> None:
        """Start the process; without it nothing is reported."""
        with suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", rank_watch.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
            )

    def switch(self, is_on: bool) -> None:
        """Have it look, or not: while no pod runs there is nothing to see."""
        if is_on == self._is_on or self._process is None:
            return
        self._is_on = is_on
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(b"on\n" if is_on else b"off\n")
            self._process.stdin.flush()

    async def run(self, recorder: Recorder, pod_of: Callable[[str], Pod | None]) -> None:
        """Turn what is found into events until the process ends.

        Args:
            recorder: sends the events.
            pod_of: the pod of ``NAMESPACE/NAME``.
        """
        if self._process is None:
            return
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._process.stdout
        )
        try:
            while line := await reader.readline():
                found = json.loads(line)
                namespace = str(found["program"]).partition(".")[0]
                if (pod := pod_of(f"{namespace}/{found['place']}")) is not None:
                    recorder.event(
                        (PODS.api_version, PODS.kind, pod.metadata),
                        *EVENTS[found["kind"]],
                        str(found["text"]),
                    )
        finally:
            transport.close()

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
            try:
                process.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
