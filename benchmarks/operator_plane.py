"""A real control plane with an operator of ours: for the benchmarks of operators."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from laboratory import REPOSITORY, processor_s

sys.path.insert(0, str(REPOSITORY / "tests" / "kubernetes"))

QUIET_S = 1.0
START_SHARE_MAX = 0.1
"""An API server that uses less of a core than this has started."""


@asynccontextmanager
async def control_plane(namespace: str) -> AsyncIterator[Any]:
    """Start a control plane with the MPIJob kind and a namespace, and end it."""
    from control_plane import ControlPlane

    from gangline.api.crds import crds
    from gangline.api.resources import MPIJOBS, NAMESPACES
    from gangline.kube.errors import NotFound

    with ControlPlane(controllers=False, crds=crds()) as plane:
        async with client_of(plane) as client:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await client.create(NAMESPACES, body)
            while True:
                with contextlib.suppress(NotFound):
                    await client.list(MPIJOBS, limit=1)
                    break
        await until_idle(plane.pids["kube-apiserver"])
        yield plane


async def until_idle(pid: int) -> None:
    """Wait until a process has done what it does at its start: an API server is busy for seconds after."""
    before_s = -1.0
    while (now_s := processor_s(pid)) - before_s > START_SHARE_MAX * QUIET_S:
        before_s = now_s
        await asyncio.sleep(QUIET_S)


def client_of(plane: Any) -> Any:
    from gangline.kube.client import Client
    from gangline.kube.config import load_kubeconfig

    return Client(load_kubeconfig(plane.kubeconfig), user_agent="benchmark")


@contextlib.contextmanager
def operator_process(plane: Any, port: int) -> Any:
    """Run `gangline operator` at its defaults, and end it."""
    command = [sys.executable, "-m", "gangline", "operator", "--kubeconfig", str(plane.kubeconfig)]
    command += ["--metrics-port", str(port), "--health-port", str(port + 1)]
    with (plane.folder / "operator.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + 30
        while fetch(port + 1, "/readyz") is None:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise SystemExit((plane.folder / "operator.log").read_text()[-2000:])
            time.sleep(0.02)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def fetch(port: int, path: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return None


def pair_of_ports(free_ports: Callable[[int], list[int]]) -> int:
    """Return a free port whose next one is free as well."""
    while True:
        (port,) = free_ports(1)
        with contextlib.suppress(OSError):
            import socket

            with socket.socket() as following:
                following.bind(("127.0.0.1", port + 1))
            return port
