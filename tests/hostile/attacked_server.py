"""An API server in a process of its own, and clients that send it bytes."""

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from gangline.cluster.daemon.cluster import Cluster
from gangline.cluster.paths import ClusterPaths

START_TIMEOUT_S = 60.0
ANSWER_BYTES_MAX = 64 << 20


@dataclass
class AttackedServer:
    """The process, and where it listens."""

    paths: ClusterPaths
    process: "subprocess.Popen[bytes]"
    log: Path

    def memory_mib(self, name: str = "VmHWM") -> float:
        """Return the process's memory: the most it ever had, or what it has now (``VmRSS``)."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("the server is gone")

    async def status_of(self, raw: bytes, *, timeout_s: float) -> int:
        """Send bytes and return the status of the answer, 0 when there is none in time or at all."""
        reader, writer = await asyncio.open_unix_connection(str(self.paths.api_socket))
        try:
            writer.write(raw)
            async with asyncio.timeout(timeout_s):
                with suppress(ConnectionError):
                    await writer.drain()
                line = await reader.readline()
                return int(line.split()[1]) if line.startswith(b"HTTP/1.") else 0
        except (TimeoutError, ConnectionError, IndexError, ValueError):
            return 0
        finally:
            writer.close()

    async def healthz_s(self) -> float:
        """Return how long another client waits for ``GET /healthz``."""
        begin = time.monotonic()
        raw = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert await self.status_of(raw, timeout_s=60) == 200
        return time.monotonic() - begin


@contextmanager
def attacked_server(
    state: Path, *, environment: Mapping[str, str] | None = None, limits: Mapping[int, int] | None = None
) -> Iterator[AttackedServer]:
    """Run a server until the block ends.

    Args:
        state: its folder; the log goes beside it.
        environment: more variables.
        limits: of the process, by the numbers of ``resource``.
    """
    paths = ClusterPaths("dev", state)
    log = state.with_suffix(".log")
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "gangline.cluster.server.server", "--state", str(state)],
            stdout=output,
            stderr=output,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | dict(environment or {}),
        )
    for number, value in (limits or {}).items():
        resource.prlimit(process.pid, number, (value, value))
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            assert process.poll() is None, log.read_text()
            if Cluster(paths).status().ready:
                break
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield AttackedServer(paths, process, log)
    finally:
        if process.poll() is None:
            process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()


@dataclass
class Outcome:
    """What a series of cases did."""

    statuses: dict[int, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    slowest_healthz_s: float = 0.0
